"""Are ranks compared call by call, and is the one that comes last named only if it is one?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_kineto import Trace, comms
from synthetic_profile import EVENTS, region, run_of

from gpuperf.model.collective import Collective, Message
from gpuperf.model.program import PassResult
from gpuperf.model.record import Record, Run
from gpuperf.model.samples import Samples
from gpuperf.profile.breakdown import Profile, profiles
from gpuperf.profile.findings import findings
from gpuperf.profile.passes import RegionPasses
from gpuperf.profile.ranks.study import Together, together
from gpuperf.profile.ranks.table import together_tables, together_values, waiting_share
from gpuperf.profile.records import region_records
from gpuperf.profile.summary import part_text
from gpuperf.profile.trace.kineto import read_trace
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE

US, MS = 1000, 1e-3  # nanoseconds, seconds
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP_S = 100 * MS
BUCKET = Message("all_reduce", 2**20, "fp32", 2, "0")


def ranked(
    rank: int,
    *steps: tuple[float, ...],
    message: Message = BUCKET,
    first: int = 15,
    world: int = 2,
    compute_s: float = 60 * MS,
    exposed: float = 1.0,
    idle_s: float = 0.0,
) -> Record:
    """A rank whose calls of *message* took so long in each traced step; of that the share *exposed*
    was not hidden. For *idle_s* seconds its GPU waited for the host."""
    whole = sum(map(sum, steps)) / len(steps)
    seconds = {"busy": 90 * MS, "compute": compute_s, "communication": whole}
    begins = tuple(tuple(number + i / 10 for i in range(len(s))) for number, s in enumerate(steps))
    own = Collective(message, "nccl", steps, exposed * whole, begins)
    record = region(
        step_s=STEP_S,
        occupied={**seconds, "exposed": exposed * whole, "idle_host": idle_s},
        collectives=(own,),
        first={"trace": first},
        steps={"plain": 10, "trace": len(steps)},
        backend="nccl",
    )
    traced = {**record.times, "traced": Samples((STEP_S,))}
    return replace(record, rank=rank, world=world, times=traced)


def compared(*records: Record) -> Together:
    return together(records, {record.rank: STEP_S for record in records})


def profile_of(*records: Record) -> tuple[Profile, Run]:
    run = run_of(records[0], records[1:])
    run = replace(run, header=replace(run.header, world=len(records)))
    return profiles(run)[0], run


def communicating(profile: Profile, seconds: float) -> Profile:
    """*profile*, of whose plain step so many seconds are communication."""
    return replace(profile, parts={**profile.parts, "communication": seconds})


def test_the_rank_whose_own_collectives_are_shortest_came_last() -> None:
    study = compared(
        ranked(0, (30 * MS, 2 * MS), (31 * MS, 2 * MS), (30 * MS, 2 * MS)),
        ranked(1, (10 * MS, 2 * MS), (10 * MS, 2 * MS), (11 * MS, 2 * MS)),
    )
    assert study.straggler == 1
    assert study.late_s == pytest.approx(20 * MS, rel=0.01)
    assert [row.waiting_s for row in study.rows] == [pytest.approx(20 * MS, rel=0.01), 0.0]
    (row,) = study.collectives
    assert row.last_s == pytest.approx((31 / 3 + 2) / 2 * MS)  # nobody's waiting is in the rate
    assert row.collective.busbw(row.call_s) == pytest.approx(2**20 / row.call_s)


def test_a_rank_that_waits_in_two_collectives_at_once_waits_once() -> None:
    first = ranked(0, *((30 * MS, 30 * MS),) * 3)
    second = ranked(1, *((10 * MS, 10 * MS),) * 3)
    assert first.program is not None
    (own,) = first.program.collectives
    at_once = replace(own, starts=((0.0, 0.0), (1.0, 1.0), (2.0, 2.0)))
    first = replace(first, program=replace(first.program, collectives=(at_once,)))
    assert compared(first, second).late_s == pytest.approx(20 * MS)


def test_ranks_that_come_last_in_turns_have_no_straggler() -> None:
    study = compared(
        ranked(0, (30 * MS,), (10 * MS,), (30 * MS,), (10 * MS,)),
        ranked(1, (10 * MS,), (30 * MS,), (10 * MS,), (31 * MS,)),
    )
    assert study.straggler is None
    assert study.rows[0].waiting_s == pytest.approx(10 * MS)  # both wait, for each other


def test_one_late_step_is_within_the_noise() -> None:
    study = compared(
        ranked(0, (60 * MS,), (10 * MS,), (10 * MS,), (10 * MS,), (10 * MS,)),
        ranked(1, (10 * MS,), (10 * MS,), (10 * MS,), (10 * MS,), (10 * MS,)),
    )
    assert study.straggler is None


def test_a_rank_that_is_hardly_late_is_no_straggler() -> None:
    steps = ((11 * MS,),) * 5
    assert compared(ranked(0, *steps), ranked(1, *((10 * MS,),) * 5)).straggler is None


def test_only_steps_that_all_ranks_traced_are_compared() -> None:
    study = compared(
        ranked(0, (90 * MS,), (30 * MS,), (30 * MS,), first=10),
        ranked(1, (10 * MS,), (10 * MS,), (99 * MS,), first=11),
    )
    assert study.steps == 2
    assert study.rows[0].waiting_s == pytest.approx(20 * MS)
    apart = compared(ranked(0, (9 * MS,), first=3), ranked(1, (1 * MS,), first=7))
    assert apart.steps == 0 and "no step was traced" in apart.doubt
    assert apart.rows[0].waiting_s is None


def test_ranks_of_a_program_without_marks_are_not_compared() -> None:
    records = [ranked(rank, (9 * MS,), (9 * MS,)) for rank in (0, 1)]
    unmarked = [
        replace(record, program=replace(record.program, steps={"trace": 2}))  # type: ignore[type-var]
        for record in records
    ]
    study = compared(*unmarked)
    assert study.steps == 0 and "call gpuperf.step()" in study.doubt


def test_calls_of_different_numbers_are_not_compared() -> None:
    study = compared(ranked(0, (9 * MS, 9 * MS)), ranked(1, (5 * MS,)))
    assert "different calls of all_reduce" in study.doubt
    assert (study.steps, study.straggler) == (0, None)


def test_a_broadcast_makes_its_root_wait_for_nobody() -> None:
    sent = replace(BUCKET, name="broadcast")
    study = compared(
        ranked(0, (1 * MS,), (1 * MS,), message=sent),
        ranked(1, (30 * MS,), (30 * MS,), message=sent),
    )
    assert (study.steps, study.straggler) == (0, None)


def test_groups_of_one_size_are_compared_by_themselves() -> None:
    one, other = (replace(BUCKET, group=name) for name in ("[0, 1]", "[2, 3]"))
    study = compared(
        ranked(0, (30 * MS,), (30 * MS,), message=one, world=4),
        ranked(1, (10 * MS,), (10 * MS,), message=one, world=4),
        ranked(2, (50 * MS,), (50 * MS,), message=other, world=4),
        ranked(3, (50 * MS,), (50 * MS,), message=other, world=4),
    )
    assert [row.waiting_s for row in study.rows] == pytest.approx([20 * MS, 0, 0, 0])
    assert study.straggler is None  # two ranks wait for rank 1, and no other does


def test_a_group_with_a_missing_rank_is_not_compared() -> None:
    of_three = replace(BUCKET, ranks=3)
    study = compared(ranked(0, (3 * MS,), message=of_three), ranked(1, (1 * MS,), message=of_three))
    assert study.steps == 0 and "missing" in study.doubt


def test_the_report_names_the_straggler_and_what_it_costs() -> None:
    profile, run = profile_of(
        ranked(0, *((30 * MS,),) * 5), ranked(1, *((10 * MS,),) * 5, compute_s=80 * MS)
    )
    text = "\n".join(render([table], "table", WIDE) for table in together_tables(profile))
    assert "straggler: every other rank waits 20.00 ms of a traced step of 100.0 ms for it" in text
    assert "105 MB/s" in text  # busbw of two ranks: 2^20 bytes in the 10 ms of the last rank
    titles = [gain.title for gain in findings(profile, run.header)]
    assert titles[0] == "find out why rank 1 is late: its data, its host, its clocks"
    assert any(title.startswith("overlap communication with compute") for title in titles)


def test_a_step_that_makes_the_mean_of_the_waiting_is_named_with_what_it_changes() -> None:
    """As two ranks whose profilers begin 50 ms apart: 51 ms in the first step, 1 ms in others."""
    first, others = (51 * MS,), ((2 * MS,),) * 4
    profile, _ = profile_of(ranked(0, first, *others), ranked(1, *((1 * MS,),) * 5))
    assert profile.together is not None
    lone = profile.together.lone
    assert lone is not None
    assert (lone.rank, lone.step) == (0, 1)
    assert (lone.seconds, lone.usual_s) == (pytest.approx(50 * MS), pytest.approx(1 * MS))
    text = "\n".join(render([table], "table", WIDE) for table in together_tables(profile))
    assert "beyond the noise between steps: one step has most of the waiting" in text
    assert "rank 0 waited 50.00 ms in traced step 1 of 5, perhaps as each rank starts" in text
    assert "but the means here contain it" in " ".join(text.split())
    other, _ = profile_of(ranked(0, *((1 * MS,),) * 5), ranked(1, first, *others))
    text = "\n".join(render([table], "table", WIDE) for table in together_tables(other))
    assert "rank 1 waited 50.00 ms" in text
    assert together_values(profile.together)["lone"]["step"] == 1  # type: ignore[index]
    own = communicating(profile, (51 + 4 * 2) / 5 * MS)
    assert "(92 % of it waits for other ranks)" in part_text(own, "communication", 0.5)
    assert part_text(profile, "compute-bound", 0.5) == "compute-bound 50.0 %"


@pytest.mark.parametrize(("exposed", "share"), [(1.0, 20 / 30), (0.8, (20 - 6) / 24), (0.3, 0.0)])
def test_the_share_that_waits_is_at_least_what_hidden_communication_leaves(
    exposed: float, share: float
) -> None:
    """Of 30 ms, 20 are waiting; the rest may be what compute does not hide."""
    profile, _ = profile_of(
        ranked(0, *((30 * MS,),) * 5, exposed=exposed), ranked(1, *((10 * MS,),) * 5)
    )
    assert waiting_share(communicating(profile, exposed * 30 * MS)) == pytest.approx(share)
    assert waiting_share(communicating(profile, 0.0)) == 0.0
    # The plain step waited 4 ms less.
    less = max(0.0, share * exposed * 30 - 4) / (exposed * 30 - 4)
    assert waiting_share(communicating(profile, (exposed * 30 - 4) * MS)) == pytest.approx(less)


def test_waiting_in_every_step_or_hardly_any_is_of_no_lone_step() -> None:
    steady = compared(ranked(0, *((30 * MS,),) * 5), ranked(1, *((10 * MS,),) * 5))
    little = compared(ranked(0, (3 * MS,), *((1 * MS,),) * 4), ranked(1, *((1 * MS,),) * 5))
    assert (steady.lone, little.lone) == (None, None)
    profile, _ = profile_of(ranked(0, *((11 * MS,),) * 5), ranked(1, *((10 * MS,),) * 5))
    assert part_text(profile, "communication", 0.5) == "communication 50.0 %"


@pytest.mark.parametrize(("exposed_s", "listed"), [(1.2 * MS, True), (0.8 * MS, False)])
def test_communication_of_one_percent_of_the_step_is_worth_a_finding(
    exposed_s: float, listed: bool
) -> None:
    ranks = (ranked(rank, *((exposed_s,),) * 5, compute_s=50 * MS) for rank in (0, 1))
    profile, run = profile_of(*ranks)
    profile = replace(profile, step_s=100 * MS)
    titles = [gain.title for gain in findings(profile, run.header)]
    assert any(title.startswith("overlap communication") for title in titles) == listed


def test_hiding_gains_what_the_rank_with_the_least_exposes() -> None:
    profile, run = profile_of(ranked(0, *((30 * MS,),) * 5), ranked(1, *((10 * MS,),) * 5))
    gains = {gain.title.split(" ")[0]: gain for gain in findings(profile, run.header)}
    assert gains["overlap"].gain_s == pytest.approx(10 * MS)
    assert gains["find"].gain_s == pytest.approx(20 * MS)


def gains_of(*records: Record) -> dict[str, float]:
    profile, run = profile_of(*records)
    return {gain.title.split(":")[0]: gain.gain_s for gain in findings(profile, run.header)}


def test_hiding_does_not_gain_what_ranks_wait_for_each_other_in_turn() -> None:
    first = ranked(0, (30 * MS,), (10 * MS,), (30 * MS,), (10 * MS,))
    second = ranked(1, (10 * MS,), (30 * MS,), (10 * MS,), (31 * MS,))
    gains = gains_of(first, second)
    hidden_s = gains["overlap communication with compute"]
    assert hidden_s == pytest.approx(10 * MS)  # of the 20 that each exposes
    assert not any(title.startswith("find") for title in gains)


LATE = "launch less, as ranks wait for late hosts, most for that of rank {}"


@pytest.mark.parametrize(
    ("idle_s", "compute_s", "gain_s"),
    [(20 * MS, 40 * MS, 20 * MS), (60 * MS, 40 * MS, 30 * MS), (30 * MS, 80 * MS, 10 * MS)],
    ids=["all of its idle time", "what the other waits", "down to the work"],
)
def test_a_late_host_of_another_rank_costs_its_idle_time(
    idle_s: float, compute_s: float, gain_s: float
) -> None:
    """Ranks work for 10 ms of a collective beside their compute, in a step of 100 ms."""
    waits = ranked(0, *((40 * MS,),) * 5, compute_s=compute_s)
    late = ranked(1, *((10 * MS,),) * 5, compute_s=compute_s, idle_s=idle_s)
    assert gains_of(waits, late)[LATE.format(1)] == pytest.approx(gain_s)
    # Idle time of the rank that reports is that of a program of one process.
    assert LATE.format(0) not in gains_of(replace(late, rank=0), replace(waits, rank=1))


def test_a_host_for_which_no_rank_waits_is_not_late() -> None:
    alike = (ranked(rank, *((10 * MS,),) * 5, idle_s=(30 + rank) * MS) for rank in (0, 1))
    assert LATE.format(1) not in gains_of(*alike)
    slow = ranked(0, *((10 * MS,),) * 5, compute_s=50 * MS)  # rank 1 waits for its compute
    assert LATE.format(1) not in gains_of(slow, ranked(1, *((12 * MS,),) * 5, idle_s=30 * MS))
    once = ranked(0, (160 * MS,), *((10 * MS,),) * 4)
    assert LATE.format(1) not in gains_of(once, ranked(1, *((10 * MS,),) * 5, idle_s=30 * MS))


def test_a_rank_that_waits_for_data_is_not_told_to_launch_less() -> None:
    late = ranked(1, *((10 * MS,),) * 5, compute_s=40 * MS, idle_s=20 * MS)
    assert late.program is not None
    late = replace(late, program=replace(late.program, data_s=15 * MS))
    gains = gains_of(ranked(0, *((40 * MS,),) * 5, compute_s=40 * MS), late)
    assert gains[LATE.format(1)] == pytest.approx(5 * MS)


@settings(max_examples=200, deadline=None)
@given(
    calls=st.lists(st.tuples(st.floats(1e-4, 0.09), st.floats(1e-4, 0.09)), min_size=2, max_size=6),
    compute_s=st.floats(0, 0.1),
    exposed=st.floats(0, 1),
    idle=st.tuples(st.floats(0, 0.1), st.floats(0, 0.1)),
)
def test_no_gain_exceeds_what_it_removes(
    calls: list[tuple[float, float]], compute_s: float, exposed: float, idle: tuple[float, float]
) -> None:
    more = {"compute_s": compute_s, "exposed": exposed}
    profile, run = profile_of(
        *(
            ranked(rank, *((call[rank],) for call in calls), idle_s=idle[rank], **more)  # type: ignore[arg-type]
            for rank in (0, 1)
        )
    )
    assert profile.together is not None
    least = min(row.exposed_s or 0.0 for row in profile.together.rows)
    longest = max(row.communication_s or 0.0 for row in profile.together.rows)
    for gain in findings(profile, run.header):
        if gain.title.startswith("overlap"):
            assert gain.gain_s <= least + 1e-12
            assert gain.gain_s <= STEP_S - max(compute_s, longest) + 1e-12
        if gain.title.startswith("launch less, as ranks"):
            waits_s = profile.together.rows[0].waiting_s or 0.0
            assert gain.gain_s <= min(idle[1], STEP_S - compute_s, waits_s) + 1e-12
        if gain.title.startswith("find out"):
            assert gain.gain_s <= max(row.exposed_s or 0.0 for row in profile.together.rows) + 1e-12


def traced(rank: int, folder: Path, late: int) -> Record:
    """The record of a rank from a trace of three steps of 300 µs: a matmul of 100 µs, and an
    all-reduce that ends at 200 µs and begins *late* µs after the launch."""
    trace = Trace()
    for begin in (0, 300, 600):
        trace.mark("gpuperf:step", begin * US, (begin + 300) * US)
        trace.launch("gemm", (begin + 2) * US, (begin + 10) * US, (begin + 110) * US)
        same = comms("allreduce", 2**16, 2**16, "Float")
        trace.nccl(ALL_REDUCE, begin + 5, begin + 20 + late, begin + 200, **same)
    passes = (
        PassResult("step", "plain", 3, (290e-6,) * 3, 870e-6, backend="nccl"),
        PassResult("step", "trace", 3, first=8, backend="nccl"),
    )
    timeline = read_trace(trace.write(folder / f"{rank}.json"))
    taken = RegionPasses(
        "r", "step", "train.py", EVENTS, region().fingerprint, passes, timeline, cuda=True, device=0
    )
    whole, *_ = region_records(taken)
    return replace(whole, rank=rank, world=2, devices=(rank,))


def test_traces_of_two_ranks_give_exposed_time_busbw_and_the_straggler(tmp_path: Path) -> None:
    study = compared(traced(0, tmp_path, 0), traced(1, tmp_path, 110))
    first, second = study.rows
    assert first.communication_s == pytest.approx(180e-6)
    assert first.exposed_s == pytest.approx(90e-6)  # from 110 to 200
    assert second.exposed_s == pytest.approx(70e-6)  # from 130 to 200: it is all exposed
    assert first.compute_s == second.compute_s == pytest.approx(100e-6)
    assert first.waiting_s == pytest.approx(110e-6)
    assert (study.straggler, study.steps) == (1, 3)
    (row,) = study.collectives
    assert row.collective.message.bytes == 4 * 2**16
    assert row.collective.busbw(row.call_s) == pytest.approx(4 * 2**16 / 70e-6)
    assert [row.device for row in study.rows] == [0, 1]
