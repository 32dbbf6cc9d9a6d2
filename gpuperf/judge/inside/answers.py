"""Hold the answers of a task: `python -P -m gpuperf.judge.inside.answers`.

This process makes the inputs, writes them into the slots of the seats, and compares the results
that the clerk copied out of a seat. It never runs a submission.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.judge.evidence import Audit
from gpuperf.judge.inside.comparison import (
    Answer,
    accepts,
    answer_of,
    compare,
    is_excused,
    is_inexact,
    overflows,
    own_tolerance,
)
from gpuperf.judge.inside.contents import copies_of, inputs_of
from gpuperf.judge.inside.device_memory import CannotShare, allocate
from gpuperf.judge.inside.draws import NOMINAL
from gpuperf.judge.inside.examine import BY_NOMINAL, kinds_of, twins_of, unfair_ways
from gpuperf.judge.inside.first_calls import FirstCalls, first_calls, rounds_to_tf32, same_bits
from gpuperf.judge.inside.layout import Slots, lay_out, map_file, put_together, view_of
from gpuperf.judge.inside.problem import Problem, load_problem
from gpuperf.judge.inside.serving import serve
from gpuperf.judge.inside.witness import Witness
from gpuperf.judge.plan import most_audits, most_calls, slot_count
from gpuperf.judge.protocol import (
    Check,
    Checked,
    Contents,
    Fill,
    Layout,
    Load,
    Loaded,
    Ready,
    Release,
    Share,
    Shared,
    TensorSpec,
    ToAnswers,
    Unwatch,
    Watch,
    Watched,
    Withdraw,
    Withdrawn,
)
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.device import open_device
from gpuperf.measure.fingerprint import fingerprint_of
from gpuperf.measure.pieces import largest_error
from gpuperf.measure.telemetry import Meter
from gpuperf.model.protocol import Opened


class Answers:
    """Server of the clerk's requests about one case of a task."""

    def __init__(self) -> None:
        self._problem: Problem | None = None
        self._layout: Layout | None = None
        self._results: tuple[TensorSpec, ...] = ()
        self._slots: list[Slots] = []
        self._memory: torch.Tensor | None = None
        self._changeable: frozenset[int] = frozenset()
        self._held: dict[int, Contents] = {}
        self._earlier: dict[int, list[Contents]] = {}
        self._device, self._witness = CPU, Witness(CPU, None)
        self._places: list[tuple[torch.Tensor, str]] = []
        self._withdrawn: dict[int, torch.Tensor] = {}
        self._flushed: torch.Tensor | None = None
        self._differs = False  # whether a result was another than the reference's own, bit for bit

    def answer(self, request: Any) -> Any:
        """Serve *request* and return the reply. Raises: GpuperfError, and what a task raises."""
        reply = self._serve(request)
        if not isinstance(request, Watch | Unwatch):  # the probe would be in the window
            self._give_back()
        return reply

    def _serve(self, request: Any) -> Any:
        if isinstance(request, Load):
            return self._load(request)
        if isinstance(request, Share):
            return self._share(request)
        if isinstance(request, Fill):
            return self._fill(request)
        if isinstance(request, Withdraw):
            return self._withdraw(request)
        if isinstance(request, Watch | Unwatch | Release):
            return self._watch(request)
        return self._check(request)

    def _give_back(self) -> None:
        """Return unused memory of the device, which seats need, if there is much of it."""
        if self._device.type == "cuda":
            cached = torch.cuda.memory_reserved(self._device)
            if cached - torch.cuda.memory_allocated(self._device) > MOST_CACHED:
                torch.cuda.empty_cache()
                self._probe()  # allocates what later probes need: that would seem a busy device

    @property
    def problem(self) -> Problem:
        """The loaded task. Raises: CannotMeasure before it was loaded."""
        if self._problem is None:
            raise CannotMeasure("no task was loaded")
        return self._problem

    def _load(self, request: Load) -> Loaded:
        device = open_device(request.device)
        self._device, l2_bytes = device.torch, device.facts.l2_bytes
        self._witness = Witness(self._device, l2_bytes)
        if self._device.type == "cuda":
            size = FLUSHED_L2_SIZES * (l2_bytes or LARGEST_L2)
            # A sum of whole numbers would first copy them to 64 bits each.
            self._flushed = torch.zeros(size // 4, dtype=torch.float32, device=self._device)
        self._problem = problem = load_problem(
            request.task, request.case, request.seed, self._device
        )
        seeds = (request.seed, request.seed + 1)
        layouts = [lay_out(list(problem.make(seed))) for seed in seeds]
        if layouts[0] != layouts[1]:
            raise CannotMeasure(
                "the shapes or the numbers among the inputs differ between two draws",
                "the judge needs tasks whose inputs differ in the values of tensors alone",
            )
        self._layout = layouts[0]
        first = first_calls(problem, request.seed)
        self._changeable = first.changed
        tf32 = self._device.type == "cuda" and rounds_to_tf32(first.operations)
        self._problem = problem = replace(
            problem, pure=not first.changed, tf32=tf32, terms=first.terms
        )
        result = sum(spec.bytes for spec in first.results)
        room = self._take(self._seats_bytes(result))
        # Beside an answer, the examination holds other contents and two results more.
        spare = self._take(self._layout.size + 2 * result)
        kinds, crowded = kinds_of(problem, request.seed)
        del spare
        unfair = tuple(unfair_ways(problem, kinds, request.seed))
        del room
        # Values that do not fit might show that the task is fair.
        if unfair and crowded and unfair[0].kind not in BY_NOMINAL:
            raise torch.OutOfMemoryError(UNKNOWN.format(unfair[0].text, ", ".join(crowded)))
        self._results = first.results
        state, init = lay_out(dict(problem.state)), lay_out(list(problem.init))
        if init.tensors:
            raise CannotMeasure("an argument of the constructor is a tensor")
        return Loaded(
            self._layout,
            state,
            init.skeleton,
            self._results,
            kinds,
            unfair,
            problem.cost or first.cost,
            tuple(_notes(problem, first, crowded)),
            first.aliases,
            Opened(*fingerprint_of(device, Meter())),
            first.nonzero_bytes,
            min(self._probe() for _ in range(PROBES)),
            problem.cost is None,
            first.views,
            twins_of(problem, kinds, request.seed),
        )

    def _seats_bytes(self, result: int) -> int:
        """Return the bytes that two seats and their results will take, of so many bytes each."""
        assert self._layout is not None
        size = self._layout.size
        count = slot_count(size + result, gpu=True)
        calls = most_calls(count) + most_audits(count)
        return 2 * (count * size + calls * result)

    def _take(self, size: int) -> torch.Tensor | None:
        """Take *size* bytes of a GPU: values whose answers do not fit beside what is needed later
        are then not among the task's kinds."""
        if self._device.type == "cuda":
            with contextlib.suppress(torch.OutOfMemoryError):
                return torch.empty(size, dtype=torch.uint8, device=self._device)
        return None

    def _share(self, request: Share) -> Shared:
        assert self._layout is not None
        shared = Shared(request.slots, request.results, request.others)
        if request.on_device:
            try:
                shared = self._shared(request)
            except CannotShare as error:
                return Shared(missing=str(error))
        self._slots = [
            Slots.open(place, self._layout, request.count, self._device) for place in shared.slots
        ]
        weights = lay_out(dict(self.problem.state))
        if weights.tensors:
            for path in request.states:
                Slots.open(path, weights, 1).write(0, list(self.problem.state.values()))
        if request.on_device:
            self._memory = self._places[0][0]
        else:
            self._memory = map_file(request.results, request.results_bytes)
        self._held, self._earlier, self._withdrawn = {}, {}, {}
        self._differs = False
        return shared

    def _shared(self, request: Share) -> Shared:
        """Allocate memory of the device for results and for the slots of each seat, once."""
        assert self._layout is not None
        while len(self._places) < 2:  # no answer is ever in memory that the submission can read
            self._places.append(allocate(request.results_bytes, self._device))
        size = self._layout.size * request.count
        while len(self._places) < 2 + len(request.slots):
            self._places.append(allocate(size, self._device))
        results, others, *slots = [place for _, place in self._places]
        return Shared(tuple(slots[: len(request.slots)]), results, others)

    def _fill(self, request: Fill) -> Ready:
        for contents in request.contents:
            if contents.slot in self._held:
                self._earlier.setdefault(contents.slot, []).append(self._held[contents.slot])
            self._held[contents.slot] = contents
            _, tensors = inputs_of(self.problem, contents)
            for slots in self._slots:
                slots.write(contents.slot, tensors)
        self._withdrawn = {}
        self._probe()  # fills the L2 with lines that are clean, in place of those just written
        return Ready()

    def _probe(self) -> float:
        """Return the seconds in which the device reads three times the size of its L2: long ones
        while another process has work on it."""
        if self._flushed is None:
            return 0.0
        began = time.perf_counter()
        self._flushed.sum().item()
        return time.perf_counter() - began

    def _withdraw(self, request: Withdraw) -> Withdrawn:
        """Keep what the call left of some contents, and replace the contents of all by zeros."""
        if not request.probe:
            slots = self._slots[0]
            self._withdrawn = {slot: slots.part(slot).clone() for slot in request.slots}
            slots.memory.zero_()
            torch.cuda.synchronize(self._device)
        return Withdrawn(self._probe())

    def _watch(self, request: Watch | Unwatch | Release) -> Ready | Watched:
        if isinstance(request, Unwatch):
            return self._witness.end(request.pause_s)
        if isinstance(request, Watch):
            self._witness.begin()
        else:
            self._witness.close()
        return Ready()

    def _check(self, request: Check) -> Checked:
        pairs = zip(request.slots, request.places, strict=True)
        return Checked(tuple(self._audit(slot, specs, request.side) for slot, specs in pairs))

    def _audit(self, slot: int, specs: tuple[TensorSpec, ...], side: int) -> Audit:
        """Compare the result of one slot, whose tensors lie in the file of results."""
        contents = self._held[slot]
        skeleton, tensors = inputs_of(self.problem, contents)
        audit = Audit(slot, contents.kind, changed=self._changed(slot, tensors, side))
        memory, harsh, answer = self._memory, contents.kind != NOMINAL, None
        assert memory is not None
        try:
            outputs: list[torch.Tensor] = [
                view_of(memory, spec, 0).to(self._device, copy=True) for spec in specs
            ]
            own = self._own_tolerance(
                put_together(skeleton, copies_of(self.problem, tensors)), outputs
            )
            if own is not None:
                return replace(audit, tolerance=own)
            answer = answer_of(
                self.problem, put_together(skeleton, copies_of(self.problem, tensors)), harsh
            )
            error, bound = compare(self.problem, put_together(skeleton, tensors), outputs, answer)
            off = _absolute(outputs, answer.exact)
            return Audit(slot, contents.kind, error, bound, changed=audit.changed, absolute=off)
        except WrongResult as wrong:
            # The reference's own result is right, also where it overflows.
            if answer and _are_same(outputs, answer.own):
                return audit
            replayed = self._is_replayed(slot, outputs, answer)
            arguments = put_together(skeleton, tensors)
            # Nominal values may overflow too, at times.
            excused = answer is not None and not replayed and (harsh or overflows(answer))
            if excused and answer and is_excused(self.problem, arguments, outputs, answer):
                return replace(audit, undecided=True)
            return Audit(
                slot, contents.kind, reason=str(wrong), replayed=replayed, changed=audit.changed
            )

    def _own_tolerance(self, arguments: list[Any], outputs: list[torch.Tensor]) -> float | None:
        """Return `own_tolerance`; None without a try if an earlier result was another one."""
        if self._differs:
            return None
        tolerance = own_tolerance(self.problem, arguments, outputs)
        self._differs = tolerance is None
        return tolerance

    def _changed(self, slot: int, tensors: list[torch.Tensor], side: int) -> str:
        """Return the number of an input that the call changed; empty if there is none."""
        slots = self._slots[side]
        if slot in self._withdrawn:
            slots, slot = Slots(slots.layout, self._withdrawn[slot]), 0
        for number, (now, then) in enumerate(zip(slots.tensors(slot), tensors, strict=True)):
            if number not in self._changeable and not same_bits(now, then):
                return str(number + 1)
        return ""

    def _is_replayed(self, slot: int, outputs: list[torch.Tensor], answer: Answer | None) -> bool:
        """Return whether *outputs* answer contents that the slot had before, and the reference's
        own results for its contents do not.

        Different inputs may have one result by chance if it is small, or all zero or infinite.
        """
        if not any(map(_tells_inputs, outputs)):
            return False
        earlier = self._earlier.get(slot, [])
        for contents in (*earlier[:1], *earlier[1:][-2:]):
            arguments = put_together(*inputs_of(self.problem, contents))
            then = answer_of(self.problem, arguments, contents.kind != NOMINAL)
            if not accepts(self.problem, arguments, outputs, then):
                continue
            if answer is not None and accepts(self.problem, arguments, answer.own, then):
                continue  # both contents have this answer, which may be infinite everywhere
            return True
        return False


def _are_same(outputs: list[torch.Tensor], own: list[torch.Tensor]) -> bool:
    """Return whether *outputs* are the reference's *own*, bit for bit."""
    kinds = [[(t.shape, t.dtype) for t in tensors] for tensors in (outputs, own)]
    return kinds[0] == kinds[1] and all(map(same_bits, outputs, own))


def _tells_inputs(output: torch.Tensor) -> bool:
    """Return whether *output* can tell of which inputs it is the result."""
    if not is_inexact(output) or output.numel() < LEAST_REPLAYED:
        return False
    if not torch.isfinite(output).any():
        return False
    first = output.flatten()[0]
    return bool((output != first).any()) or abs(float(first.abs())) not in (0.0, 1.0)


CPU = torch.device("cpu")
FLUSHED_L2_SIZES, LARGEST_L2 = 3, 128 << 20
PROBES = 10
MOST_CACHED = 1 << 30  # bytes of the device's memory that are kept for the next answer
LEAST_REPLAYED = 16  # elements of a result that two contents do not share by chance
UNKNOWN = (
    "whether the task is fair is unknown: for other values {}, and answers for values of the kinds "
    "{} do not fit in memory"
)
CROWDED = "values of the kinds {} are not judged, as their answers do not fit in memory"
VIEWS = "the reference returns views: each call of every side ends with a copy to dense memory"
NARROW = "answers are in the reference's own dtype: it does not run in float64"


def _notes(problem: Problem, first: FirstCalls, crowded: Sequence[str]) -> Iterator[str]:
    if not (first.wide or problem.compare or problem.check):
        yield NARROW
    if crowded:
        yield CROWDED.format(", ".join(crowded))
    if first.views:
        yield VIEWS


def _absolute(outputs: list[torch.Tensor], exact: list[torch.Tensor]) -> float | None:
    """Return the largest absolute error; None where results are not compared one to one."""
    pairs = list(zip(outputs, exact, strict=False))
    if not pairs or any(a.shape != b.shape or not a.numel() for a, b in pairs):
        return None
    return max(largest_error(a, b) for a, b in pairs)


def main(arguments: list[str] | None = None) -> int:
    """Serve requests until the clerk ends."""
    return serve(Answers().answer, ToAnswers, arguments)


if __name__ == "__main__":
    sys.exit(main())
