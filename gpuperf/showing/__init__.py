"""Show a stored run (the verb `show`; the folder show/ is the layer of tables and figures)."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "show",
    "Print a run again, or draw its chart, or hold one profile against another; "
    "nothing is measured.",
    "gpuperf.showing.command:show",
)
