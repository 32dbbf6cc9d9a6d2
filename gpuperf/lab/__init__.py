"""Predict an effect of the hardware, measure it, and rule whether the prediction holds."""

from gpuperf.verb.verb import Chart, Verb

VERB = Verb(
    "lab",
    "Predict an effect of the hardware, then measure it, and rule on the prediction.",
    "gpuperf.lab.command:lab",
    measures=True,
    placed=False,
    parameters="gpuperf.lab.command:axes_help",
    tables="gpuperf.lab.table:render_lab",
    charts=(Chart("gpuperf.lab.chart:draw_lab"),),
)
