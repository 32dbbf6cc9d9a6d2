"""Print or write the workflows that gate pull requests on GitHub (`gpuperf ci github`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import gpuperf
from gpuperf.ci.workflow import github_workflow, source_of, workflow_files
from gpuperf.errors import UsageError
from gpuperf.files import write_atomically
from gpuperf.verb.progress import say

ci = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@ci.callback()
def _group() -> None:
    """Print CI workflows that gate each change."""


@ci.command("github")
def ci_github(
    out: Annotated[
        Path | None,
        typer.Option(help="Write the files to this folder: .github/workflows.", show_default=False),
    ] = None,
) -> None:
    """Print two workflows: one measures without a token, one reports without the change's code."""
    if not source_of(gpuperf.__version__):
        say("this gpuperf is in no package index: set the repository variable GPUPERF")
    if out is None:
        sys.stdout.write(github_workflow())
        return
    existing = [out / name for name in workflow_files() if (out / name).exists()]
    if existing:
        raise UsageError(f"{existing[0]} exists", "remove it, or print without --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in workflow_files().items():
            write_atomically(out / name, text)
            say(f"workflow: {out / name}")
    except OSError as error:
        message = f"{out} cannot be written: {error.strerror}"
        raise UsageError(message, "choose another --out") from None
