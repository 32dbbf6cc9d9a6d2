"""Show cases over time: trends and change points."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "history",
    "How cases went over the runs of a folder: trends, and steps that are no chance.",
    "gpuperf.history.command:history",
    group=True,
)
