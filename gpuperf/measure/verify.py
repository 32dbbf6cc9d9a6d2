"""Check the results of one case, before its samples are taken and after.

Before: inputs are drawn afresh, the call runs once, its inputs are compared with the drawn values
(a call must not change them), and its result with their float64 reference. The call is timed with
the inputs that were drawn last. While the samples are taken, `spot_checks` keeps some elements of a
few results. After: these are compared with the checked result, the inputs are renewed at the same
addresses without a new `_version`, and one more result is compared with the reference.

A call with dropout is checked with the elements that `dropout` observes it to drop, from a state of
torch's random generators that is set before each result that is compared.

The seed comes from the system's random source, so that no call can predict the inputs; the record
holds it, and GPUPERF_CHECK_SEED repeats it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure import gang
from gpuperf.measure.checks import compare, differ_much, poison
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.device import Device
from gpuperf.measure.dropout import RandomCall
from gpuperf.measure.inputs import bind_make, refill, renew_part
from gpuperf.measure.result_shape import tensors_of
from gpuperf.measure.result_tensors import refuse_bad_tensors, refuse_changed_inputs
from gpuperf.measure.spot_checks import SpotChecks
from gpuperf.measure.timers.timer import Call
from gpuperf.model.contract import Data
from gpuperf.model.record import Check
from gpuperf.model.workload import Draw, Implementation, Point, Workload

SEED_VARIABLE = "GPUPERF_CHECK_SEED"
SEED_BYTES = 6  # JSON's numbers are exact up to 2^53
# Offsets of the seed for each kind of draw, above the numbers of the rotating copies of the inputs.
AFTER, PART, PLACES, ROWS, CHANCE, HARSH = 900, 901, 902, 903, 904, 910
DRAWN = {"offset": "rows scaled and moved apart", "extreme": "values up to 200"}
SLOW_S = 1.0  # a call that takes longer is repeated once after its samples, not twice
STALE = "let every call compute the result anew: this one keeps a result, or differs when timed"


@dataclass(frozen=True)
class BoundCall:
    """A call with its inputs; a case under `--cache rotate` has several."""

    inputs: Mapping[str, Any]
    call: Call


class Rotation:
    """A call that runs each of *calls* in turn; `latest` is the number of the one that ran last.

    `plain` is the same without the CUDA graphs that the calls replay, and `replays` says whether
    they do.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._cycle = itertools.cycle(enumerate(calls))
        self._plain = itertools.cycle(getattr(call, "plain", call) for call in calls)
        self.replays = all(hasattr(call, "plain") for call in calls)
        self.latest = 0

    def plain(self) -> Any:
        """Run the next call without its graph."""
        return next(self._plain)()

    def __call__(self) -> Any:
        self.latest, call = next(self._cycle)
        return call()


