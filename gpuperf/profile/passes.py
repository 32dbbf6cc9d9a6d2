"""Hold a region of a program with the results of its passes."""

from __future__ import annotations

from dataclasses import dataclass

from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.program import PassName, PassResult
from gpuperf.model.record import Caveat
from gpuperf.model.timeline import Timeline
from gpuperf.profile.trace.steps import StepWindow


@dataclass(frozen=True)
class RegionPasses:
    """A region of a program and the results of its passes.

    `windows` are the steps in the trace where no marks tell them, `light` is the timeline of the
    light pass, and `device` the GPU by whose clock the steps were timed. `phases` is a caveat about
    the steps of the plain pass.
    """

    run: str
    region: str
    script: str
    contract: Contract
    fingerprint: Fingerprint
    passed: tuple[PassResult, ...]
    timeline: Timeline | None = None
    windows: tuple[StepWindow, ...] = ()
    total: int = 0
    exit_code: int | None = None
    error: str = ""
    items: float | None = None
    cuda: bool = False
    light: Timeline | None = None
    device: int | None = None
    phases: Caveat | None = None

    def result(self, name: PassName) -> PassResult | None:
        """Return the result of the pass *name* if it took a step."""
        return next((p for p in self.passed if p.name == name and p.steps), None)
