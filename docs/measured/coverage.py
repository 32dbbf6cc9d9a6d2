"""Count how often the intervals that gpuperf prints contain the value that they claim to contain.

The samples are those of `h200-noise.jsonl.gz`: 13 cases in 20 fresh processes each. `python
docs/measured/coverage.py` prints the table of `coverage.txt`. "Own" is the process in which an
interval was measured; the true speed-up of a case over itself is 1.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuperf.model.noise import next_interval, noise_of
from gpuperf.model.record import Record
from gpuperf.model.samples import Samples
from gpuperf.roofline.speedup import center, ratio
from gpuperf.run.store import read_run

FILE = Path(__file__).with_name("h200-noise.jsonl.gz")
DRAWS, SEED = 2000, 1  # groups of processes that are drawn for each case

Processes = Sequence[Samples]
Held = Iterable[bool]


@dataclass(frozen=True)
class Line:
    """A claim, the number of intervals that contain the claimed value, and the number of all."""

    claim: str
    held: int
    of: int

    @property
    def share(self) -> float:
        """Return the share of intervals that contain the claimed value."""
        return self.held / self.of


def cases() -> Mapping[str, Sequence[Record]]:
    """Return the records of each case that have a time, one for each process."""
    records: dict[str, list[Record]] = {}
    for record in read_run(FILE).records:
        if record.status == "ok" and record.samples is not None:
            records.setdefault(record.case.id, []).append(record)
    return records


def _samples(records: Sequence[Record]) -> Processes:
    return [record.samples for record in records if record.samples is not None]


def own(records: Sequence[Record]) -> Held:
    """Yield whether the interval of the ratio of the two halves of each process contains 1."""
    for samples in _samples(records):
        half, tick = samples.size // 2, samples.tick_s
        first, second = samples.values_s[:half], samples.values_s[half:]
        quotient = ratio(Samples(first, tick_s=tick), Samples(second, tick_s=tick))
        yield _holds(quotient.low, quotient.high, 1.0)


def others(records: Sequence[Record]) -> Held:
    """Yield whether the interval of each process contains the median of the others' medians."""
    processes = _samples(records)
    for i, samples in enumerate(processes):
        rest = [p.median_s for j, p in enumerate(processes) if j != i]
        yield _holds(*samples.interval_s, statistics.median(rest))


def following(records: Sequence[Record]) -> Held:
    """Yield whether the interval "next time" of each process, with the scatter of 10 others,
    contains the median of each remaining process."""
    draw = random.Random(SEED)
    for record in records:
        rest = [r for r in records if r is not record]
        draw.shuffle(rest)
        noise, samples = noise_of(rest[:10]), record.samples
        if noise is None or samples is None:
            continue
        interval = next_interval(samples, noise) or (None, None)
        yield from (
            _holds(*interval, r.samples.median_s) for r in rest[10:] if r.samples is not None
        )


def one_process(records: Sequence[Record]) -> Held:
    """Yield whether the interval of the speed-up of each process over each other contains 1."""
    for base, head in itertools.combinations(_samples(records), 2):
        quotient = ratio(base, head)
        yield _holds(quotient.low, quotient.high, 1.0)


def over_processes(
    records: Sequence[Record], count: int = 3, draws: int = DRAWS, seed: int = SEED
) -> Held:
    """Yield whether the speed-up over *count* drawn processes of each side contains 1."""
    medians, draw = [samples.median_s for samples in _samples(records)], random.Random(seed)
    for _ in range(draws):
        picked = draw.sample(medians, 2 * count)
        _, low, high = center([a / b for a, b in zip(picked[:count], picked[count:], strict=True)])
        yield _holds(low, high, 1.0)


def _holds(low: float | None, high: float | None, truth: float) -> bool:
    return low is not None and high is not None and low <= truth <= high


def over(count: int) -> Callable[[Sequence[Record]], Held]:
    """Return `over_processes` with *count* processes of each side."""
    return lambda records: over_processes(records, count)


CLAIMS: Mapping[str, Callable[[Sequence[Record]], Held]] = {
    "own: the halves of one process agree": own,
    "others: the median of the other processes": others,
    "next time: the median of another process": following,
    "speed-up 1, one process each": one_process,
    **{f"speed-up 1, {count} processes each": over(count) for count in (2, 3, 5, 10)},
}


def lines() -> Iterable[Line]:
    """Yield the line of each claim, over all cases."""
    by_case = cases()
    for claim, test in CLAIMS.items():
        held = [each for records in by_case.values() for each in test(records)]
        yield Line(claim, sum(held), len(held))


def main() -> None:
    """Print the line of each claim, and the claim of `gpuperf compare` for each case."""
    for line in lines():
        print(f"{line.claim:45} {line.share * 100:5.1f} %  of {line.of}")
    print("\nspeed-up 1, 3 processes each, by case")
    for case, records in cases().items():
        held = list(over_processes(records))
        print(f"{case:45.45} {sum(held) / len(held) * 100:5.1f} %  of {len(held)}")


if __name__ == "__main__":
    main()
