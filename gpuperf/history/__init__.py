"""Show cases over time: trends and change points."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "history",
    "Show each case over time: trends and significant changes.",
    "gpuperf.history.command:history",
    group=True,
    page="gpuperf.history.page:page_of",
)
