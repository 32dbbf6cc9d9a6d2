"""Read from NCCL's own log what it predicts for each algorithm and protocol, and what it chose.

With `NCCL_DEBUG=INFO` and `NCCL_DEBUG_SUBSYS=TUNING`, rank 0 writes a table of latencies and
bandwidths when a communicator begins, and a line at each enqueue (of a CUDA graph once, at its
capture). Names of kernels do not say what runs: NCCL 2.2x has one kernel for all algorithms of a
collective. Sends and receives are not logged, so theirs stay unknown.

The table is that of `ncclTopoTuneModel` in NCCL's graph/tuning.cc, up to 2.30: blocks of three
algorithms with the lines `Algorithm |`, `Protocol |`, ` Max NThreads |`, then a line for each
collective with `latency/bandwidth |` in µs and GB/s of the whole array. Its third header line names
protocols even where a block has fewer algorithms. Until 2.17 one line, `Latency/AlgBw |`, named all
columns as `Tree/LL`. A bandwidth of 0 is that of a protocol which is off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpuperf.model.gang import TunedTime
from gpuperf.model.workload import Value

# `AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}` (2.23 and later),
# `8388608 Bytes -> Algo 1 proto 2 time 53.9` (before; enqueue.cc of either).
LINE = re.compile(
    r"(?:(?P<collective>\w+): )?(?P<bytes>\d+) Bytes -> "
    r"Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)"
    r"(?:.*?channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\})?"
)
# Numbers of algorithms and protocols in nccl_tuner.h; older versions log these.
ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOLS = ("LL", "LL128", "SIMPLE")
MOST_LOG = 64 << 20  # bytes of a log that are read
# Names in the table (ncclAlgoStr of init.cc) of the algorithms that the lines of calls call so.
IN_TABLE = dict(
    zip(
        ("TREE", "RING", "COLLNETDIRECT", "COLLNETCHAIN", "NVLS", "NVLSTREE", "PAT"),
        ALGORITHMS,
        strict=True,
    )
)
INFO = "NCCL INFO "  # before each text of the log
CELL = re.compile(r"(\d+\.\d+)/ *(\d+\.\d+)")
COLLECTIVES = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


@dataclass(frozen=True)
class Choice:
    """What NCCL chose for one call: `channels` is 0 where the log does not say it."""

    collective: str
    bytes: int
    algorithm: str
    protocol: str
    channels: int = 0

    @property
    def values(self) -> dict[str, Value]:
        """The choice as a record stores it, without what is unknown."""
        known: dict[str, Value] = {"algorithm": self.algorithm, "protocol": self.protocol}
        return known | ({"channels": self.channels} if self.channels else {})


def choices(text: str) -> Iterator[Choice]:
    """Yield what NCCL chose for each call that *text* logs, in order; other lines are ignored."""
    for line in text.splitlines():
        match = LINE.search(line)
        if match is None:
            continue
        low, high = match["low"], match["high"]
        yield Choice(
            match["collective"] or "",
            int(match["bytes"]),
            _name(match["algorithm"], ALGORITHMS),
            _name(match["protocol"], PROTOCOLS),
            int(high) - int(low) + 1 if low else 0,
        )


def tuned_times(text: str) -> tuple[TunedTime, ...]:
    """Return the table of the latest communicator in *text*, without what is off; empty for none.

    Rows that are cut or that do not fit their header are left out.
    """
    found: dict[tuple[str, str, str], TunedTime] = {}
    columns: list[tuple[str, str]] = []
    for line in text.splitlines():
        head, *cells = (part.strip() for part in line.rpartition(INFO)[2].split("|"))
        if head == "Algorithm":
            columns = [(name, protocol) for name in cells[:-1] for protocol in PROTOCOLS]
        elif head == "Latency/AlgBw":
            columns = [(a.strip(), p.strip()) for a, _, p in (c.partition("/") for c in cells[:-1])]
        elif head in COLLECTIVES and len(cells) == len(columns) + 1 and not cells[-1]:
            for (algorithm, protocol), cell in zip(columns, cells, strict=False):
                key = head, IN_TABLE.get(algorithm.upper(), algorithm), protocol.upper()
                found.pop(key, None)  # of an earlier communicator
                if (match := CELL.fullmatch(cell)) and float(match[2]) > 0:
                    latency_s, rate = float(match[1]) * 1e-6, float(match[2]) * 1e9
                    with suppress(ValueError):
                        found[key] = TunedTime(*key, latency_s, rate)
    return tuple(found.values())


def read_tuning(path: Path | None) -> tuple[TunedTime, ...]:
    """Return the table in the log *path*; empty where there is no log, or none in it."""
    if path is None or not path.exists():
        return ()
    with path.open("rb") as file:
        return tuned_times(file.read(MOST_LOG).decode("utf-8", "replace"))


def _name(text: str, names: tuple[str, ...]) -> str:
    """Return the name that a log has as a number in older versions."""
    return names[int(text)] if text.isdecimal() and int(text) < len(names) else text


class Log:
    """The log file of one process; None where there is none. It grows while calls are made."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._begin = self._size()

    def chosen(self) -> dict[str, Value]:
        """Return what NCCL chose for the latest call since this log was opened; empty if the log
        does not say."""
        latest = [*choices(self._since())][-1:]
        return latest[0].values if latest else {}

    def _size(self) -> int:
        return self._path.stat().st_size if self._path and self._path.exists() else 0

    def _since(self) -> str:
        if self._path is None or not self._path.exists():
            return ""
        with self._path.open("rb") as file:
            file.seek(self._begin)
            return file.read(MOST_LOG).decode("utf-8", "replace")
