"""Observe which elements a call drops at random, and refuse a pattern that is not random.

A call with dropout has another right result each time. So its workload reads the elements that the
call keeps from results of the call itself, on inputs that show them, with torch's random generators
in the state of the call that is checked, and the reference drops the same elements. Patterns are
held to the probability: over all elements, each row, column and head; between neighbours; between
two calls; and no two rows may be equal.

The bounds are Bernstein's, P(|S − n·μ| ≥ t) ≤ 2·exp(−t²/2 / (n·σ² + t/3)), so that each test
refuses a correct pattern with a probability below `FALSE_ALARM`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.inputs import refill
from gpuperf.model.workload import Dropout, Observe

FALSE_ALARM = 1e-9
# FlashAttention compares 8 random bits with the probability, which is so rounded to 1/256
# (flash_attn's `p_dropout_in_uint8_t`).
GRANULE = 1 / 256
CHUNK = 2**24  # elements of a pattern that are hashed at a time
HINT = "drop each element independently, with numbers from torch's default generator"

Inputs = Mapping[str, Any]
State = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class RandomCall:
    """A call that drops elements at random, bound to *copies* of its inputs.

    The `_version` of the inputs named in *silent* does not change when they are replaced.
    """

    observe: Observe
    device: torch.device
    copies: Sequence[Inputs]
    call: Callable[[], Any]
    silent: Collection[str] = ()

    def result(self, fresh: Inputs, seed: int, twice: bool = True) -> tuple[Any, Inputs]:
        """Return the result for *fresh*, and *fresh* with the elements that were `kept`.

        The random generators are seeded with *seed* before. If *twice*, the elements that the
        following call keeps are compared too. Raises: WrongResult.
        """
        torch.manual_seed(seed)
        state, pattern = self._state(), None
        if twice:
            self._replace(fresh)
            self.call()
            pattern = self._pattern(fresh, self._state())
        kept = self._pattern(fresh, state)
        refuse_regular(kept)
        if pattern is not None:
            refuse_repeated(kept, pattern)
            del pattern
        self._replace(fresh)
        self._restore(state)
        return self.call(), {**fresh, "kept": kept.kept}

    def _pattern(self, fresh: Inputs, state: State) -> Dropout:
        self._replace(fresh)

        def run(**changed: Any) -> Any:
            self._replace(changed)
            self._restore(state)
            return self.call()

        return self.observe(fresh, run)

    def _replace(self, values: Inputs) -> None:
        for inputs in self.copies:
            refill({name: inputs[name] for name in values}, values, self.silent)

    def _state(self) -> State:
        state = torch.get_rng_state()
        return (state, torch.cuda.get_rng_state(self.device)) if self._on_cuda else (state,)

    def _restore(self, state: State) -> None:
        torch.set_rng_state(state[0])
        if self._on_cuda:
            torch.cuda.set_rng_state(state[1], self.device)

    @property
    def _on_cuda(self) -> bool:
        return bool(self.device.type == "cuda")


def refuse_regular(pattern: Dropout) -> None:
    """Raise WrongResult if *pattern* is not random, CannotMeasure if it is too small to judge."""
    kept, possible = pattern.kept, pattern.possible.expand_as(pattern.kept)
    kept, axes = kept & possible, tuple(range(kept.dim()))
    _refuse_share(kept, possible, pattern.share, axes, "all elements")
    _refuse_share(kept, possible, pattern.share, axes[-1:], "a row")
    _refuse_share(kept, possible, pattern.share, axes[:-1], "a column")
    _refuse_share(kept, possible, pattern.share, axes[-2:], "a head")
    for axis, size in enumerate(kept.shape):
        a, b = (kept.narrow(axis, start, size - 1) for start in (0, min(1, size - 1)))
        c, d = (possible.narrow(axis, start, size - 1) for start in (0, min(1, size - 1)))
        if _agree(a, b, c & d, pattern.share, 2):
            raise WrongResult(
                f"drops elements that depend on their neighbours on axis {axis}", HINT
            )
    if _has_equal_rows(kept, possible, pattern.share):
        raise WrongResult("drops the same elements of two rows", HINT)


def _refuse_share(
    kept: torch.Tensor, possible: torch.Tensor, share: float, axes: tuple[int, ...], where: str
) -> None:
    """Compare the share of *kept* elements, summed over *axes*, with *share*."""
    count, number = possible.sum(axes).double().flatten(), kept.sum(axes).flatten()
    allowed = _allowance(count, share, count.numel()) + GRANULE * count
    if where == "all elements" and bool(allowed >= (1 - share) * count):
        reason = f"{int(count):,} elements are too few to check which of them dropout keeps"
        raise CannotMeasure(reason, "choose larger sizes")
    excess = (number - share * count).abs() - allowed
    worst = int(excess.argmax())
    if excess[worst] > 0:
        percent = 100 * float(number[worst] / count[worst])
        reason = f"keeps {percent:.4g} % of {where}, where dropout keeps {100 * share:g} %"
        raise WrongResult(reason, HINT)


def refuse_repeated(first: Dropout, second: Dropout) -> None:
    """Raise WrongResult if two calls keep elements that are not independent."""
    possible = (first.possible & second.possible).expand_as(first.kept)
    if _agree(first.kept, second.kept, possible, first.share, 1):
        raise WrongResult("drops the same elements in two calls", HINT)


def _allowance(count: torch.Tensor, probability: float, tests: int, parts: int = 1) -> torch.Tensor:
    """Return how far each of *tests* sums of *count* random bits may be from its mean.

    The bits of each of *parts* parts of a sum are independent.
    """
    log = math.log(2 * parts * max(1, tests) / FALSE_ALARM)
    variance = probability * (1 - probability) * count / parts
    deviation = log / 3 + (log * log / 9 + 2 * log * variance).sqrt()
    return parts * deviation


def _agree(
    a: torch.Tensor, b: torch.Tensor, possible: torch.Tensor, share: float, parts: int
) -> bool:
    """Return whether *a* and *b* are equal more or less often than independent patterns."""
    equal = share**2 + (1 - share) ** 2
    count = possible.sum().double()
    off = (((a == b) & possible).sum() - equal * count).abs()
    return bool(off > _allowance(count, equal, 1, parts) + 2 * GRANULE * count)


def _has_equal_rows(kept: torch.Tensor, possible: torch.Tensor, share: float) -> bool:
    """Return whether two rows are equal that are too long to be equal by chance."""
    rows, count = kept.flatten(0, -2), possible.flatten(0, -2).sum(-1)
    bits = -math.log(share**2 + (1 - share) ** 2)  # of one element: two are equal with exp(−bits)
    least = math.log(max(1, len(rows)) ** 2 / FALSE_ALARM) / bits
    weights = torch.randint(-(2**62), 2**62, rows.shape[-1:], device=rows.device)
    parts = rows.split(max(1, CHUNK // max(1, rows.shape[1])))
    hashes = torch.cat([(part * weights).sum(-1) for part in parts])[count >= least]
    ordered = hashes.sort()[0]
    return bool((ordered[1:] == ordered[:-1]).any())
