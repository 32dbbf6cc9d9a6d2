"""Measure the ceilings that this device reaches."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "calibrate",
    "Measure what this device really reaches: matmul, memory, arithmetic, launches; kept.",
    "gpuperf.calibrate.command:calibrate",
    measures=True,
)
