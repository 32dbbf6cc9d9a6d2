"""Turn files of other profilers and benchmarks into run files (the verb `import`)."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "import",
    "Import an Nsight Compute report, a torch.profiler trace, or benchmark results.",
    "gpuperf.importing.command:import_file",
)
