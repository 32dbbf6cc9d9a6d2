"""Compute what a device could do at best: arithmetic without a GPU, each formula with its source.

Each module with a `THEORY` is a theory, `gpuperf theory NAME`.
"""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "theory",
    "Compute bytes, FLOPs, limits and crossovers by formula, without a GPU.",
    "gpuperf.theory.command:theory",
    parameters="gpuperf.theory.command:parameters_help",
)
