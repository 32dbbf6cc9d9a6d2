"""Read from NCCL's own log which algorithm, protocol and channels it chose for each call.

With `NCCL_DEBUG=INFO` and `NCCL_DEBUG_SUBSYS=TUNING`, rank 0 writes a line at each enqueue (of a
CUDA graph once, at its capture). Names of kernels do not say what runs: NCCL 2.2x has one kernel
for all algorithms of a collective. Sends and receives are not logged, so theirs stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
