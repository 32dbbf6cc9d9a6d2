"""Register the commands of `gpuperf gate`: ab, compare, calibrate, selftest and check."""

from __future__ import annotations

import typer

from gpuperf.gate.command_ab import gate_ab
from gpuperf.gate.command_calibrate import gate_calibrate, gate_selftest
from gpuperf.gate.command_check import gate_check
from gpuperf.gate.command_compare import gate_compare

gate = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
gate.command("ab")(gate_ab)
gate.command("compare")(gate_compare)
gate.command("calibrate")(gate_calibrate)
gate.command("selftest")(gate_selftest)
gate.command("check")(gate_check)
