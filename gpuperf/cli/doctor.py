"""`gpuperf doctor`: what is here, and what stands in the way of good numbers?"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuperf.cli.options import DeviceName, TableOrJson, make_supervisor
from gpuperf.model.codec import to_builtins
from gpuperf.model.finding import Finding
from gpuperf.model.protocol import Opened
from gpuperf.runner.ceilings import doubtful_ceilings, kept_ceilings
from gpuperf.runner.devices import find_peaks

__all__ = ["doctor"]

MARK = {"ok": "ok", "note": "note", "bad": "BAD"}


def doctor(
    device: DeviceName = "auto",
    format: Annotated[TableOrJson, typer.Option(help="How to print.")] = TableOrJson.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Look at this machine before believing what it measures; nothing is changed."""
    with make_supervisor(device) as supervisor:
        opened = supervisor.open()
        findings = (_device(opened), *supervisor.examine(), *_known(opened))
    if as_json or format is TableOrJson.JSON:
        sys.stdout.write(json.dumps(to_builtins(findings), indent=2, ensure_ascii=False) + "\n")
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        value = Text(finding.value)
        if finding.hint:
            value.append(f"\n  hint: {finding.hint}")
        style = {"bad": "bold red", "note": "yellow"}.get(finding.verdict, "")
        table.add_row(Text(MARK[finding.verdict], style), finding.name, value)
    Console(highlight=False).print(table)


def _device(opened: Opened) -> Finding:
    facts = opened.device
    units = "threads" if facts.kind == "cpu" else "SMs"
    memory = f"{facts.free_bytes / 1e9:.1f} of {facts.memory_bytes / 1e9:.1f} GB free"
    return Finding("device", "ok", f"{facts.name}, {facts.sm_count} {units}, {memory}")


def _known(opened: Opened) -> tuple[Finding, ...]:
    facts = opened.device
    peaks, reason = find_peaks(facts)
    return (
        Finding("data-sheet peaks", "ok", peaks.id)
        if peaks
        else Finding(
            "data-sheet peaks", "note", reason, "MFU stays empty; measured roofs serve instead"
        ),
        _roofs(opened),
    )


def _roofs(opened: Opened) -> Finding:
    name, measure = "measured roofs", "`gpuperf calibrate` measures them"
    if ceilings := kept_ceilings(opened):
        return Finding(name, "ok", ", ".join(dict.fromkeys(c.dtype for c in ceilings.compute)))
    if doubtful := doubtful_ceilings(opened):
        return Finding(name, "note", f"uncertain, for an hour: {doubtful.doubt}", measure)
    return Finding(name, "note", "none yet", measure)
