"""Hold the answers of a task: `python -P -m gpuperf.judge.inside.answers`.

This process makes the inputs, writes them into the slots of the seats, and compares the results
that the clerk copied out of a seat. It never runs a submission.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.judge.evidence import Audit
from gpuperf.judge.inside.comparison import answer_of, compare
from gpuperf.judge.inside.contents import inputs_of
from gpuperf.judge.inside.draws import NOMINAL
from gpuperf.judge.inside.examine import allowed_kinds, unfair_ways
from gpuperf.judge.inside.layout import Slots, lay_out, map_file, put_together, spec_of, view_of
from gpuperf.judge.inside.problem import Problem, load_problem
from gpuperf.judge.inside.serving import serve
from gpuperf.judge.protocol import (
    Check,
    Checked,
    Contents,
    Fill,
    Layout,
    Load,
    Loaded,
    Ready,
    Share,
    TensorSpec,
    ToAnswers,
)
from gpuperf.measure.deviation import WrongResult
from gpuperf.model.cost import Bytes, Cost


class Answers:
    """Server of the clerk's requests about one case of a task."""

    def __init__(self) -> None:
        self._problem: Problem | None = None
        self._layout: Layout | None = None
        self._results: tuple[TensorSpec, ...] = ()
        self._slots: list[Slots] = []
        self._memory: torch.Tensor | None = None
        self._held: dict[int, Contents] = {}
        self._earlier: dict[int, list[Contents]] = {}

    def answer(self, request: Any) -> Any:
        """Serve *request* and return the reply. Raises: GpuperfError, and what a task raises."""
        if isinstance(request, Load):
            return self._load(request)
        if isinstance(request, Share):
            return self._share(request)
        if isinstance(request, Fill):
            return self._fill(request)
        return self._check(request)

    @property
    def problem(self) -> Problem:
        """The loaded task. Raises: CannotMeasure before it was loaded."""
        if self._problem is None:
            raise CannotMeasure("no task was loaded")
        return self._problem

    def _load(self, request: Load) -> Loaded:
        self._problem = problem = load_problem(request.task, request.case, request.seed)
        seeds = (request.seed, request.seed + 1)
        layouts = [lay_out(list(problem.make(seed))) for seed in seeds]
        if layouts[0] != layouts[1]:
            raise CannotMeasure(
                "the shapes or the numbers among the inputs differ between two draws",
                "the judge needs tasks whose inputs differ in the values of tensors alone",
            )
        self._layout = layouts[0]
        kinds = allowed_kinds(problem, request.seed)
        unfair = tuple(unfair_ways(problem, kinds, request.seed))
        answer = answer_of(
            problem, put_together(*inputs_of(problem, Contents(0, seeds[0], kinds[0])))
        )
        self._results = tuple(spec_of(tensor) for tensor in answer.own)
        notes = () if answer.wide or problem.compare or problem.check else (NARROW,)
        state, init = lay_out(dict(problem.state)), lay_out(list(problem.init))
        if init.tensors:
            raise CannotMeasure("an argument of the constructor is a tensor")
        cost = problem.cost or _cost(self._layout, self._results)
        return Loaded(self._layout, state, init.skeleton, self._results, kinds, unfair, cost, notes)

    def _share(self, request: Share) -> Ready:
        assert self._layout is not None
        self._slots = [Slots.open(path, self._layout, request.count) for path in request.slots]
        weights = lay_out(dict(self.problem.state))
        if weights.tensors:
            for path in request.states:
                Slots.open(path, weights, 1).write(0, list(self.problem.state.values()))
        self._memory = map_file(request.results, request.results_bytes)
        self._held, self._earlier = {}, {}
        return Ready()

    def _fill(self, request: Fill) -> Ready:
        for contents in request.contents:
            if contents.slot in self._held:
                self._earlier.setdefault(contents.slot, []).append(self._held[contents.slot])
            self._held[contents.slot] = contents
            _, tensors = inputs_of(self.problem, contents)
            for slots in self._slots:
                slots.write(contents.slot, tensors)
        return Ready()

    def _check(self, request: Check) -> Checked:
        pairs = zip(request.slots, request.places, strict=True)
        return Checked(tuple(self._audit(slot, specs, request.side) for slot, specs in pairs))

    def _audit(self, slot: int, specs: tuple[TensorSpec, ...], side: int) -> Audit:
        """Compare the result of one slot, whose tensors lie in the file of results."""
        contents = self._held[slot]
        skeleton, tensors = inputs_of(self.problem, contents)
        audit = Audit(slot, contents.kind, changed=self._changed(slot, tensors, side))
        memory = self._memory
        assert memory is not None
        try:
            outputs: list[torch.Tensor] = [view_of(memory, spec, 0).clone() for spec in specs]
            arguments = put_together(skeleton, [t.clone() for t in tensors])
            answer = answer_of(self.problem, arguments, contents.kind != NOMINAL)
            error, bound = compare(self.problem, put_together(skeleton, tensors), outputs, answer)
            return Audit(slot, contents.kind, error, bound, changed=audit.changed)
        except WrongResult as wrong:
            replayed = self._is_replayed(slot, outputs)
            return Audit(
                slot, contents.kind, reason=str(wrong), replayed=replayed, changed=audit.changed
            )

    def _changed(self, slot: int, tensors: list[torch.Tensor], side: int) -> str:
        """Return the number of an input that the call changed; empty if there is none."""
        for number, (now, then) in enumerate(
            zip(self._slots[side].tensors(slot), tensors, strict=True)
        ):
            if not torch.equal(_bits(now), _bits(then)):
                return str(number + 1)
        return ""

    def _is_replayed(self, slot: int, outputs: list[torch.Tensor]) -> bool:
        """Return whether *outputs* answer contents that the slot had before."""
        for contents in self._earlier.get(slot, [])[-3:]:
            arguments = put_together(*inputs_of(self.problem, contents))
            try:
                answer = answer_of(self.problem, arguments, contents.kind != NOMINAL)
                compare(self.problem, arguments, outputs, answer)
            except WrongResult:
                continue
            return True
        return False


NARROW = "answers are in the reference's own dtype: it does not run in float64"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _cost(inputs: Layout, results: tuple[TensorSpec, ...]) -> Cost:
    """Return a cost of the least bytes: inputs read once, and results written once."""
    read = sum(spec.bytes for spec in inputs.tensors)
    return Cost((), (Bytes(read=read, written=sum(spec.bytes for spec in results)),))


def main(arguments: list[str] | None = None) -> int:
    """Serve requests until the clerk ends."""
    return serve(Answers().answer, ToAnswers, arguments)


if __name__ == "__main__":
    sys.exit(main())
