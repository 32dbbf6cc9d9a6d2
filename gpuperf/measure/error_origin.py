"""Describe an exception to a workload's author: which of its functions raised, and at which line.

A traceback runs through gpuperf, the workload's file and the libraries that it calls; the frames
in the author's own files are the ones that help.
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
from typing import Any

import torch

import gpuperf
from gpuperf.model.workload import Implementation, Workload

MOST_FRAMES = 3  # frames of the author's code in a hint
GPUPERF = Path(gpuperf.__file__).resolve().parent
KERNELS = "kernels"  # the folder of gpuperf that has the workloads
TORCH = Path(torch.__file__).resolve().parent
STANDARD = Path(sysconfig.get_path("stdlib")).resolve()


def describe_error(
    error: BaseException, workload: Workload, implementation: str
) -> tuple[str, str]:
    """Return the reason and the hint for the record of a case whose workload raised *error*."""
    if os.environ.get("GPUPERF_DEBUG"):
        traceback.print_exception(error, file=sys.stderr)  # the worker's, which --debug shows
    frames = _author_frames(error)
    implemented = next((i for i in workload.implementations if i.name == implementation), None)
    part = _part(error.__traceback__, workload, implemented)
    return f"{part} raised {type(error).__name__}: {first_line(error)}{place(error)}", _path(frames)


def _author_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of *error* outside gpuperf and libraries.

    Without any, return those in installed packages other than torch.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not _of_library(Path(frame.filename))]
    return [frame for frame in theirs if not _is_installed(Path(frame.filename))] or theirs


def place(error: BaseException) -> str:
    """Return the innermost line of the author's code, as ` (mine.py:31)`, or an empty text."""
    frames = _author_frames(error)
    return f" ({_place(frames[-1])})" if frames else ""


def is_no_memory(error: BaseException) -> bool:
    """Return whether *error* says that no memory was left: torch's allocator of a CPU, and cuBLAS,
    say so in words alone."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in ("can't allocate memory", "STATUS_ALLOC_FAILED"))


def describe_no_memory(error: BaseException) -> str:
    """Return which allocation failed, without the allocator's advice."""
    text = str(error)
    size = re.search(r"tried to allocate (\d+) bytes", text, re.IGNORECASE)
    if size:
        return f"{int(size[1]) / 1e9:,.1f} GB could not be allocated{place(error)}"
    size = re.search(r"tried to allocate ([\d.]+ [KMGT]?i?B)", text, re.IGNORECASE)
    free = re.search(r"of which ([\d.]+ [KMGT]?i?B) is free", text)
    if size:
        beside = f", and {free[1]} are free" if free else ""
        return f"{size[1]} could not be allocated{beside}{place(error)}"
    return first_line(error) + place(error)


def first_line(error: BaseException) -> str:
    """Return the first line of the message of *error*; its type where it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else type(error).__name__


def _of_library(file: Path) -> bool:
    """Return whether *file* is the standard library's, torch's, or gpuperf's but no workload."""
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
    """Return the name of the workload's function in the traceback; without one, `the call`."""
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
    """Return the code of a function, also behind `functools.partial`, a decorator or a method."""
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
    last = [f"{_place(frame)} in {frame.name}" for frame in reversed(frames[-MOST_FRAMES:])]
    return f"{', called by '.join(last)}; --debug prints the whole stack" if last else ""
