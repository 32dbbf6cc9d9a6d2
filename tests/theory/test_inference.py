"""Run `gpuperf theory inference`, and hold its rows against hand counts and published figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, assert_refused
from synthetic import h200_device, header

from gpuperf.model.codec import encode
from gpuperf.model.contract import Contract
from gpuperf.model.record import Record
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.peaks.find import find_device
from gpuperf.theory.decoding import accepted_tokens, attention_seconds, decode_attention
from gpuperf.theory.inference import THEORY
from gpuperf.theory.theory import Chip, values_of
from gpuperf.theory.transformer.find import find_model
from gpuperf.theory.transformer.operators import operators
from gpuperf.theory.transformer.parts import CHUNKS, GQA, MEMORY, PREFILL, SPECULATION
from gpuperf.theory.transformer.setting import setting_of
from gpuperf.theory.transformer.step import (
    Formats,
    Roofs,
    Steps,
    elementwise_elements,
    formats_of,
    gpus_that_fit,
    kv_bytes_per_token,
    read_bytes,
    roofs_of,
    tokens_that_fit,
    weight_bytes,
)
from gpuperf.theory.transformer.strategy import chunked_prefill, speculation

H200 = Chip(find_device("h200-sxm"))
MEASURED = Roofs(4.29e12, 800e12, 800e12)  # the roofs of the notes' tables
LLAMA = find_model("llama-3-8b")


def steps_of(name: str, formats: Formats | None = None, roofs: Roofs = MEASURED) -> Steps:
    return Steps(find_model(name), formats or Formats(), roofs)


def rows_of(part: Any, **given: str) -> list[dict[str, Any]]:
    at = values_of(THEORY, given)
    keys = [quantity.key for quantity in part.quantities]
    return [dict(zip(keys, row, strict=True)) for row in part.rows(at, H200)]


@pytest.mark.parametrize(
    ("name", "read_gb", "kv_bytes", "floor_ms", "equal_k", "prefill_ms", "share"),
    [
        ("gpt2", 0.247, 36_864, 0.058, 6.7, (0.53, 3.3), (0.18, 0.47)),
        ("gpt2-medium", 0.707, 98_304, 0.165, 7.2, (1.8, 10.3), (0.14, 0.40)),
        ("llama-2-7b", 13.21, 524_288, 3.08, 25.2, (34.5, 154.6), (0.04, 0.14)),
        ("llama-3-8b", 15.01, 131_072, 3.50, 114.5, (37.1, 164.9), (0.04, 0.13)),
        ("llama-3-70b", 139.0, 327_680, 32.4, 424, (357, 1512), (0.02, 0.07)),
    ],
)
def test_the_models_of_the_notes_have_the_notes_figures(
    name: str,
    read_gb: float,
    kv_bytes: int,
    floor_ms: float,
    equal_k: float,
    prefill_ms: tuple[float, float],
    share: tuple[float, float],
) -> None:
    """The notes add no head to a prefill; here one row of it is a memory-bound operator."""
    steps = steps_of(name)
    model, formats = steps.model, steps.formats
    assert read_bytes(model, formats) / 1e9 == pytest.approx(read_gb, rel=0.003)
    assert kv_bytes_per_token(model, formats) == kv_bytes
    assert steps.decode_s(1, 0) * 1e3 == pytest.approx(floor_ms, rel=0.008)
    assert read_bytes(model, formats) / kv_bytes / 1e3 == pytest.approx(equal_k, rel=0.005)
    head_s = steps.linear_s(model.linears[-1], 1)
    for tokens, expected, part in zip((2048, 8192), prefill_ms, share, strict=True):
        without = steps.prefill_s(tokens) - head_s
        assert without * 1e3 == pytest.approx(expected, rel=0.01)
        assert steps.prefill_attention_s(tokens) / without == pytest.approx(part, abs=0.0051)


def test_activations_are_those_of_the_notes_and_of_a_count_of_tensors() -> None:
    """14·d + (H + 2·K)·D + 2·(H + K)·D + 3·H·D + 6·F elements: linears and attention move some."""
    d, f, h, k, head = 4096, 14336, 32, 8, 128
    whole = 14 * d + (h + 2 * k) * head + 2 * (h + k) * head + 3 * h * head + 6 * f
    assert 2 * 32 * whole / 1e6 == pytest.approx(11.0, abs=0.05)
    linears = (d + (h + 2 * k) * head) + (h * head + d) + (d + 2 * f) + (f + d)
    assert elementwise_elements(LLAMA) == whole - linears - 2 * h * head  # of q and the result
    steps = Steps(LLAMA, Formats(), MEASURED, unfused=True)
    extra = steps.prefill_s(2048) - steps_of("llama-3-8b").prefill_s(2048)
    assert extra == pytest.approx(2 * 32 * elementwise_elements(LLAMA) * 2048 / 4.29e12)


def test_the_operators_of_a_pass_add_up_to_its_time() -> None:
    for name in ("gpt2", "llama-3-8b", "mixtral-8x7b"):
        steps = Steps(find_model(name), Formats(), replace(MEASURED, fixed_s=1e-4), unfused=True)
        listed = operators(steps, 8, 8 * 1000, ((300, 200),), queries=3)
        whole = steps.pass_s(8, 8 * 1000, ((300, 200),), queries=3)
        assert sum(op.seconds for op in listed) + 1e-4 == pytest.approx(whole, rel=1e-12)
        for op in listed:
            roof = max(op.flops / 800e12, op.bytes / 4.29e12)
            assert op.seconds == pytest.approx(roof)
            assert op.bound(4.29e12) == (
                "compute" if op.flops / 800e12 > roof / 2 else "memory"
            ) or (op.flops / 800e12 < roof)


def test_one_maximum_over_all_operators_would_be_too_short() -> None:
    steps = steps_of("llama-3-8b")
    listed = operators(steps, 512, 512 * 390)
    flops, moved = sum(op.flops for op in listed), sum(op.bytes for op in listed)
    one = max(flops / 800e12, moved / 4.29e12)
    assert 1.5 < steps.decode_s(512, 512 * 390) / one <= 2


def test_the_limits_of_decoding() -> None:
    steps = steps_of("llama-3-8b")
    weights_s = read_bytes(LLAMA, Formats()) / 4.29e12
    assert steps.decode_s(1, 0) == pytest.approx(weights_s, rel=1e-4)
    per_token = 2 * LLAMA.multiplied / 800e12 + 131072 * 1025 / 4.29e12
    assert steps.decode_s(65536, 65536 * 1024) / 65536 == pytest.approx(per_token, rel=1e-9)
    whole_group = replace(LLAMA, kv_heads=32)
    mha, gqa = decode_attention(4, 4000, 32, 32, 128), decode_attention(4, 4000, 32, 8, 128)
    assert mha[0] == gqa[0] and mha[1] == 4 * gqa[1]
    assert whole_group.group == 1
    assert kv_bytes_per_token(whole_group, Formats()) == 4 * 131_072
    flops, moved = decode_attention(7, 7 * 999, 32, 8, 128)
    assert flops / moved == pytest.approx(4)  # 2·G·k/c with G 4, k 1, c 2
    assert decode_attention(1, 10**6, 32, 8, 128, queries=3, size=1)[0] / (
        decode_attention(1, 10**6, 32, 8, 128, queries=3, size=1)[1]
    ) == pytest.approx(2 * 4 * 3, rel=1e-4)


@pytest.mark.parametrize(
    ("weights", "bits", "critical"),
    [("bf16", 16, 206), ("int8", 8, 103), ("int4", 4.125, 53), ("fp8", 8, 206)],
)
def test_quantized_weights_move_the_critical_tokens(
    weights: str, bits: float, critical: int
) -> None:
    """The 206 tokens of bf16 halve with weight-only formats, and stay with fp8 arithmetic."""
    formats = Formats(weights)
    layers = LLAMA.multiplied - LLAMA.linears[-1].parameters
    kept = 2 * 2 * 128256 * 4096 + 2 * 65 * 4096  # head, embedding and norms in 16 bits
    assert weight_bytes(LLAMA, formats) == layers * bits / 8 + kept
    (row,) = rows_of(MEMORY, weights=weights)
    assert row["critical_tokens"] == critical
    steps = Steps(LLAMA, formats, roofs_of(H200, formats))
    up = LLAMA.linears[2]
    assert steps.linear_s(up, critical - 1) == steps.linear_s(up, 1)
    assert steps.linear_s(up, critical + 2) > steps.linear_s(up, 1)
    assert steps.linear_s(up, 4096) == pytest.approx(
        up.flops(4096) / (1978.9e12 if weights == "fp8" else 989.4e12)
    )


def test_what_fits_and_how_many_devices_would() -> None:
    assert tokens_that_fit(LLAMA, Formats(), 141e9) == (126_900_000_000 - 16_060_522_496) // 131_072
    big = find_model("llama-3-70b")
    assert tokens_that_fit(big, Formats(), 141e9) < 0
    assert gpus_that_fit(big, Formats(), 141e9, 0) == 2
    assert gpus_that_fit(big, Formats(), 141e9, 400_000) == 3  # 141.1 + 131.1 GB over 126.9
    assert gpus_that_fit(LLAMA, Formats(), 141e9, 0) == 1
    at = values_of(THEORY, {"model": "llama-3-70b"})
    (said,) = THEORY.remarks(at, H200)
    assert said.startswith("the weights (141 GB) do not fit one NVIDIA H200 SXM (127 GB")
    assert "2 would hold them" in said
    assert rows_of(MEMORY, model="llama-3-70b")[0]["tokens_that_fit"] == 0
    assert list(THEORY.remarks(values_of(THEORY, {"weights": "int4"}), H200)) == []
    (short,) = THEORY.remarks(values_of(THEORY, {"model": "gpt2"}), H200)
    assert "1,024 positions" in short


@pytest.mark.parametrize(
    ("acceptance", "tokens"),
    [
        (0.6, (1.60, 1.96, 2.18, 2.31, 2.38, 2.47)),
        (0.7, (1.70, 2.19, 2.53, 2.77, 2.94, 3.20)),
        (0.8, (1.80, 2.44, 2.95, 3.36, 3.69, 4.33)),
        (0.9, (1.90, 2.71, 3.44, 4.10, 4.69, 6.13)),
    ],
)
def test_the_tokens_of_a_round_of_speculation(acceptance: float, tokens: tuple[float, ...]) -> None:
    for drafts, expected in zip((1, 2, 3, 4, 5, 8), tokens, strict=True):
        assert accepted_tokens(acceptance, drafts) == pytest.approx(expected, abs=0.0051)
    assert (accepted_tokens(1, 4), accepted_tokens(0, 4), accepted_tokens(0.5, 0)) == (5, 1, 1)


def test_speculation_gains_until_the_verified_tokens_bind() -> None:
    steps = steps_of("llama-3-8b")
    alone = speculation(steps, None, (1, 1024), 4, 0.7)
    assert alone.gain == pytest.approx(2.77, rel=0.002)
    assert speculation(steps, None, (1, 1024), 0, 0.7).gain == 1
    draft = steps_of("llama-3.2-1b")
    known = speculation(steps, draft, (1, 1024), 4, 0.7)
    drafts_s = 4 * draft.decode_s(1, 1024)
    assert known.draft_s == drafts_s
    assert known.gain == pytest.approx(2.7731 * alone.plain_s / (drafts_s + alone.verify_s), 1e-4)
    crowded = speculation(steps, draft, (256, 16), 4, 0.7)
    assert crowded.gain < 1  # B(k + 1) is far beyond the critical tokens
    rows = rows_of(SPECULATION, draft="llama-3.2-1b", batch="1,40", drafts="2,4")
    assert [(row["batch"], row["drafts"]) for row in rows] == [(1, 2), (1, 4), (40, 2), (40, 4)]


def test_a_published_run_of_speculation_is_reproduced() -> None:
    """gpt-fast on an A100: 25.25 token/s alone, 48.4 with a draft: rounds of 59.9 ms and 2.90."""
    round_s = 39.6e-3 + 4 * 5.08e-3
    assert 48.4 * round_s == pytest.approx(2.90, rel=0.002)
    assert accepted_tokens(0.732, 4) == pytest.approx(2.95, abs=0.05)


def test_chunks_trade_the_first_token_for_the_time_between_tokens() -> None:
    steps = steps_of("llama-3-8b")
    whole = chunked_prefill(steps, 8192, 8192, 0, 0)
    assert (whole.passes, whole.first_s) == (1, pytest.approx(steps.prefill_s(8192)))
    for chunk, extra_ms in ((512, 8.9), (2048, 36), (8192, 143)):
        flops = sum(linear.flops(chunk) for linear in LLAMA.linears[:-1])
        assert flops / 800e12 * 1e3 == pytest.approx(extra_ms, rel=0.01)
    done = chunked_prefill(steps, 1000, 512, 8, 1024)
    first = steps.pass_s(8, 8 * 1024, ((512, 0),), 8)
    last = steps.pass_s(8, 8 * 1024, ((488, 512),), 9)
    assert (done.passes, done.between_s) == (2, max(first, last))
    assert done.first_s == pytest.approx(first + last)
    few, many = rows_of(CHUNKS, prompt="8k", chunk="256,8k")
    assert few["between_s"] < many["between_s"] and few["first_token_s"] > many["first_token_s"]
    assert rows_of(CHUNKS, prompt="100", chunk="256,512", running="0")[0]["of_decode"] is None


def test_more_heads_of_queries_cost_nothing_while_bytes_bind() -> None:
    """8 to 64 heads of queries at 8 of keys took the same time on an H200."""
    times = {
        attention_seconds(decode_attention(8, 8 * 4096, heads, 8, 128), 989.4e12, 4.8e12)
        for heads in (8, 16, 32, 64)
    }
    assert times == {2 * 8 * 128 * 2 * 8 * 4097 / 4.8e12}


def test_rows_of_prefill_and_of_heads() -> None:
    first, second = rows_of(PREFILL)
    assert first["mfu"] == pytest.approx(1, abs=0.01)
    assert second["attention_share"] > first["attention_share"]
    heads = rows_of(GQA)
    assert [row["kv_heads"] for row in heads if row["note"]] == [8]
    assert [row["intensity_flop_per_byte"] for row in heads] == [32, 16, 8, 4, 2, 1]
    assert heads[-1]["attention_s"] == pytest.approx(4 * heads[3]["attention_s"])


def test_the_dtype_of_a_device_without_bf16_is_fp16() -> None:
    v100 = Chip(find_device("v100-sxm2"))
    assert formats_of(v100).weights == "fp16"
    assert roofs_of(v100, formats_of(v100, "int4")).linear_rate == v100.rate("fp16")
    with pytest.raises(ValueError, match="no format"):
        Formats("int3")


def measured_run(folder: Path, linear_factor: float = 2.0, device: str = "NVIDIA H200") -> str:
    """Write a run of `linear` and `decode` whose times are *linear_factor* and 4 roofs."""
    top = header(h200_device(), Contract("blocked"), find_device("h200-sxm"))
    top = replace(top, device=replace(top.device, name=device))
    roofs = roofs_of(H200, Formats())
    records = []

    def add(op: str, time_s: float, **point: Any) -> None:
        for implementation, slower in (("fast", 1.0), ("slow", 1.7)):
            case = Case(op, implementation, point)
            times = {"window": Samples((time_s * slower,) * 3)}
            records.append(Record(top.run, case, top.contract, "ok", times=times, primary="window"))

    for n, k in ((28672, 4096), (4096, 14336), (6144, 4096), (4096, 4096)):
        for m in (1, 16, 256, 4096):
            roof = max(2 * m * n * k / roofs.rate, 2 * n * k / roofs.bandwidth)
            add("linear", linear_factor * roof, m=m, n=n, k=k, dtype="bf16")
    for batch in (1, 64):
        for kv in (1024, 16384):
            flops, moved = decode_attention(batch, batch * kv, 32, 8, 128)
            roof = max(flops / roofs.rate, moved / roofs.bandwidth)
            add("decode", 4 * roof, batch=batch, kv=kv, heads=32, gqa=4, head_dim=128, dtype="bf16")
    add("decode", 1.0, batch=1, kv=0, heads=32, head_dim=128, dtype="bf16")  # has no cache
    add("linear", 1.0, m=1, n="many", k=2, dtype="bf16")
    path = folder / f"measured-{device[-4:]}.jsonl"
    path.write_bytes(b"\n".join([encode(top), *map(encode, records)]) + b"\n")
    return str(path)


def test_measured_times_replace_the_roofs(tmp_path: Path) -> None:
    path = measured_run(tmp_path)
    plain = setting_of(values_of(THEORY, {}), H200).steps
    at = values_of(THEORY, {"measured": path})
    steps = setting_of(at, H200).steps
    layer = LLAMA.linears[2]
    for tokens in (1, 16, 50, 256, 4096):  # 50 is between measured sizes
        assert steps.linear_s(layer, tokens) == pytest.approx(2 * plain.linear_s(layer, tokens))
    for batch, context in ((1, 1024), (8, 5000), (64, 16384)):
        known = steps.measured_decode(batch, batch * context)
        assert known is not None and known.beyond == ""
        expected = 4 * plain.decode_attention_s(batch, batch * context)
        assert steps.decode_attention_s(batch, batch * context) == pytest.approx(expected)
    origins = {op.name: op.origin for op in operators(steps, 8, 8 * 2048)}
    assert origins == {
        **dict.fromkeys(
            ("q, k, v", "attention", "attention output", "gate, up", "down"), "measured"
        ),
        "head": "extrapolated",  # 128,256 × 4,096 is larger than any measured layer
    }
    far = steps.measured_decode(256, 256 * 64)
    assert far is not None and far.beyond == "decode of 256 × 64 tokens, 8 heads of 128"
    assert far.seconds * 32 == pytest.approx(4 * plain.decode_attention_s(256, 256 * 64), rel=1e-3)
    said = " ".join(THEORY.remarks(at, H200))
    assert "extrapolated beyond the measured sizes" in said
    assert "linear with m 1, k 4,096, n 128,256, bf16" in said


def test_times_of_another_format_or_device_are_not_taken_unsaid(tmp_path: Path) -> None:
    path = measured_run(tmp_path, device="NVIDIA H100")
    int4 = values_of(THEORY, {"measured": path, "weights": "int4", "kv": "fp8"})
    steps = setting_of(int4, H200).steps
    origins = {op.origin for op in operators(steps, 8, 8 * 2048) if op.name != "head"}
    assert origins == {"roofs"}
    assert "times were measured on NVIDIA H100 (132 SMs)" in " ".join(THEORY.remarks(int4, H200))


def test_ratios_between_measured_sizes_are_interpolated_in_the_logarithm(tmp_path: Path) -> None:
    """Times of twice the roof at one size and of eight at another are four times between them."""
    slow, fast = measured_run(tmp_path, 8.0, "NVIDIA slow"), measured_run(tmp_path, 2.0)
    lines = Path(slow).read_text().splitlines()
    kept = [line for line in lines if '"m":256,' in line or '"type":"header"' in line]
    less = [line for line in Path(fast).read_text().splitlines() if '"m":256,' not in line]
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text("\n".join([*less, *kept[1:]]) + "\n")
    steps = setting_of(values_of(THEORY, {"measured": str(mixed)}), H200).steps
    plain = setting_of(values_of(THEORY, {}), H200).steps
    layer = LLAMA.linears[2]
    assert steps.linear_s(layer, 64) / plain.linear_s(layer, 64) == pytest.approx(4)


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)  # no theory needs the catalogue


def test_the_rows_of_all_tables_name_their_table(command: CommandLine) -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "n_positions": 99}
    (command.folder / "config.json").write_text(json.dumps({**config, "vocab_size": 100}))
    words = ("theory", "inference", "--model", "./config.json", "--batch", "1,2")
    rows = json.loads(command.within(*words, "--format", "json").out)
    tables = [part.name for part in THEORY.parts]
    assert list(dict.fromkeys(row["table"] for row in rows)) == ["inference", *tables]
    lines = command.within(*words, "--format", "csv").out.splitlines()
    assert len(lines) == len(rows) + 1
    assert {*rows[0], *rows[-1]} <= {*lines[0].split(",")}
    assert "measured" in command.within("theory", "inference", "--help").out


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (
            ("--model", "llama-3-8"),
            "no model 'llama-3-8'; did you mean 'llama-3-8b'",
            "config.json",
        ),
        (("--model", "no/config.json"), "there is no file 'no/config.json'", "config.json"),
        (("--model", "bad.json"), "bad.json lacks the field hidden_size", "decoder-only"),
        (("--weights", "int4", "--group", "100"), "groups of 100 weights do not divide", "4096"),
        (("--weights", "fp8", "--device", "v100-sxm2"), "no known rate of fp8", "--weights fp16"),
        (("--acceptance", "1.5"), "--acceptance 1.5 is over 1", "--acceptance 1"),
        (("--acceptance", "nan"), "'nan' is not a number", "--acceptance 0.7"),
        (("--fixed-us", "-1"), "--fixed-us -1 is below 0", "--fixed-us 0"),
        (("--batch", "0"), "--batch: 0 in '0' is below 1", "--batch 1"),
        (("--context", "10M,100M"), "is over 16777216", "--context 16777216"),
        (("--measured", "none.jsonl"), "none.jsonl", ""),
        (("--measured", "other.jsonl"), "has no times of linear or decode", "measure"),
        (("--draft", "x"), "no model 'x'", "config.json"),
    ],
)
def test_bad_input_is_one_sentence_and_a_hint(
    command: CommandLine, words: tuple[str, ...], sentence: str, hint: str
) -> None:
    (command.folder / "bad.json").write_text("{}")
    top = header(h200_device(), Contract("blocked"), find_device("h200-sxm"))
    (command.folder / "other.jsonl").write_bytes(encode(top) + b"\n")
    assert_refused(command.within("theory", "inference", *words), 2, sentence, hint)
