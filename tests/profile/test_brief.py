"""The first look at a profile fits a screen, and keeps what a user acts on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from measured import TESTS, run_file
from synthetic import HOSTILE, h200_device
from synthetic_profile import operator, region, run_of, training

from gpuperf.errors import UnknownName
from gpuperf.model.contract import Fingerprint
from gpuperf.model.program import PassResult, Prompts, Wait
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Caveat, Run
from gpuperf.profile.assemble import Origin, assemble_run
from gpuperf.profile.brief import HEIGHT, WIDTH
from gpuperf.profile.output import render_profile
from gpuperf.profile.program import ProgramRun
from gpuperf.run.store import read_run
from gpuperf.show.screen import Screen

GOLDEN = Path(__file__).parents[1] / "golden"
PROFILES = [run_file(f"h200-profile-{name}") for name in ("eager", "sdpa", "padded", "compiled")]
DDP = TESTS / "data" / "h100x2_profile_ddp.jsonl.gz"  # its first step waits
PROFILES += [GOLDEN / f"run_schema_{schema}.jsonl" for schema in (7, 8, 10)]


def crowded() -> Run:
    """A profile with every kind of finding, of caveat and of region."""
    run = training()
    whole = run.records[0]
    caveats = tuple(Caveat(f"kind-{i}", "a long doubt " * 20, "a hint " * 30) for i in range(8))
    assert whole.program is not None
    program = replace(
        whole.program,
        missing=("counters: a reason " * 10, "kernels: another"),
        waits=(Wait("item", "train.py:9", 1.0, 4e-3),),
        data_s=5e-3,
        data_where="train.py:1",
        parts={f"part {i}": 1e-3 for i in range(20)},
    )
    whole = replace(whole, caveats=caveats, program=program)
    others = [replace(whole, region=f"region {i}", case=whole.case) for i in range(12)]
    return replace(run, records=(whole, *run.records[1:], *others))


@pytest.mark.parametrize("by", ["operators", "kernels"])
@pytest.mark.parametrize("file", PROFILES, ids=lambda path: path.name.partition(".")[0])
def test_a_first_look_fits_a_screen_beside_the_talk_of_the_passes(file: Path, by: str) -> None:
    for width in (80, 100, 200):
        text = render_profile(read_run(file), "table", by, Screen(width))
        assert max(map(len, text.splitlines())) <= min(width, WIDTH)
        assert width < WIDTH or text.count("\n") <= HEIGHT


def test_a_crowded_profile_takes_45_lines() -> None:
    text = render_profile(crowded(), "table", screen=Screen(100))
    assert text.count("\n") <= 45
    assert "10 regions more: -v has all" in text
    assert "5 more kinds of caveat: -v has all" in text


def test_a_program_that_generates_text_has_the_time_to_the_first_token() -> None:
    run = training()
    whole = run.records[0]
    assert whole.program is not None
    compiled = Prompts(8, 2048, (25.0, 0.4))
    prompts = (compiled, Prompts(8, 64, (0.02,)))
    program = replace(whole.program, prompts=prompts)
    run = replace(run, records=(replace(whole, program=program), *run.records[1:]))
    line = " a token; the first one after 20.00 ms (prompt of 8 × 64), 400.0 ms (8 × 2,048)\n"
    for verbose in (False, True):
        assert line in render_profile(run, "table", verbose=verbose)
    many = replace(program, prompts=tuple(Prompts(1, n, (0.01,)) for n in range(2, 7)))
    run = replace(run, records=(replace(whole, program=many), *run.records[1:]))
    assert "(prompt of 1 × 2), 10.00 ms (1 × 3), 3 more\n" in render_profile(run, "table")


def test_the_prompts_of_a_program_belong_to_its_tokens() -> None:
    """And a region of the program's own whose name begins alike stays a region."""
    passed = [
        PassResult("prompt of 2 × 16 tokens", "plain", 2, (0.1, 0.2), 0.3),
        PassResult("forward step", "plain", 3, (0.01,) * 3, 0.03),
        PassResult("prompt of mine", "plain", 1, (0.5,), 0.5),
    ]
    steps = {result.region: result.steps for result in passed}
    run = assemble_run(
        Origin("r", "gen.py", 0, 3, None),
        ProgramRun(passed, Opened(h200_device(), Fingerprint()), steps=steps),
        traced=False,
    )
    regions = {r.region: r.program for r in run.records if r.kind == "region"}
    assert list(regions) == ["forward step", "prompt of mine"]
    program = regions["forward step"]
    assert program is not None
    assert program.prompts == (Prompts(2, 16, (0.1, 0.2)),)


