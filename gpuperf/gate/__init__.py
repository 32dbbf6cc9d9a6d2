"""Judge whether a change made the code slower."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "gate",
    "Judge a change: red on a real slowdown, green when nothing changed, and why.",
    "gpuperf.gate.command:gate",
    group=True,
)
