"""Measure the cases of a suite (the verb `run`; the folder run/ is the layer below)."""

from gpuperf.verb.verb import Verb

VERB = Verb("run", "Measure the cases of a suite.", "gpuperf.running.command:run", measures=True)
