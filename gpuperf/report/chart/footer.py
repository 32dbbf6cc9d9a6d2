"""What must stand under a chart: where its roofs come from, and what its bytes are?"""

from __future__ import annotations

from collections.abc import Iterator

from gpuperf.model.metrics import BY_NCU
from gpuperf.model.record import Run
from gpuperf.report.caption import ALONE
from gpuperf.report.scene import Scene
from gpuperf.report.series import LONGEST
from gpuperf.report.text import clean, shorten

__all__ = ["footer"]

COUNTED = "Bytes and FLOPs are what hardware counters showed"
BYTES = {
    "compulsory": "Bytes are compulsory",
    "modelled": "Bytes are those that each implementation is modelled to move",
    "measured": "Bytes are measured, {by}",
    "both": "Arrows lead from compulsory bytes to measured ones, {by}",
    "hierarchy": "Bytes are measured, through DRAM and the caches, {by}; each line is one case",
}
FULL_SPEED = "by hardware counters"
MARKS = {"derived": "~ derived from other figures", "uncertain": "? uncertain"}


def footer(scene: Scene, run: Run) -> Iterator[str]:
    """The lines under the chart of *scene*, which is of *run*."""
    for origin in ("data sheet", "measured"):
        own = [r for r in scene.roofs if r.origin == origin]
        sources = dict.fromkeys(clean(r.figure.source) for r in own if r.figure.source)
        if own:
            clocks = ((clean(r.label), scene.clock(r)) for r in own)
            at = ", ".join(f"{name} at {hz / 1e6:.0f} MHz" for name, hz in clocks if hz)
            source = "; ".join(sources) or "source not recorded"
            yield f"Roofs, {origin}{f' ({at})' if at else ''}: {source}"
    if not scene.roofs:
        reason = clean(run.header.peaks_reason) or "no ceilings are known for this device"
        yield f"No roofs: {reason}"
    seen = {r.figure.status for r in scene.roofs}
    said = [text for status, text in MARKS.items() if status in seen]
    if said:
        yield f"Marks: {', '.join(said)}"
    missing = f" · not drawn: {scene.missing}" if scene.missing else ""
    version = f" · gpuperf {clean(run.header.gpuperf)}" if run.header.gpuperf else ""
    yield f"{_bytes(scene, run)} · run {clean(run.header.run)}{version}{missing}"


def _bytes(scene: Scene, run: Run) -> str:
    """Of which bytes the x axis is, and who counted them."""
    if scene.view == "compulsory" and any(r.kind == "kernel" for r in run.records):
        return COUNTED
    ways = {any(c.kind == BY_NCU for c in r.caveats) for r in run.records if r.counters}
    by = [FULL_SPEED] if False in ways or not ways else []
    by += [f"by {ALONE}"] if True in ways else []
    told = BYTES[scene.view].format(by=" and ".join(by))
    baseline = shorten(clean(run.header.baseline), LONGEST)
    if not baseline or scene.view == "both" or not any(dot.start for dot in scene.dots):
        return told
    return f"Arrows lead from {baseline} to the others · {told}"
