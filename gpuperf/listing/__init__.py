"""List the workloads (the verb `list`)."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "list",
    "The workloads: axes with their defaults, implementations, and the formula of the cost.",
    "gpuperf.listing.command:list_workloads",
)
