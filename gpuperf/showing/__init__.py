"""Show a stored run (the verb `show`; the folder show/ is the layer of tables and figures)."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "show",
    "Show a stored run, draw its chart, or compare two profiles.",
    "gpuperf.showing.command:show",
)
