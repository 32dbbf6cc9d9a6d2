"""Keep the runs that later runs are compared with."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "baseline",
    "Runs that others are held against, by device and software.",
    "gpuperf.baseline.command:baseline",
    group=True,
)
