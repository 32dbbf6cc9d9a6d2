"""Measure the ceilings that this device reaches."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "calibrate",
    "Measure the highest rates that this device reaches.",
    "gpuperf.calibrate.command:calibrate",
    measures=True,
)
