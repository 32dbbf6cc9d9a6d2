"""Run `gpuperf theory serve` with good and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, Ended, assert_refused

from gpuperf.errors import UsageError
from gpuperf.theory.serving import tracefile
from gpuperf.theory.serving.tracefile import MOST_BYTES, read_trace

HEAD = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
FEW = ("--requests", "100", "--batch", "4")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A folder of its own; no catalogue, since no command needs it."""
    return CommandLine(tmp_path_factory.mktemp("serve"))


def serve(command: CommandLine, *words: str) -> Ended:
    return command.within("theory", "serve", *words)


def rows(command: CommandLine, *words: str) -> list[dict[str, Any]]:
    ended = serve(command, *words, "--format", "json")
    assert ended.code == 0, ended.err
    listed: list[dict[str, Any]] = json.loads(ended.out)
    return listed


def test_policies_are_side_by_side_in_a_table_and_a_chart(command: CommandLine) -> None:
    words = ("--requests", "60", "--batch", "4", "--chart", "serve.png")
    ended = serve(command, *words)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("serve: What do static and in-flight batching")
    assert "NVIDIA H200 SXM · Llama 3 8B · weights bf16, 16.1 GB" in ended.out
    for text in ("static, padded", "static, ragged", "in-flight", "Little's law", "Source"):
        assert text in ended.out
    assert "60 requests are under 20 for each of 4 slots" in ended.out
    assert (command.folder / "serve.png").stat().st_size > 20_000


def test_rows_are_values_in_si_units(command: CommandLine) -> None:
    listed = rows(command, *FEW, "--rate", "closed,80%,3")
    assert [(row["policy"], row["rate"]) for row in listed[:4]] == [
        ("static, padded", "closed"),
        ("static, ragged", "closed"),
        ("in-flight", "closed"),
        ("static, padded", "80%"),
    ]
    closed = listed[2]
    assert closed["times_static_padded"] > listed[1]["times_static_padded"] > 1
    assert closed["ttft_p50_s"] < closed["ttft_p90_s"] < closed["ttft_p99_s"]
    assert closed["tbt_p50_s"] > 15.01e9 / 4.8e12  # a pass reads all weights
    for full, offered in zip(listed[:3], listed[3:6], strict=True):
        assert offered["load"] == pytest.approx(0.8)
        assert offered["arriving_per_s"] == pytest.approx(0.8 * full["requests_per_s"])
    assert listed[8]["arriving_per_s"] == 3
    for row in listed:
        assert abs(row["little_error"]) < 1e-9
        assert row["requests"] == 100
        assert 0 <= row["kv_wasted"] < 1
        assert row["kv_bytes"] <= row["kv_peak_bytes"] <= 111e9
    assert listed[:3] == rows(command, *FEW, "--rate", "closed")


def test_a_rate_above_the_capacity_is_doubted(command: CommandLine) -> None:
    ended = serve(
        command, "--requests", "200", "--batch", "2", "--policy", "inflight", "--rate", "150%"
    )
    assert "in-flight gets 150 % of its capacity at rate 150%" in ended.out
    assert "Caveat" in ended.out


def test_a_small_cache_preempts_and_a_prefix_is_shared(command: CommandLine) -> None:
    words = ("--policy", "inflight", "--rate", "closed", "--batch", "64", "--requests", "150")
    tight = ("--device", "rtx-4090", "--trace", "log-normal", "--prompt", "600", "--output", "900")
    (row,) = rows(command, *words, *tight)
    assert row["preemptions"] > 0
    assert row["recomputed_tokens"] > 0
    (shared,) = rows(command, *words, "--prefix", "1000")
    assert shared["kv_saved_by_sharing_bytes"] > 30 * 992 * 131_072
    assert "save" in serve(command, *words, "--prefix", "1000").out


def test_a_trace_file_keeps_its_order_and_its_times(command: CommandLine) -> None:
    lines = "".join(f"{i * 0.5},{100 + i},{10 + i % 7}\n" for i in range(60))
    (command.folder / "mine.csv").write_text(HEAD + lines)
    words = ("--trace", "mine.csv", "--batch", "2", "--policy", "inflight")
    (row,) = rows(command, *words, "--rate", "trace")
    assert row["arriving_per_s"] == pytest.approx(2)
    assert row["requests"] == 60
    (row,) = rows(command, *words, "--rate", "closed", "--requests", "10")
    assert row["requests"] == 10


