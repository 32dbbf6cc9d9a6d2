"""Measure what sizes off the alignment grid lose."""

from gpuperf.verb.verb import Chart, Verb

VERB = Verb(
    "alignment",
    "Throughput by the alignment of a row: what sizes off the grid lose, and which kernels ran.",
    "gpuperf.alignment.command:alignment",
    axes=True,
    measures=True,
    tables="gpuperf.alignment.table:render_alignment",
    charts=(Chart("gpuperf.alignment.chart:draw_alignment"),),
)
