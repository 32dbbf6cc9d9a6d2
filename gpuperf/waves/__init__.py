"""Measure matmul throughput over size and explain it by tiles and waves."""

from gpuperf.verb.verb import Chart, Verb

VERB = Verb(
    "waves",
    "Compare matmul throughput with what tiles and waves predict.",
    "gpuperf.waves.command:waves",
    axes=True,
    measures=True,
    tables="gpuperf.waves.table:render_waves",
    charts=(
        Chart("gpuperf.waves.chart:draw_waves"),
        Chart(
            "gpuperf.waves.heatmap:draw_heatmap",
            suffix="-heatmap",
            noun="heatmap",
            fits="gpuperf.waves.plane:varies_both",
            shown=True,
        ),
    ),
)
