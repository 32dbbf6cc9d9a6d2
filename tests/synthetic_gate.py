"""Build runs that a gate compares, without measuring."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

from fake_sides import DEVICE, case_of

from gpuperf.gate.compare import compare_runs as compare_brief
from gpuperf.gate.verdict import GateReport
from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Noise, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.summary import summarize
from gpuperf.model.workload import Case
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header

CONTRACT = Contract(timer="wall", gap_s=0.0)


HERE = Fingerprint(hard={"product": "a CPU"}, soft={"torch": "2.13"}, live={"host": "one"})


CASES = tuple(case_of("op0", n) for n in (64, 128, 256))


def run_of(
    slower: dict[str, float] | None = None,
    passes: int = 8,
    seed: int = 1,
    cases: Sequence[Case] = CASES,
    contract: Contract = CONTRACT,
    fingerprint: Fingerprint = HERE,
    noise: Noise | None = None,
    between: float = 0.002,
) -> Run:
    draw = random.Random(seed)
    opened = Opened(DEVICE, fingerprint)
    header = make_header(f"run-{seed}", ["gpuperf"], cases, [contract], opened, None, "", None, 0)
    records = []
    for index in range(passes):
        for case in cases:
            middle = 1e-4 * (1 + (slower or {}).get(case.id, 0.0))
            middle *= math.exp(draw.gauss(0, between))
            records.append(
                Record(
                    header.run,
                    case,
                    contract,
                    "ok",
                    fingerprint,
                    pass_index=index,
                    noise=noise,
                    times={"wall": Samples((middle, middle * 1.001, middle * 0.999))},
                    primary="wall",
                )
            )
    return Run(header, tuple(records))


def compare_runs(base: Run, head: Run, *more: object) -> GateReport:
    return compare_brief(summarize(base), summarize(head), *more)  # type: ignore[arg-type]


def written(run: Run, path: Path) -> Path:
    with RunWriter(path) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    return path
