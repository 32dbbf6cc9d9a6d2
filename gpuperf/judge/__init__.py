"""Judge a kernel that somebody else wrote, by evidence that the kernel cannot forge."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "judge",
    "Judge a submitted kernel against a reference, by evidence that it cannot forge.",
    "gpuperf.judge.command:judge",
    group=True,
)
