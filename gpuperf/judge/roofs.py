"""Find the roofs of the device that a submission is judged on."""

from __future__ import annotations

from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Opened
from gpuperf.peaks.find import find_peaks
from gpuperf.run.ceilings import kept_ceilings


def roofs_of(opened: Opened | None) -> Peaks | None:
    """Return the roofs that `gpuperf calibrate` measured on the device, else its data sheet; None
    if neither is known."""
    if opened is None:
        return None
    return kept_ceilings(opened) or find_peaks(opened.device)[0]
