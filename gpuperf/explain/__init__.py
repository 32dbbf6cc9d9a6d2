"""Split the time of a case into losses, from the data sheet to what was attained."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "explain",
    "Show the losses between a case's peak and measured rate.",
    "gpuperf.explain.command:explain",
)
