"""Turn reports of other profilers into run files (the verb `import`)."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "import",
    "Make a run file of a report or a trace that exists: its kernels under the roofline.",
    "gpuperf.importing.command:import_file",
)
