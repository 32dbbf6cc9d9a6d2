"""Define the verdict on a submission, write it as a file, read it, and judge its evidence again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from gpuperf.errors import UsageError
from gpuperf.files import read_regular, write_atomically
from gpuperf.judge.evidence import CaseEvidence, Grade
from gpuperf.judge.fact import Status
from gpuperf.judge.rule import EXIT_CODES, ORDER, Judgement, judge_case
from gpuperf.judge.score import Score
from gpuperf.judge.task import Format
from gpuperf.model.codec import decode, encode

# Schema 2 added what was observed of a GPU, schema 3 when the work of a window began, and schema 4
# whether the cost is derived from the reference.
SCHEMA, OLDEST = 4, 1
LARGEST = 32 << 20  # bytes


@dataclass(frozen=True)
class Named:
    """A file of a task or a submission: its name and the SHA-256 of its contents."""

    name: str
    sha256: str


@dataclass(frozen=True)
class JudgedCase:
    """A case with its evidence and the judgement that follows from it."""

    evidence: CaseEvidence
    judgement: Judgement


@dataclass(frozen=True)
class Verdict:
    """The verdict on a submission.

    `status` is the worst of its cases. If all are valid, `score` is the geometric mean of their
    speed-ups over the reference, `compiled` that over torch.compile of the reference, and `light`
    that of their shares of the roof (None: unknown in a case). `kind` tells this file from the
    verdict of a gate.
    """

    created: str
    gpuperf: str
    format: Format
    submission: Named
    reference: Named
    status: Status
    reason: str
    grade: Grade
    cases: tuple[JudgedCase, ...]
    score: Score | None = None
    compiled: Score | None = None
    light: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    took_s: float = 0.0
    kind: Literal["judge"] = "judge"
    schema: int = SCHEMA


def conclude(verdict: Verdict) -> Verdict:
    """Return *verdict* with the judgements, the status and the score that its evidence gives.

    Raises: ValueError without a case.
    """
    if not verdict.cases:
        raise ValueError("the verdict has no case")
    cases = tuple(replace(c, judgement=judge_case(c.evidence)) for c in verdict.cases)
    worst = min(cases, key=lambda case: ORDER.index(case.judgement.status))
    status, reason = worst.judgement.status, worst.judgement.reason
    score = _mean([c.judgement.score for c in cases])
    compiled = _mean([c.judgement.compiled for c in cases])
    shares = [c.judgement.light.share for c in cases if c.judgement.light is not None]
    light = _geometric(shares) if len(shares) == len(cases) else None
    if reason and len(cases) > 1:
        reason = f"{worst.evidence.case}: {reason}"
    grade = max(case.evidence.grade for case in cases)
    judged = replace(verdict, cases=cases, status=status, reason=reason, grade=grade)
    return replace(judged, score=score, compiled=compiled, light=light)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _mean(known: Sequence[Score | None]) -> Score | None:
    """Return the geometric mean of the scores of all cases; None if one of them has none."""
    scores = [score for score in known if score is not None]
    if len(scores) < len(known):
        return None
    if len(scores) == 1:
        return scores[0]
    return Score(
        _geometric([s.speedup for s in scores]),
        _geometric([s.low for s in scores]),
        _geometric([s.high for s in scores]),
        sum(s.time_s for s in scores),
        sum(s.reference_s for s in scores),
        scores[0].over,
    )


def exit_code(verdict: Verdict) -> int:
    """Return 0 for valid, 1 for wrong or cheat, 3 if nothing could be judged, else 4."""
    return EXIT_CODES[verdict.status]


def write_verdict(verdict: Verdict, path: Path) -> None:
    """Write *verdict* to *path*, whole or not at all. Raises: UsageError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, encode(verdict) + b"\n")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", "choose another --out"
        ) from None


def read_verdict(path: Path) -> Verdict:
    """Read the verdict in *path*. Raises: UsageError if it is none that the judge wrote."""
    hint = "use the verdict.json of `gpuperf judge`; without a verdict nothing is valid"
    try:
        data = read_regular(path, LARGEST)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from None
    try:
        header = json.loads(data)
        if not isinstance(header, dict) or header.get("kind") != "judge":
            raise ValueError("it was not written by the judge")
        if header.get("schema") not in range(OLDEST, SCHEMA + 1):
            known = f"{OLDEST} to {SCHEMA}"
            raise ValueError(f"its schema is {str(header.get('schema'))[:20]}, not {known}")
        return decode(data, Verdict)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a verdict: {str(error)[:200]}", hint) from None


def recheck(verdict: Verdict) -> Verdict:
    """Judge the evidence of *verdict* again, and return the new verdict.

    Raises: UsageError if its status or its score differs.
    """
    hint = "the file was changed, or another gpuperf wrote it: judge the submission again"
    try:
        again = conclude(verdict)
    except (ValueError, ArithmeticError) as error:
        raise UsageError(f"the evidence is not whole: {str(error)[:200]}", hint) from None
    if again.status != verdict.status:
        raise UsageError(
            f"the verdict is {verdict.status!r}, and its evidence says {again.status!r}", hint
        )
    scores = [(v.score, v.compiled, v.light) for v in (again, verdict)]
    if scores[0] != scores[1]:
        raise UsageError("the score does not follow from the times in the evidence", hint)
    return again
