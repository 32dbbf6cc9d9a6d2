"""Compare the implementations of a workload."""

from gpuperf.verb.verb import Chart, Verb

VERB = Verb(
    "compare",
    "Compare implementations of OP: time, bytes, memory, error.",
    "gpuperf.compare.command:compare",
    axes=True,
    measures=True,
    below="gpuperf.compare.steps:steps_tables",
    charts=(
        Chart("gpuperf.compare.chart:draw_comparison"),
        Chart(
            "gpuperf.roofline.output:draw_best",
            suffix="-roofline",
            html="gpuperf.roofline.page:roofline_html",
        ),
    ),
)
