"""Measure a workload over its sizes and place each under the roofline."""

from gpuperf.verb.verb import Chart, Verb

VERB = Verb(
    "roofline",
    "Measure OP over sizes and place each under the roofline.",
    "gpuperf.roofline.command:roofline",
    axes=True,
    measures=True,
    tables="gpuperf.roofline.output:render_rows",
    charts=(
        Chart("gpuperf.roofline.chart:draw_roofline", html="gpuperf.roofline.page:roofline_html"),
    ),
)
