"""Read flashinfer-bench definitions, workloads and solutions, and write traces.

A definition's workloads are the lines of `workloads/**/NAME.jsonl` below the folder that holds
`definitions/`. Statuses of the judge without an equal there (suspect, inconclusive, unfair-task)
leave no trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.files import write_atomically
from gpuperf.judge.fact import Status
from gpuperf.judge.reading import read_json, read_text
from gpuperf.judge.task import Submission, TaskCase, TaskSource
from gpuperf.judge.verdict import JudgedCase, Verdict

LANGUAGES = ("python", "triton")
STATUSES: Mapping[Status, str] = {
    "valid": "PASSED",
    "wrong": "INCORRECT_NUMERICAL",
    "cheat": "INCORRECT_NUMERICAL",
    "timeout": "TIMEOUT",
    "oom": "RUNTIME_ERROR",
    "crashed": "RUNTIME_ERROR",
    "compile-error": "COMPILE_ERROR",
}


def read_definition(path: Path, cases: int) -> TaskSource:
    """Return the task that the definition *path* and its workloads describe. Raises: UsageError."""
    definition = read_json(path)
    missing = [
        key for key in ("name", "axes", "inputs", "outputs", "reference") if key not in definition
    ]
    if missing:
        raise UsageError(f"{path} is no definition: it has no {missing[0]!r}")
    workloads = _workloads(path, str(definition["name"]))
    variable = [a for a, axis in definition["axes"].items() if axis.get("type") != "const"]
    if not workloads and variable:
        raise UsageError(
            f"the axis {variable[0]!r} of {path} has no value",
            f"flashinfer-bench keeps workloads in workloads/…/{definition['name']}.jsonl",
        )
    found = tuple(
        TaskCase(str(w.get("uuid", f"workload {i + 1}")), w) for i, w in enumerate(workloads)
    )
    return TaskSource(
        "flashinfer",
        str(path.absolute()),
        (found or (TaskCase("default", {"axes": {}, "inputs": {}}),))[:cases],
        entry=str(definition["name"]),
        definition=definition,
    )


def _workloads(path: Path, name: str) -> list[Mapping[str, Any]]:
    roots = [parent for parent in path.absolute().parents if parent.name == "definitions"]
    if not roots or "/" in name or name.startswith("."):
        return []
    workloads = []
    for file in sorted((roots[0].parent / "workloads").rglob(f"{name}.jsonl")):
        for line in read_text(file).splitlines():
            try:
                entry = json.loads(line) if line.strip() else {}
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{file} is not JSON lines: {error}") from None
            if isinstance(entry, dict) and isinstance(entry.get("workload"), dict):
                workloads.append(entry["workload"])
    return workloads


def read_solution(path: Path, task: TaskSource, folder: Path) -> Submission:
    """Write the sources of the solution *path* into *folder*, and return its entry point.

    Raises: UsageError.
    """
    solution = read_json(path)
    spec, sources = solution.get("spec"), solution.get("sources")
    if not isinstance(spec, dict) or not isinstance(sources, list):
        raise UsageError(f"{path} is no solution: it has no spec or no sources")
    if solution.get("definition") != task.entry:
        raise UsageError(f"{path} solves {solution.get('definition')!r}, and not {task.entry!r}")
    languages = spec.get("languages") or [spec.get("language")]
    if not set(map(str, languages)) <= set(LANGUAGES):
        raise UsageError(f"{path} is in {languages[0]!r}", "the judge runs python and triton")
    for source in sources:
        _write_source(path, source, folder)
    file, _, entry = str(spec.get("entry_point", "")).partition("::")
    if not entry or not _is_below(file) or not (folder / file).is_file():
        raise UsageError(f"{path} has no entry point 'file.py::function'")
    writes = bool(spec.get("destination_passing_style", True))
    return Submission(str(folder / file), entry, str(solution.get("name", path.stem)), writes)


def _write_source(path: Path, source: Any, folder: Path) -> None:
    name = str(source.get("path", "")) if isinstance(source, dict) else ""
    if not _is_below(name):
        raise UsageError(f"{path} has a source with the path {name[:80]!r}")
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(str(source.get("content", "")), encoding="utf-8")


def _is_below(name: str) -> bool:
    pure = PurePosixPath(name)
    return bool(name) and not pure.is_absolute() and ".." not in pure.parts and "\0" not in name


def append_traces(verdict: Verdict, task: TaskSource, submission: Path, trace: Path) -> int:
    """Append a trace of each case to the file *trace*, and return how many there are.

    Raises: UsageError for another format.
    """
    if task.format != "flashinfer":
        raise UsageError("--trace writes traces of flashinfer-bench alone", "drop --trace")
    solution = read_json(submission) if submission.suffix == ".json" else {}
    name = str(solution.get("name", submission.stem))
    values = {case.name: case.values for case in task.cases}
    lines = [
        json.dumps(
            {
                "definition": task.entry,
                "solution": name,
                "workload": dict(values[case.evidence.case]),
                "evaluation": _evaluation(case, verdict),
            }
        )
        for case in verdict.cases
        if case.judgement.status in STATUSES
    ]
    before = read_text(trace) if trace.exists() else ""
    try:
        write_atomically(trace, before + "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise UsageError(f"{trace} cannot be written: {error.strerror}") from None
    return len(lines)


def _evaluation(case: JudgedCase, verdict: Verdict) -> Mapping[str, Any]:
    judged, score = case.judgement, case.judgement.score
    audits = [audit for audit in case.evidence.decided if not audit.reason]
    relative = max((audit.error for audit in audits), default=None)
    absolute = max((a.absolute for a in audits if a.absolute is not None), default=None)
    passed = score is not None
    return {
        "status": STATUSES[judged.status],
        "environment": {
            "hardware": verdict.machine.get("processor", ""),
            "libs": {"gpuperf": verdict.gpuperf},
        },
        "timestamp": verdict.created,
        "log": f"{judged.status}: {judged.reason}" if judged.reason else judged.status,
        "correctness": {"max_relative_error": relative, "max_absolute_error": absolute}
        if passed
        else None,
        "performance": {
            "latency_ms": score.time_s * 1e3,
            "reference_latency_ms": score.reference_s * 1e3,
            "speedup_factor": score.speedup,
        }
        if score is not None
        else None,
    }
