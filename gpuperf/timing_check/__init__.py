"""Compare every timer with CUPTI on the same kernels."""

from gpuperf.verb.verb import Chart, Verb

VERB = Verb(
    "timing-check",
    "Check every timer against CUPTI in several processes.",
    "gpuperf.timing_check.command:timing_check",
    axes=True,
    measures=True,
    placed=False,
    tables="gpuperf.timing_check.table:render_timing",
    charts=(Chart("gpuperf.timing_check.chart:draw_timing"),),
)
