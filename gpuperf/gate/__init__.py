"""Judge whether a change made the code slower."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "gate",
    "Check a change for slowdowns, and fail on a real one.",
    "gpuperf.gate.command:gate",
    group=True,
    page="gpuperf.gate.page:page_of",
)
