"""Split the time of a case into losses, from the data sheet to what was attained."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "explain",
    "The loss budget of a case: each step from the data sheet's peak to what was attained.",
    "gpuperf.explain.command:explain",
)
