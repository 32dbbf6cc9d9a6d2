"""Measure every host of a fleet alone, and name the hosts that are slower than their peers."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "fleet",
    "Measure the hosts of a fleet, and name the bad ones.",
    "gpuperf.fleet.command:fleet",
    group=True,
    measures=True,
)
