"""Measure the links between GPUs, and from GPUs to the host."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "links",
    "Measure the links of every pair of GPUs, and to the host.",
    "gpuperf.links.command:links",
    measures=True,
    placed=False,
    tables="gpuperf.links.table:render_links",
)
