"""Run `gpuperf doctor`: show this machine's device and software, and what spoils measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuperf.model.codec import to_builtins
from gpuperf.model.protocol import DeviceCheck, Opened
from gpuperf.peaks.find import find_peaks
from gpuperf.run.ceilings import doubtful_ceilings, kept_ceilings
from gpuperf.show.data import to_json
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.show.table import Column, Mood, Table
from gpuperf.verb import options as opt

MARK = {"ok": "ok", "note": "note", "bad": "BAD"}
MOOD: Mapping[str, Mood] = {"ok": "", "note": "doubt", "bad": "failure"}


def doctor(
    device: opt.DeviceName = "auto",
    format: opt.TableOrJsonOption = opt.TableOrJson.TABLE,
    as_json: opt.AsJson = False,
) -> None:
    """Check that this machine is ready to measure.

    Each finding that spoils measurements comes with what to do about it. Nothing is changed.
    """
    with opt.make_supervisor(device) as supervisor:
        opened = supervisor.open()
        findings = (_device(opened), *supervisor.examine(), *_known(opened))
    screen = stdout_screen()
    if as_json or format is opt.TableOrJson.JSON:
        put(to_json(to_builtins(findings), screen.ascii))
    else:
        put(render([_table(findings)], "table", screen))


def _table(findings: Sequence[DeviceCheck]) -> Table:
    values = (f"{f.value}\n  hint: {f.hint}" if f.hint else f.value for f in findings)
    return Table(
        (
            Column(
                cells=tuple(MARK[f.verdict] for f in findings),
                left=True,
                moods=tuple(MOOD[f.verdict] for f in findings),
            ),
            Column(cells=tuple(f.name for f in findings), left=True),
            Column(cells=tuple(values), left=True, wrap=30),
        )
    )


def _device(opened: Opened) -> DeviceCheck:
    facts = opened.device
    units = "threads" if facts.kind == "cpu" else "SMs"
    memory = f"{facts.free_bytes / 1e9:.1f} of {facts.memory_bytes / 1e9:.1f} GB free"
    return DeviceCheck("device", "ok", f"{facts.name}, {facts.sm_count} {units}, {memory}")


def _known(opened: Opened) -> tuple[DeviceCheck, ...]:
    facts = opened.device
    peaks, reason = find_peaks(facts)
    return (
        DeviceCheck("data-sheet peaks", "ok", peaks.id)
        if peaks
        else DeviceCheck(
            "data-sheet peaks",
            "note",
            reason,
            "MFU stays empty; measured roofs take the place of peaks",
        ),
        _roofs(opened),
    )


def _roofs(opened: Opened) -> DeviceCheck:
    name, measure = "measured roofs", "`gpuperf calibrate` measures them"
    if ceilings := kept_ceilings(opened):
        return DeviceCheck(name, "ok", ", ".join(dict.fromkeys(c.dtype for c in ceilings.compute)))
    if doubtful := doubtful_ceilings(opened):
        return DeviceCheck(name, "note", f"uncertain, for an hour: {doubtful.doubt}", measure)
    return DeviceCheck(name, "note", "none yet", measure)
