"""Keep the runs that later runs are compared with."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "baseline",
    "Manage baseline runs, one per device and software stack.",
    "gpuperf.baseline.command:baseline",
    group=True,
)
