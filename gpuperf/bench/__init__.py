"""Run existing benchmark scripts of Triton, and time what they time (the verb `bench`)."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "bench",
    "Run existing Triton benchmark scripts, timed by gpuperf.",
    "gpuperf.bench.command:bench",
    measures=True,
)
