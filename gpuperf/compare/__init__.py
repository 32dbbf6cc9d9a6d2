"""Compare the implementations of a workload."""

from gpuperf.verb.verb import Chart, Verb

VERB = Verb(
    "compare",
    "Measure every implementation of OP: speed-up over a baseline, bytes, memory, error, kernels.",
    "gpuperf.compare.command:compare",
    axes=True,
    measures=True,
    charts=(
        Chart("gpuperf.compare.chart:draw_comparison"),
        Chart("gpuperf.roofline.output:draw_best", suffix="-roofline"),
    ),
)
