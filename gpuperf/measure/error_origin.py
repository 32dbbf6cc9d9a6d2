"""Which function of a workload raised, and where in its author's own files?

A traceback runs through gpuperf, the workload's file and the libraries that it calls. What helps
its author is which of the workload's functions raised, and the last line of their own.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, TypeVar, get_args

import torch

import gpuperf
from gpuperf.errors import WorkloadError
from gpuperf.model.codec import decode, encode
from gpuperf.model.cost import Cost, FlopKind
from gpuperf.model.workload import Implementation, Workload

T = TypeVar("T", bound=Cost)

MOST_FRAMES = 3  # of the author's, in a hint
GPUPERF = Path(gpuperf.__file__).resolve().parent
KERNELS = "kernels"  # the one folder of ours that holds workloads
TORCH = Path(torch.__file__).resolve().parent
STANDARD = Path(sysconfig.get_path("stdlib")).resolve()


def describe_error(
    error: BaseException, workload: Workload, implementation: str
) -> tuple[str, str]:
    """The reason and the hint of a record whose workload raised *error*."""
    if os.environ.get("GPUPERF_DEBUG"):
        traceback.print_exception(error, file=sys.stderr)  # the worker's, which --debug shows
    frames = _own_frames(error)
    used = next((i for i in workload.implementations if i.name == implementation), None)
    part = _part(error.__traceback__, workload, used)
    return f"{part} raised {type(error).__name__}: {first_line(error)}{place(error)}", _path(frames)


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of *error* in files that are neither gpuperf's nor a library's; where there is
    none, those in installed packages other than torch."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not _of_library(Path(frame.filename))]
    return [frame for frame in theirs if not _is_installed(Path(frame.filename))] or theirs


def place(error: BaseException) -> str:
    """` (mine.py:31)`, the last line of the author's own; empty where there is none."""
    frames = _own_frames(error)
    return f" ({_place(frames[-1])})" if frames else ""


def no_memory(error: BaseException) -> str:
    """What did not fit into memory, without the allocator's advice."""
    text = str(error)
    asked = re.search(r"tried to allocate (\d+) bytes", text, re.IGNORECASE)
    if asked:
        return f"{int(asked[1]) / 1e9:,.1f} GB could not be allocated{place(error)}"
    asked = re.search(r"tried to allocate ([\d.]+ [KMGT]?i?B)", text, re.IGNORECASE)
    free = re.search(r"of which ([\d.]+ [KMGT]?i?B) is free", text)
    if asked:
        beside = f", and {free[1]} are free" if free else ""
        return f"{asked[1]} could not be allocated{beside}{place(error)}"
    return first_line(error) + place(error)


def first_line(error: BaseException) -> str:
    """The first line of what *error* says; its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else type(error).__name__


def read_back(value: Any, kind: type[T], function: str) -> T:
    """*value*, which the workload's *function* returned, as the record will hold it.

    Raises: WorkloadError where it is no *kind*.
    """
    hint = f"{function}(point) returns a {kind.__name__}(flops=(Flops(…),), bytes=(Bytes(…),))"
    if not isinstance(value, Cost):
        raise WorkloadError(f"{function}(point) returned {_told(value)}", hint)
    for field in ("flops", "bytes"):
        if not isinstance(getattr(value, field), tuple | list):
            lacking = f"`{field}` of what {function}(point) returned is no tuple"
            raise WorkloadError(lacking, f"{field}=(…,), with a comma before the parenthesis")
    for flops in value.flops:
        kinds = get_args(FlopKind)
        if getattr(flops, "kind", None) not in kinds:
            told = f"{function}(point) counts FLOPs of the kind {getattr(flops, 'kind', flops)!r}"
            raise WorkloadError(told, f"the kinds are {', '.join(kinds)}")
    try:
        return decode(encode(value), kind)
    except (TypeError, ValueError) as error:
        told = f"{function}(point) returned no sound {kind.__name__}: {error}"
        raise WorkloadError(told, "counts are whole numbers: divide with //") from None


def _told(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _of_library(file: Path) -> bool:
    """Whether *file* is gpuperf's, torch's or the standard library's; its workloads are not."""
    if str(file).startswith("<"):
        return True
    if not file.is_absolute():
        return False
    if file.is_relative_to(TORCH):
        return True
    if file.is_relative_to(GPUPERF):
        return KERNELS not in file.relative_to(GPUPERF).parts[:1]
    return file.is_relative_to(STANDARD) and not _is_installed(file)


def _is_installed(file: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(file.parts))


def _part(
    trace: TracebackType | None, workload: Workload, implementation: Implementation | None
) -> str:
    """Which of the workload's functions is in the traceback; the call where none of them is."""
    ran = {id(frame.f_code) for frame, _ in traceback.walk_tb(trace)}
    for name, function in _functions(workload, implementation):
        code = _code(function)
        if code is not None and id(code) in ran:
            return name
    return "the call"


def _functions(
    workload: Workload, implementation: Implementation | None
) -> Iterator[tuple[str, Callable[..., Any] | None]]:
    yield "the reference", workload.reference
    yield "inputs", workload.inputs
    yield "narrow", workload.narrow
    yield "cost", workload.cost
    if implementation is not None:
        yield f"build of {implementation.name}", implementation.build
        yield f"supports of {implementation.name}", implementation.supports
        yield f"work of {implementation.name}", implementation.work


def _code(function: Any) -> CodeType | None:
    """The code of a function, also behind `functools.partial`, a decorator or a method."""
    for _ in range(10):
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(vars(type(function)).get("__call__"), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _place(frame: traceback.FrameSummary) -> str:
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _path(frames: list[traceback.FrameSummary]) -> str:
    """The author's last frames, the innermost first."""
    last = [f"{_place(frame)} in {frame.name}" for frame in reversed(frames[-MOST_FRAMES:])]
    return f"{', called by '.join(last)}; --debug prints the whole stack" if last else ""