def test_the_columns_of_the_azure_traces_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:47.6805900,374,44\n2023-11-16 18:15:46.1805900,10,2\n"
    )
    load = read_trace(path)
    assert load.arrival_s == pytest.approx([0, 1.5])
    assert (load.prompt, load.output) == ([10, 374], [2, 44])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD + "0,-5,3\n", "line 2 has the num_prefill_tokens '-5', which is not positive"),
        (HEAD + "-1,5,3\n", "line 2 has the arrived_at '-1', which is negative"),
        (HEAD + "0,5,3\n1,5\n", "line 3 has no num_decode_tokens"),
        (HEAD + "0,,3\n", "line 2 has no num_prefill_tokens"),
        (HEAD + "0,5,nan\n", "'nan', which is not a number"),
        (HEAD + "0,5,1e30\n", "which is over 16,777,216 tokens"),
        (HEAD + "inf,5,1\n", "'inf', which is not a number"),
        (HEAD + "0,5.5,1\n", "'5.5', which is not whole"),
        (HEAD + "0,5,1\n9e9,5,1\n", r"its arrivals span 9e\+09 s"),
        (HEAD, "it has no requests"),
        ("", "its header lacks arrived_at, num_prefill_tokens, num_decode_tokens"),
        ("arrived_at,tokens\n1,2\n", "its header lacks num_prefill_tokens, num_decode_tokens"),
        (HEAD + "0,5,\0\n", "which is not a number"),
        (b"\xff\xfe\x00", "it is not text"),
    ],
    ids=lambda value: str(value)[-30:].replace("\n", " ").replace("\0", "NUL"),
)
def test_a_bad_trace_is_one_sentence(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=sentence):
        read_trace(path)


def test_a_file_with_too_many_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracefile, "MOST_ROWS", 10)
    path = tmp_path / "long.csv"
    path.write_text(HEAD + "0,5,1\n" * 11)
    with pytest.raises(UsageError, match="it has over 10 requests"):
        read_trace(path)


def test_a_thousand_million_rows_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "endless.csv"
    with path.open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(UsageError, match=f"it is over {MOST_BYTES >> 20} MiB"):
        read_trace(path)


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (("--page", "0"), "--page: 0 in '0' is below 1", "--page 16"),
        (("--rate", "0"), "--rate 0 is not above 0", "closed"),
        (("--rate", "closed,-3"), "--rate -3 is not above 0", "closed"),
        (("--rate", "nan"), "--rate 'nan' is not a rate", "closed"),
        (("--rate", "1e12"), "--rate 1e12 is not from 0.001 to", "closed"),
        (("--rate", "0.0001%"), "--rate 0.0001% is not from 0.001", "closed"),
        (("--rate", "trace"), "--rate trace: conversation has no times", "trace file"),
        (("--trace", "conversatoin"), "did you mean 'conversation'", "FILE.csv"),
        (("--trace", "nowhere.csv"), "cannot read the trace 'nowhere.csv'", "header"),
        (("--output", "5"), "--output is a length for the traces uniform", "leave --output out"),
        (("--policy", "dynamic"), "no value of --policy 'dynamic'", "inflight"),
        (("--batch", "0"), "--batch: 0 in '0' is below 1", "--batch 32"),
        (("--modle", "x"), "no option '--modle'; did you mean '--model'", "--model"),
        (("--model", "llama-9"), "no model 'llama-9'", "llama-3-8b"),
        (("--chart", "a.gif"), "'.gif'", ".png"),
        (
            ("--device", "rtx-4090", "--prefix", "60000"),
            "a request of 60,[0-9]+ tokens need 2",
            "int4",
        ),
        (("--model", "llama-3-70b"), "weights of 141 GB and .* need 2 of NVIDIA H200", "int4"),
        (("--model", "llama-3.1-405b"), "does not fit: .* need 7 of NVIDIA H200", "int4"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_sentence_and_a_hint(
    command: CommandLine, words: tuple[str, ...], sentence: str, hint: str
) -> None:
    ended = serve(command, *words)
    assert_refused(ended, 2, sentence, hint)


def test_the_help_lists_the_options(command: CommandLine) -> None:
    out = " ".join(serve(command, "--help").out.split())
    assert "Parameters of serve, with their defaults: --model llama-3-8b" in out
    assert "--page 16 (tokens of a page of the cache)" in out