@dataclass
class Verifier:
    """Checks one implementation at one point; `accumulate` is the dtype in which it sums."""

    device: Device
    workload: Workload
    implementation: Implementation
    point: Point
    data: Data
    accumulate: str
    spot_checks: SpotChecks = field(init=False)
    seed: int = field(default_factory=lambda: int(gang.first(_random_seed())))

    def __post_init__(self) -> None:
        changed = self.workload.mutated(self.point) or self.workload.aliases or self.data == "zeros"
        self.spot_checks = SpotChecks(self.seed + PLACES, not changed)
        if self.workload.dropout(self.point) is not None:
            self.spot_checks.begin = lambda: torch.manual_seed(self.seed + CHANCE)

    def before(self, bound: BoundCall, output: Any) -> Check:
        """Check a call that has returned *output* once. Raises: WrongResult."""
        draws = self.workload.draws(self.point)
        for index, draw in enumerate(draws):
            output = self._harshly_checked(bound, output, self.seed + HARSH + index, draw)
        check = self._checked(bound, output, self.seed)
        return replace(check, seed=self.seed, draws=("normal", *draws))

    def before_copy(self, bound: BoundCall, index: int) -> None:
        """Check the copy *index* of the call, with its own inputs. Raises: WrongResult."""
        self._checked(bound, bound.call(), self.seed + index)

    def after(self, copies: Sequence[BoundCall], repeat: Call, call_s: float) -> None:
        """Check the results of *repeat*, the function that was timed, whose calls take *call_s*.

        Raises: WrongResult.
        """
        try:
            self.spot_checks.judge()
            if call_s <= SLOW_S:
                self._renew(copies, self._drawn(self.seed + AFTER)[0])
                poison(self._run(repeat))
            fresh, made = self._drawn(self.seed + PART)
            if not self.workload.mutated(self.point):
                renew_part(fresh, copies[0].inputs, made, self.seed)
            self._renew(copies, fresh)
            output, known = self._result(copies, fresh, repeat, again=True)
            self._judge(copies, known, output, again=True)
        except WrongResult as wrong:
            raise WrongResult(f"when timed {wrong}", STALE) from None

    def _harshly_checked(self, bound: BoundCall, output: Any, seed: int, draw: Draw) -> Any:
        """Check the result for inputs drawn by *draw*, and return it. Raises: WrongResult."""
        fresh, _ = self._drawn(seed, draw)
        poison(output)
        refill(bound.inputs, fresh)
        del output
        output = self._run(bound.call)
        try:
            self._judge([bound], fresh, output, harsh=True)
        except WrongResult as wrong:
            raise WrongResult(f"of {DRAWN[draw]} {wrong}", wrong.hint) from None
        return output

    def _checked(self, bound: BoundCall, output: Any, seed: int) -> Check:
        fresh, _ = self._drawn(seed)
        poison(output)
        refill(bound.inputs, fresh)
        del output
        output, known = self._result([bound], fresh, bound.call)
        try:
            check = self._judge([bound], known, output)
        except WrongResult as wrong:
            # In a gang, the other ranks make no further call.
            raise (not gang.in_gang() and self._random(bound, fresh, output)) or wrong from None
        if self.spot_checks.active:
            self.spot_checks.expect(output, check)
            poison(output)  # so that a call which returns it again without computing is wrong
        return check

    def _random(
        self, bound: BoundCall, fresh: Mapping[str, Any], output: Any
    ) -> WrongResult | None:
        """Return the error of a wrong result that differs between calls with equal inputs."""
        before = [tensor.clone() for tensor in tensors_of(output)]
        refill(bound.inputs, fresh)
        self.spot_checks.begin()
        after = tensors_of(self._run(bound.call))
        if not differ_much(before, after):
            return None
        if self.workload.dropout(self.point) is not None:
            return WrongResult(
                "differs between two calls with equal inputs and equal state of torch's generators",
                "draw random numbers from torch's default generators alone",
            )
        return WrongResult(
            "differs between two calls with equal inputs: the call is not deterministic",
            "remove random steps (dropout, sampling), or fix their seed",
        )

    def _judge(
        self,
        copies: Sequence[BoundCall],
        fresh: Mapping[str, Any],
        output: Any,
        harsh: bool = False,
        again: bool = False,
    ) -> Check:
        for bound in copies:
            refuse_bad_tensors(
                self.workload,
                self.point,
                bound.inputs,
                output,
                self.device.torch,
                self.implementation,
            )
            refuse_changed_inputs(self.workload, self.point, bound.inputs, fresh)
        generator = torch.Generator().manual_seed(self.seed + ROWS)
        return compare(
            self.workload,
            self.point,
            fresh,
            output,
            self.accumulate,
            picker(generator),
            self.implementation,
            harsh=harsh,
            again=again,
        )

    def _result(
        self, copies: Sequence[BoundCall], fresh: Mapping[str, Any], call: Call, again: bool = False
    ) -> tuple[Any, Mapping[str, Any]]:
        """Return the result of *call* for the inputs *fresh*, and what its reference is made of.

        Raises: WrongResult where dropout is not random.
        """
        observe = self.workload.dropout(self.point)
        if observe is None:
            return self._run(call), fresh
        inputs, silent = [bound.inputs for bound in copies], self._silent(fresh) if again else ()
        random = RandomCall(observe, self.device.torch, inputs, call, silent)
        result = random.result(fresh, self.seed + CHANCE, twice=not again)
        self.device.synchronize()
        return result

    def _renew(self, copies: Sequence[BoundCall], fresh: Mapping[str, Any]) -> None:
        for bound in copies:
            refill(bound.inputs, fresh, self._silent(fresh))

    def _silent(self, fresh: Mapping[str, Any]) -> list[str]:
        """Return the inputs whose changes a call cannot detect by their `_version`."""
        prepared = self.workload.prepared(self.point)
        return [name for name in fresh if name not in prepared]

    def _run(self, call: Call) -> Any:
        output = call()
        self.device.synchronize()  # a copy of the output to the host may still run
        return output

    def _drawn(self, seed: int, draw: Draw | None = None) -> tuple[Mapping[str, Any], set[int]]:
        """Draw inputs from *seed*; return them and the addresses of those that `make` made."""
        # Zeros would hide errors.
        data: Data = "randn" if draw or self.data == "zeros" else self.data
        make = bind_make(self.device.torch, seed, data, draw)
        made: list[torch.Tensor] = []

        def recorded(*args: Any, **kwargs: Any) -> torch.Tensor:
            made.append(make(*args, **kwargs))
            return made[-1]

        return self.workload.inputs(self.point, recorded), {t.data_ptr() for t in made}


def picker(generator: torch.Generator) -> Callable[[int, int], torch.Tensor]:
    """Return a function of (count, below) that draws *count* sorted row numbers below *below*, on
    the host."""
    return lambda count, below: torch.randint(below, (count,), generator=generator).sort()[0]


def _random_seed() -> int:
    seed = os.environ.get(SEED_VARIABLE, "")
    if not seed:
        return int.from_bytes(os.urandom(SEED_BYTES), "little")
    if not seed.isdecimal() or len(seed) > 15:
        raise CannotMeasure(f"{SEED_VARIABLE} is {seed[:40]!r}", "give it the seed of a check")
    return int(seed)
