"""Run `gpuperf theory`: list the theories, or compute one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.peaks.find import find_device
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.theory.table import theories_table, theory_tables
from gpuperf.theory.theory import (
    CLAIMS,
    SERVE,
    Chip,
    Parameter,
    find_theory,
    listed_names,
    values_of,
)
from gpuperf.verb.options import Format, FormatOption
from gpuperf.verb.parse import named_options

CALIBRATED = "calibrated"  # a name of no device


def theory(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Theory to compute; without it, all are listed.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="Device, as `gpuperf devices` lists them; `calibrated`: with the roofs that "
            "`gpuperf calibrate` measured here.",
        ),
    ] = "h200-sxm",
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the curves to a PNG or SVG.", show_default=False),
    ] = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Compute bytes, FLOPs, limits and crossovers by formula, without a GPU.

    Each parameter of a theory is an option: gpuperf theory attention --n 128:16k --d 64,128

    `serve` simulates a server: gpuperf theory serve --model llama-3-8b --trace code --batch 64

    `claims` judges what the notes claim: gpuperf theory claims --ruling wrong --run gpuperf-runs
    """
    if name is None:
        if ctx.args or chart is not None:
            raise UsageError("an option of a theory needs its name", _known())
        put(render([theories_table()], format.value, stdout_screen()))
        return
    if name == CLAIMS:
        _claims(ctx, format)
        return
    if name == SERVE:
        _serve(ctx, _chip(device), chart, format)
        return
    chosen = find_theory(name)
    names = [parameter.name for parameter in chosen.parameters]
    others = [param.name for param in ctx.command.params if param.name and param.name != "name"]
    given = named_options(ctx.args, names, f"parameters of {name}", "give one theory", others)
    at, chip = values_of(chosen, given), _chip(device)
    if chart is not None:
        from gpuperf.theory.chart import draw_theory

        draw_theory(name, chosen, at, chip, chart)
    put(render(theory_tables(name, chosen, at, chip), format.value, stdout_screen()))


def _claims(ctx: typer.Context, format: Format) -> None:
    """Print the claims. Raises: UsageError for an option of a theory."""
    from gpuperf.theory.claims.study import OPTIONS, Choice, study
    from gpuperf.theory.claims.table import claims_table

    for option in ("device", "chart"):
        source = ctx.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"claims take no --{option}",
                "each check has its own devices; `gpuperf theory NAME` takes both options",
            )
    given = named_options(ctx.args, tuple(OPTIONS), "options of claims", "for example --notes 001")
    choice = Choice.of(given)
    put(render([claims_table(study(choice), choice)], format.value, stdout_screen()))


def _serve(ctx: typer.Context, chip: Chip, chart: Path | None, format: Format) -> None:
    """Print what a server of a language model gives."""
    from gpuperf.theory.serving.command import OPTIONS, serve

    names = [option.name for option in OPTIONS]
    given = named_options(ctx.args, names, "options of serve", "for example --trace code")
    serve(given, chip, chart, format.value)


def _chip(device: str) -> Chip:
    if device != CALIBRATED:
        return Chip(find_device(device))
    from gpuperf.run.ceilings import newest_ceilings  # its imports take time

    return Chip(newest_ceilings())


def parameters_help(words: Sequence[str]) -> str:
    """Describe the parameters of the theory that *words* name first."""
    if not words or words[0].startswith("-"):
        return _known()
    if words[0] == CLAIMS:
        from gpuperf.theory.claims.study import OPTIONS

        listed = ", ".join(f"--{name} ({meaning})" for name, meaning in OPTIONS.items())
        return f"Options of claims: {listed}."
    if words[0] == SERVE:
        from gpuperf.theory.serving.command import OPTIONS as OPTIONS_OF_SERVE

        parameters: Sequence[Parameter] = OPTIONS_OF_SERVE
    else:
        parameters = find_theory(words[0]).parameters
    lines = ", ".join(
        f"--{p.name.replace('_', '-')} {p.default or '(none)'} ({p.meaning})" for p in parameters
    )
    return f"Parameters of {words[0]}, with their defaults: {lines or 'none'}."


def _known() -> str:
    return f"Theories: {', '.join(listed_names())}."
