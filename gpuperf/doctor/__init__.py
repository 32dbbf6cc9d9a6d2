"""Check this machine before measuring on it."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "doctor", "Check that this machine is ready to measure.", "gpuperf.doctor.command:doctor"
)