def test_a_first_look_has_what_a_user_acts_on() -> None:
    text = render_profile(read_run(run_file("h200-profile-eager")), "table")
    for words in (
        "138.6 ms a step ± 0.1 %, the GPU busy 99.7 %",
        "MFU 10.2 % of the data sheet",
        "memory-bound 65.8 %, compute-bound 30.5 %, copies 3.3 %\n",
        "312 GB measured (2.25 TB/s), 259 GB at the least",
        "mm bwd ",
        "60.48 ms       43.6 %  use scaled_dot_product_attention",
        "    at docs/examples/gpt2.py:39 (masked_fill",
        "69 operators more, 35.2 %: -v shows more",
        "Contract    mean of 10 plain steps (CUDA events), 5 of warm-up",
    ):
        assert words in text


def test_no_product_of_a_real_profile_is_above_its_roof() -> None:
    """A copy in DDP on two H100 had 114 % of its roof while waiting was taken from all kernels."""
    for path in (DDP, run_file("h200-profile-sdpa")):
        text = render_profile(read_run(path), "table", verbose=True, screen=Screen(200))
        assert "of roof above" not in text
        linked = (
            "times of collectives are 0.401 times those of the trace: a profiler delays the hosts"
        )
        assert (linked in text) == (path == DDP)


def test_a_profile_says_how_much_of_its_collectives_compute_hides() -> None:
    run = read_run(DDP)
    for verbose in (False, True):
        text = render_profile(run, "table", verbose=verbose, screen=Screen(200))
        assert "compute hides 8.029 ms of 22.89 ms of collectives: shares count that" in text
    text = render_profile(read_run(run_file("h200-profile-sdpa")), "table")
    assert "of collectives" not in text


def test_a_caveat_of_several_messages_takes_one_line() -> None:
    alike = (
        Caveat("incomplete", "trace: it was cut"),
        Caveat("incomplete", "kernels: no room"),
        Caveat("scatter", "steps scatter " * 9, "give --steps more"),
    )
    run = run_of(replace(region(), caveats=alike), (operator("aten::mm", "8×8 bf16", 30e-3),))
    lines = render_profile(run, "table").splitlines()
    assert "incomplete: trace: it was cut (and 1 more)" in lines
    assert "scatter: give --steps more" in lines  # the message does not fit


def test_each_other_region_is_a_row_of_its_own() -> None:
    short = replace(region(step_s=1e-3, busy_s=0.5e-3), region="loss")
    run = run_of(region(), (operator("aten::mm", "8×8 bf16", 30e-3),))
    text = render_profile(replace(run, records=(short, *run.records)), "table")
    assert text.startswith("step of train.py")
    (row,) = (line for line in text.splitlines() if line.startswith("loss "))
    assert row.split()[1:5] == ["1.000", "ms", "50.0", "%"]


def test_the_columns_that_are_named_are_those_of_the_whole_table() -> None:
    run = read_run(run_file("h200-profile-eager"))
    text = render_profile(run, "table", columns=("largest loss", "FLOPs"))
    head = next(line for line in text.splitlines() if line.startswith("operator"))
    assert head.split() == ["operator", "largest", "loss", "FLOPs"]
    assert "extra bytes × 0.50" in text
    every = render_profile(run, "table", "kernels", columns=("all",))
    assert "tensor pipe" in every
    with pytest.raises(UnknownName, match="no column 'flop'"):
        render_profile(run, "table", columns=("flop",))


def test_a_strangers_names_stay_names_in_a_first_look() -> None:
    run = training()
    records = [
        replace(r, case=replace(r.case, op=HOSTILE, implementation=HOSTILE)) for r in run.records
    ]
    text = render_profile(replace(run, records=tuple(records)), "table")
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
