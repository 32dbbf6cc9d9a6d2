"""What can go wrong, and which exit code says so.

GpuperfError
├── UsageError            2   the caller's slip: an option, a name, a file
│   ├── UnknownName       2   with the nearest name there is
│   └── RunFileError      2   a run file that cannot be read
├── CannotMeasure         3   no device, no timer, no workload that loads
│   ├── Unsupported       3   an implementation found while it was built that it cannot run here
│   └── WorkloadError     2   a workload's own file is at fault
└── Incomplete            4   stopped half-way; what was measured is kept

Every message is one sentence with the value in it; `hint` says what to do next. The tree is
caught once, in `gpuperf.app`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NEAR = 0.6  # of difflib's ratio: "nope" is no slip for "copy", "matmull" is one for "matmul"
MOST_GUESSES = 4
# Words that users bring from elsewhere, and the names here that they mean.
SYNONYMS = {
    "gpu": ("cuda:0",),
    "normal": ("randn",),
    "gaussian": ("randn",),
    "random": ("randn",),
    "half": ("fp16",),
    "float16": ("fp16",),
    "bfloat16": ("bf16",),
    "float": ("fp32",),
    "float32": ("fp32",),
    "single": ("fp32",),
    "double": ("fp64",),
    "float64": ("fp64",),
    "gemm": ("matmul",),
    "mm": ("matmul",),
}


class GpuperfError(Exception):
    """The root: a sentence for the user, a hint, and the process's exit code."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(GpuperfError):
    """What was asked makes no sense; nothing was measured."""


class UnknownName(UsageError):
    """A name that is not there: `no workload 'matmull'; did you mean 'matmul'?`"""

    def __init__(
        self, noun: str, name: str, known: Iterable[str], hint: str = "", message: str = ""
    ) -> None:
        """Make the message; *message* replaces `no {noun} {name}`."""
        names = sorted(known)
        guess = _guess(name.lower(), {n.lower(): n for n in names})
        shown = ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
        super().__init__(
            f"{message or f'no {noun} {name!r}'}{guess}",
            hint or (f"known: {shown}" if names else ""),
        )


def _guess(name: str, known: dict[str, str]) -> str:
    """What *name* may have meant; nothing where no known name is near enough."""
    starting = [n for n in known if name and n.startswith(name)]
    near = starting[:MOST_GUESSES] if len(starting) <= MOST_GUESSES else []
    near = near or [n for n in SYNONYMS.get(name, ()) if n in known][:1]
    near = near or difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
    return f"; did you mean {' or '.join(repr(known[n]) for n in near)}?" if near else ""


class RunFileError(UsageError):
    """A run file that is missing, broken beyond its last line, or from a newer gpuperf."""


class CannotMeasure(GpuperfError):
    """There is nothing here to measure with, or nothing was measured."""

    exit_code = 3


class Unsupported(CannotMeasure):
    """An implementation does not do this here, and only its library could tell: a row `skipped`."""


class WorkloadError(CannotMeasure):
    """A workload's file does not load, or does not say what a workload must; like a name that does
    not exist, this is a slip in what was asked for."""

    exit_code = 2


class Incomplete(GpuperfError):
    """The run stopped before its end; the records written so far stand."""

    exit_code = 4
