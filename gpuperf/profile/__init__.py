"""Profile any PyTorch program: steps, operators, kernels, and what to change first."""

from gpuperf.verb.verb import Chart, Verb

VERB = Verb(
    "profile",
    "Profile a program and rank the changes that save most time.",
    "gpuperf.profile.command:profile",
    script=True,
    tables="gpuperf.profile.output:render_profile",
    look=("by", "columns", "verbose"),
    charts=(Chart("gpuperf.profile.chart:draw_profile"),),
    changes="gpuperf.profile.diff_table:render_changes",
)
