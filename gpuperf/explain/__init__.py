"""Split the gap between a case's peak and its attained rate into losses (the verb `explain`)."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "explain",
    "Show the losses between a case's peak and measured rate.",
    "gpuperf.explain.command:explain",
)
