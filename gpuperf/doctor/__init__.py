"""Check this machine before measuring on it."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "doctor",
    "Look at this machine before believing what it measures; nothing is changed.",
    "gpuperf.doctor.command:doctor",
)
