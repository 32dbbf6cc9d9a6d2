"""Run `gpuperf devices`: show the known devices and their peaks, and check peaks files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.devices.table import device_data, device_tables, devices_table
from gpuperf.errors import UnknownName, UsageError
from gpuperf.model.peaks import Peaks
from gpuperf.model.peaks import lint as lint_peaks
from gpuperf.peaks.find import builtin_peaks, load_peaks
from gpuperf.show.data import to_json
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb.options import Format, FormatOption


def devices(
    device: Annotated[
        str | None,
        typer.Argument(
            metavar="DEVICE",
            help="Device to show in full: its id, such as h200-sxm, or a part of its id or name, "
            "such as H100.",
            show_default=False,
        ),
    ] = None,
    lint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Check your own peaks file for errors and contradictions.",
            show_default=False,
        ),
    ] = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """List known devices, show one, or check a peaks file."""
    if lint is not None:
        if device is not None or format is not Format.TABLE:
            raise UsageError("--lint takes one file, and neither a device nor --format")
        _check(lint)
    elif device is None:
        _show_all(format, builtin_peaks())
    else:
        matches = _find(device)
        _show(matches[0], format) if len(matches) == 1 else _show_all(format, matches)


def _find(name: str) -> Sequence[Peaks]:
    """Return the device whose id is *name*, or all with *name* inside their id or their names."""
    known = {peaks.id: peaks for peaks in builtin_peaks()}
    if name in known:
        return [known[name]]
    part = name.strip().lower()
    matches = [
        p for p in known.values() if any(part in n.lower() for n in (p.id, p.name, *p.names))
    ]
    if not part or not matches:
        raise UnknownName("device", name, known, "`gpuperf devices` lists them")
    return matches


def _show_all(format: Format, known: Sequence[Peaks]) -> None:
    put(render([devices_table(known)], format.value, stdout_screen()))


def _show(peaks: Peaks, format: Format) -> None:
    screen = stdout_screen()
    if format is Format.JSON:
        put(to_json(device_data(peaks), screen.ascii))
    else:
        put(render(device_tables(peaks), format.value, screen))


def _check(path: Path) -> None:
    peaks = load_peaks(path)
    complaints = lint_peaks(peaks)
    if complaints:
        for complaint in complaints:
            typer.echo(f"{path}: {complaint}")
        count = f"{len(complaints)} complaint{'s' if len(complaints) > 1 else ''}"
        raise UsageError(f"{str(path)!r} is not sound: {count}", "each is printed above")
    typer.echo(
        f"{path} is sound: {peaks.name}, {peaks.sm_count} SMs, {len(peaks.figures)} figures, "
        f"{len(peaks.compute)} peaks"
    )
