"""Measure what sizes off the alignment grid lose."""

from gpuperf.verb.verb import Chart, Verb

VERB = Verb(
    "alignment",
    "Measure how the alignment of sizes changes throughput.",
    "gpuperf.alignment.command:alignment",
    axes=True,
    measures=True,
    tables="gpuperf.alignment.table:render_alignment",
    charts=(Chart("gpuperf.alignment.chart:draw_alignment"),),
)
