"""Define what is known of one region of a program: its request, its traces, its passes."""

from __future__ import annotations

from dataclasses import dataclass

from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.program import PassName, PassResult, Prompts
from gpuperf.model.record import Caveat
from gpuperf.model.timeline import Timeline
from gpuperf.profile.trace.steps import StepWindow


@dataclass(frozen=True)
class RegionPasses:
    """A region of a program and the results of its passes.

    `timeline` is that of the trace, `light` that of the light pass. `windows` are the steps of the
    trace if the program does not mark them, `total` are all steps of the region, `device` is the
    GPU by whose clock steps were timed. `phases` is a caveat if the time of plain steps changed.
    `prompts` are the forward passes of prompts before steps that decode tokens.
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
    prompts: tuple[Prompts, ...] = ()

    def result(self, name: PassName) -> PassResult | None:
        """Return the result of the pass *name* if it took a step."""
        return next((p for p in self.passed if p.name == name and p.steps), None)
