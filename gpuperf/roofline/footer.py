"""Write the lines under a chart: the sources of its roofs, and the meaning of its bytes."""

from __future__ import annotations

from collections.abc import Iterator

from gpuperf.model.metrics import BY_NCU
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.roofline.caption import ALONE
from gpuperf.roofline.scene import Scene
from gpuperf.roofline.series import LONGEST
from gpuperf.show.contract import note

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
LONGEST_SOURCE = 60  # characters


def footer(scene: Scene, run: Run) -> Iterator[str]:
    """Yield the lines under the chart of *scene*, which shows *run*."""
    yield _roofs(scene, run)
    missing = f"not drawn: {scene.missing}" if scene.missing else ""
    yield note(run, _bytes(scene, run), missing)


def _roofs(scene: Scene, run: Run) -> str:
    """Name the device of the roofs and where they are from; the table has the sources in full."""
    if not scene.roofs:
        return f"No roofs: {run.header.peaks_reason or 'none are known for this device'}"
    origins = dict.fromkeys(roof.origin for roof in scene.roofs)
    parts = [f"{origin}{_sources(scene, origin)}" for origin in origins]
    statuses = {roof.figure.status for roof in scene.roofs}
    marks = [text for status, text in MARKS.items() if status in statuses]
    device = shorten(run.header.device.name, LONGEST)
    return " · ".join([f"Roofs of {device}: {', '.join(parts)}", *marks])


def _sources(scene: Scene, origin: str) -> str:
    """Name the first source of the roofs of *origin*, and count the others: ` (calibrate)`."""
    sources = (roof.figure.source for roof in scene.roofs if roof.origin == origin)
    known = list(dict.fromkeys(filter(None, sources)))
    if not known:
        return ""
    more = f" and {len(known) - 1} more" if len(known) > 1 else ""
    return f" ({shorten(known[0].partition(' (')[0], LONGEST_SOURCE)}{more})"


def _bytes(scene: Scene, run: Run) -> str:
    if scene.view == "compulsory" and any(r.kind == "kernel" for r in run.records):
        return COUNTED
    ways = {any(c.kind == BY_NCU for c in r.caveats) for r in run.records if r.counters}
    by = [FULL_SPEED] if False in ways or not ways else []
    by += [f"by {ALONE}"] if True in ways else []
    words = BYTES[scene.view].format(by=" and ".join(by))
    baseline = shorten(run.header.baseline, LONGEST)
    if not baseline or scene.view == "both" or not any(dot.start for dot in scene.dots):
        return words
    return f"Arrows lead from {baseline} to the others · {words}"
