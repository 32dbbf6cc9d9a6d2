"""Is what is no trace, or a broken one, refused in a sentence or read as far as it goes?"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_kineto import Trace

from gpuperf.errors import UsageError
from gpuperf.profile.trace import eventstream
from gpuperf.profile.trace.kineto import read_trace


def example_text() -> str:
    trace = Trace()
    trace.op("aten::é", 0, 100, Input_Dims=[[8]], Input_type=["float"])
    trace.launch("k", at=50, start=200, end=300)
    trace.op("aten::b", 200, 300)
    return trace.text()


def wrap(*events: str, more: str = "") -> str:
    return f'{{"traceEvents": [{", ".join(events)}]{more}}}'


KERNEL_EVENT = (
    '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 1, "args": %s}'
)
TIMED = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": %s, "dur": %s}'
NESTED = "[" * 100_000
BAD = {
    "empty": ("", "is empty"),
    "blank": (" \n" * 99, "is empty"),
    "text": ("hello", "is not JSON"),
    "binary": ("\x7fELF\x00\x00", "is not JSON"),
    "truncated-key": ('{"traceEv', "holds no traceEvents"),
    "object": ("{}", "holds no traceEvents"),
    "no-colon": ('{"a" 1}', "is not JSON: a key or its colon is missing"),
    "no-value": ('{"a": nope, "traceEvents": []}', "is not JSON: Expecting value"),
    "other-json": ('{"a": [1, 2], "b": null}', "holds no traceEvents"),
    "nsys": ('{"Type": 48, "Cuda": {"start": 1}}\n{"Type": 79}', "holds no traceEvents"),
    "legacy-list": ('[{"name": "add", "ph": "X", "ts": 1.5, "dur": 2}]', "is a bare list"),
    "no-list": ('{"traceEvents": {"a": 1}}', "is no list"),
    "no-events": (wrap(), "it has no whole event"),
    "tensorflow": (
        wrap('{"ph": "M", "pid": 1}', '{"ph": "X", "pid": 1, "ts": 1, "dur": 2, "name": "x"}'),
        "none of its 2 events is torch.profiler's",
    ),
    "chrome": (wrap('{"ph": "X", "cat": "toplevel", "ts": 1, "dur": 2}'), "none of its 1 events"),
    "numbers": (wrap("1", "2"), "event 1 cannot be true: it is not an object"),
    "nested-list": ('{"traceEvents": [' + NESTED, "event 1 of .* is nested too deep"),
    "nested-args": (wrap(KERNEL_EVENT % NESTED), "nested too deep"),
    "nested-beside": ('{"a": ' + NESTED, "'a' of .* is nested too deep"),
    "long-event": (wrap(KERNEL_EVENT % f'"{"x" * (33 << 20)}"'), "event 1 of .* longer than"),
    "many-keys": ("{" + '"a": 1, ' * 2000 + '"traceEvents": []}', "over 1000 keys"),
    "nan": (wrap(TIMED % ("NaN", 1)), r"event 1 \('k'\) cannot be true: its 'ts' is NaN"),
    "infinite": (wrap(TIMED % (1, "Infinity")), "its 'dur' is Infinity"),
    "negative-time": (wrap(TIMED % ("-0.001", 1)), "its 'ts' is -0.001"),
    "negative-length": (wrap(TIMED % (1, -1)), "its 'dur' is -1"),
    "huge": (wrap(TIMED % ("1e300", 1)), "its 'ts' is 1e300"),
    "huge-exponent": (wrap(TIMED % ("1e999999999", 1)), "its 'ts' is 1e9999"),
    "huge-whole": (wrap(TIMED % ("9" * 4000, 1)), "its 'ts' is 9999"),
    "endless-whole": (wrap(TIMED % ("9" * 9000, 1)), "not JSON at event 1: Exceeds the limit"),
    "no-time": (wrap('{"ph": "X", "cat": "kernel", "name": "k"}'), "its 'ts' is missing"),
    "time-list": (wrap(TIMED % ("[1]", 1)), r"its 'ts' is \[1\]"),
    "time-true": (wrap(TIMED % ("true", 1)), "its 'ts' is True"),
    "name-number": (wrap(TIMED.replace('"k"', "7") % (1, 1)), "its name is 7"),
    "args-list": (wrap(KERNEL_EVENT % "[1]"), r"its args are \[1\]"),
    "correlation": (wrap(KERNEL_EVENT % '{"correlation": "x"}'), "its 'correlation' is x"),
    "stream": (wrap(KERNEL_EVENT % '{"stream": [7]}'), r"its 'stream' is \[7\]"),
    "bytes": (wrap(KERNEL_EVENT % '{"bytes": -5}'), "its 'bytes' is -5"),
    "bytes-huge": (wrap(KERNEL_EVENT % ('{"bytes": 1' + "0" * 30 + "}")), "its 'bytes' is 10000"),
    "grid": (wrap(KERNEL_EVENT % '{"grid": "g", "block": [1, 1, 1]}'), "its 'grid' is g"),
    "grid-two": (wrap(KERNEL_EVENT % '{"grid": [1, 2], "block": 1}'), r"its 'grid' is \[1, 2"),
    "grid-below": (wrap(KERNEL_EVENT % '{"grid": [1, 2, -1], "block": [1, 1, 1]}'), "beyond what"),
    "device": (
        wrap(TIMED % (1, 1), more=', "deviceProperties": [{"numSms": -3}]'),
        "cannot be true: its 'numSms' is -3",
    ),
    "not-json-inside": (wrap('{"ph": "X" "cat": 1}', TIMED % (1, 1)), "is not JSON at event 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_trace_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    text, message = BAD[name]
    path = tmp_path / "t.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as caught:
        read_trace(path)
    said = str(caught.value)
    assert len(said) < 400
    assert said.isprintable()
    assert str(path) in said


def test_what_follows_the_trace_is_not_ignored(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(example_text() + "\n \n")
    assert not read_trace(path).cut
    path.write_text(example_text() * 2)
    with pytest.raises(UsageError, match="goes on after the end of its trace"):
        read_trace(path)


def test_a_folder_and_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        read_trace(tmp_path)
    with pytest.raises(UsageError, match="is not there"):
        read_trace(tmp_path / "none.json")


def test_a_broken_gzip_file_is_refused_and_a_cut_one_is_read_so_far(tmp_path: Path) -> None:
    trace = Trace()
    for i in range(20_000):
        trace.op(f"aten::op{i * i % 997}", 10 * i, 10 * i + 9)
    packed = gzip.compress(trace.text().encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    timeline = read_trace(path)
    assert timeline.cut
    assert 5_000 < len(timeline.operators) < 20_000
    path.write_bytes(packed[:1000] + b"\x00" * 50 + packed[1050:])
    with pytest.raises(UsageError, match="broken as a gzip file"):
        read_trace(path)
    path.write_bytes(packed[:-8] + b"\x00" * 8)
    with pytest.raises(UsageError, match="broken as a gzip file: CRC"):
        read_trace(path)
    path.write_bytes(packed[:12])
    with pytest.raises(UsageError, match="is empty"):
        read_trace(path)


def test_a_gzip_file_of_endless_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventstream, "LARGEST_TEXT", 1 << 20)
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b" " * (8 << 20)))
    with pytest.raises(UsageError, match="GiB of text"):
        read_trace(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that each example of a property writes anew."""
    return tmp_path_factory.mktemp("damaged") / "t.json"


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, len(example_text().encode()) - 1))
def test_a_file_cut_anywhere_keeps_what_was_read_and_says_so(place: int, path: Path) -> None:
    data = example_text().encode()
    path.write_bytes(data[:place])
    try:
        timeline = read_trace(path)
    except UsageError:
        assert place < data.index(b"dur") + 200, "the first event had been read"
        return
    assert timeline.cut
    assert len(timeline.operators) + len(timeline.activities) <= 3


DAMAGE = (b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"-", b"9" * 30, b"e9", b"null", b"\0")


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 3000), st.sampled_from(DAMAGE), st.integers(0, 40)),
        min_size=1,
        max_size=4,
    )
)
def test_a_damaged_file_is_read_or_refused_and_nothing_else(
    changes: list[tuple[int, bytes, int]], path: Path
) -> None:
    data = example_text().encode()
    for place, put, removed in changes:
        data = data[:place] + put + data[place + removed :]
    path.write_bytes(data)
    try:
        timeline = read_trace(path)
    except UsageError as error:
        assert str(error).isprintable()
    else:
        assert (timeline.operators.end >= timeline.operators.start).all()
