"""Define the errors of gpuperf, with their exit codes.

GpuperfError
├── UsageError            2   a mistake of the user: an option, a name, a file
│   ├── UnknownName       2   an unknown name, with the nearest known one
│   └── RunFileError      2   a run file that cannot be read
├── CannotMeasure         3   no device, no timer, no workload that loads
│   ├── Unsupported       3   an implementation that turns out at build time not to run here
│   └── WorkloadError     2   the file of a workload has a mistake
└── Incomplete            4   the run was stopped; what was measured is kept

Every message is one sentence with the value in it; `hint` says what to do next. The tree is
caught once, in `gpuperf.app`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NEAR = 0.6  # difflib's ratio: "matmull" is near to "matmul", "nope" is not near to "copy"
MOST_GUESSES = 4
# Names that other tools use, and the names of gpuperf with the same meaning.
SYNONYMS = {
    "gpu": "cuda:0",
    **dict.fromkeys(("normal", "gaussian", "random"), "randn"),
    **dict.fromkeys(("half", "float16"), "fp16"),
    "bfloat16": "bf16",
    **dict.fromkeys(("float", "float32", "single"), "fp32"),
    **dict.fromkeys(("double", "float64"), "fp64"),
    **dict.fromkeys(("gemm", "mm"), "matmul"),
}


class GpuperfError(Exception):
    """The root of the tree: a message for the user, a hint, and the exit code of the process."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.advise(hint)

    def advise(self, hint: str) -> None:
        """Let *hint* be the hint, which tracebacks show too."""
        self.hint = hint
        self.__notes__ = [f"hint: {hint}"] if hint else []


class UsageError(GpuperfError):
    """A mistake of the user; nothing was measured."""


class UnknownName(UsageError):
    """An unknown name: `no workload 'matmull'; did you mean 'matmul'?`"""

    def __init__(
        self, noun: str, name: str, known: Iterable[str], hint: str = "", message: str = ""
    ) -> None:
        """Make the message; *message* replaces `no {noun} {name}`."""
        names = sorted(known)
        guess = _guess(name.lower(), {n.lower(): n for n in names})
        first = ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
        super().__init__(
            f"{message or f'no {noun} {name!r}'}{guess}",
            hint or (f"known: {first}" if names else ""),
        )


def _guess(name: str, known: dict[str, str]) -> str:
    """Return a guess at the name that was meant, or nothing if no known name is near enough.

    The hyphens of an option make it no nearer to another one.
    """
    name, known = name.lstrip("-"), {n.lstrip("-"): shown for n, shown in known.items()}
    starting = [n for n in known if name and n.startswith(name)]
    near = starting[:MOST_GUESSES] if len(starting) <= MOST_GUESSES else []
    near = near or [n for n in (SYNONYMS.get(name),) if n in known]
    near = near or difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
    return f"; did you mean {' or '.join(repr(known[n]) for n in near)}?" if near else ""


class RunFileError(UsageError):
    """A run file that is missing, broken beyond its last line, or from a newer gpuperf."""


class CannotMeasure(GpuperfError):
    """This machine or this gpuperf cannot measure, or no case could be measured."""

    exit_code = 3


class Unsupported(CannotMeasure):
    """An implementation cannot run on this device, as its library reports; the record is
    `skipped`."""


class WorkloadError(CannotMeasure):
    """The file of a workload does not load, or lacks something that a workload needs; this is a
    mistake of the user, like an unknown name."""

    exit_code = 2


class Incomplete(GpuperfError):
    """The run stopped before its end; the records written so far are valid."""

    exit_code = 4
