"""Turn reports of other profilers into run files (the verb `import`)."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "import",
    "Import an Nsight Compute report or a torch.profiler trace.",
    "gpuperf.importing.command:import_file",
)
