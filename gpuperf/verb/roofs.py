"""When does a measuring verb measure the device's own roofs, and which of them does it use?

Only where no data sheet gives peaks, for the dtypes of cases that can run at all. Roofs taken while
other work ran are not kept for good; for an hour they serve the next commands, with their doubt.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuperf.model.contract import Contract
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.peaks.measured import SPOILING
from gpuperf.run.ceilings import calibrate, calibration_contract, doubtful_ceilings, kept_ceilings
from gpuperf.run.plan import default_contract
from gpuperf.run.supervisor import Supervisor
from gpuperf.verb.progress import Reporter, say

# What two series of matmuls and a copy take at most, by the budget of a roof.
LONGEST_S = 30


def measured_roofs(
    supervisor: Supervisor, opened: Opened, cases: Sequence[Case], contract: Contract
) -> Peaks | None:
    """Measured roofs for the dtypes of those *cases* that can run; the kept ones, or new ones."""
    kept = kept_ceilings(opened)
    if not _missing(cases, opened, kept):
        return kept
    missing = _missing(supervisor.runnable(cases, contract), opened, kept)
    if not missing:
        return kept
    recent = doubtful_ceilings(opened)
    if recent is not None and not set(missing) - {c.dtype for c in recent.ceilings.compute}:
        minutes = max(1, round((time.time() - recent.measured) / 60))
        say(
            f"roofs: measured {minutes} min ago, in doubt: {recent.doubt}; "
            "`gpuperf calibrate` on a quiet machine measures them anew"
        )
        return recent.ceilings
    say(f"no data-sheet peaks: measuring this device's own roofs first (up to {LONGEST_S} s)")
    return _calibrated(supervisor, opened, missing)


def _missing(cases: Sequence[Case], opened: Opened, kept: Peaks | None) -> tuple[str, ...]:
    dtypes = {str(case.point.get("dtype")) for case in cases} & set(opened.device.dtypes)
    return tuple(sorted(dtypes - ({c.dtype for c in kept.compute} if kept else set())))


def _calibrated(supervisor: Supervisor, opened: Opened, dtypes: tuple[str, ...]) -> Peaks:
    contract = calibration_contract(default_contract(opened.device))
    with Reporter(0) as reporter:
        supervisor.listen = reporter.hear

        def measure(case: Case, contract: Contract) -> Record:
            reporter.begin(f"calibrating {case.id}")
            return supervisor.measure("calibration", case, contract, 0)

        try:
            ceilings, records = calibrate(
                measure, opened, None, dtypes, contract, on_case=lambda c, r: reporter.done(r)
            )
        except KeyboardInterrupt:
            say("interrupted while the roofs were measured: nothing was measured yet, nothing kept")
            raise
    warn_of_calibration(records)
    return ceilings


def warn_of_calibration(records: Sequence[Record]) -> None:
    """Say what is doubtful about measured roofs, each doubt once."""
    doubts = {c.kind: c for record in records for c in record.caveats if c.kind in SPOILING}
    for caveat in doubts.values():
        say(f"the roofs are kept for an hour only: {caveat.message}; {caveat.hint}")
