"""List the workloads (the verb `list`)."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "list", "List the workloads, or show one in full.", "gpuperf.listing.command:list_workloads"
)
