"""Measure the device's own roofs, where a verb needs some and no data sheet gives them.

Only dtypes of cases that can run are measured. Roofs taken while other work ran serve the next
commands for an hour, with their doubt.
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
from gpuperf.run.session import make_header
from gpuperf.run.supervisor import Supervisor
from gpuperf.verb.progress import say
from gpuperf.verb.session import Session

# Seconds that two series of matmuls and a copy take at most, under the contract for roofs.
LONGEST_S = 30


def measured_roofs(
    supervisor: Supervisor, opened: Opened, cases: Sequence[Case], contract: Contract
) -> Peaks | None:
    """Return roofs for the dtypes of those *cases* that can run: stored ones, or new ones."""
    stored = kept_ceilings(opened)
    if not _missing(cases, opened, stored):
        return stored
    missing = _missing(supervisor.runnable(cases, contract), opened, stored)
    if not missing:
        return stored
    recent = doubtful_ceilings(opened)
    if recent is not None and not set(missing) - {c.dtype for c in recent.ceilings.compute}:
        minutes = max(1, round((time.time() - recent.measured) / 60))
        say(
            f"roofs: measured {minutes} min ago, in doubt: {recent.doubt}; "
            "`gpuperf calibrate` on a quiet machine measures them anew"
        )
        return recent.ceilings
    say(f"no data-sheet peaks: measuring this device's own roofs first (up to {LONGEST_S} s)")
    contract = calibration_contract(default_contract(opened.device))
    header = make_header("calibration", [], [], [contract], opened)
    try:
        return measure_roofs(Session(supervisor, None, header), opened, None, missing)
    except KeyboardInterrupt:
        say("interrupted while the roofs were measured: no case was measured, no roof is stored")
        raise


def measure_roofs(
    session: Session,
    opened: Opened,
    peaks: Peaks | None,
    dtypes: Sequence[str],
    sustained: bool = False,
) -> Peaks:
    """Measure roofs in *session*, store them, and write each kind of doubt about them to stderr.

    Raises: the error that ended the session.
    """
    with session.reporting(0) as reporter:

        def measure(case: Case, contract: Contract) -> Record:
            session.measure(reporter, [(case, contract, 0)])
            return session.records[-1]

        roofs = calibrate(measure, opened, peaks, dtypes, session.header.contract, sustained)
    if session.ended is not None:
        raise session.ended
    doubts = {c.kind: c for r in session.records for c in r.caveats if c.kind in SPOILING}
    for caveat in doubts.values():
        say(f"the roofs are stored for an hour only: {caveat.message}; {caveat.hint}")
    return roofs


def _missing(cases: Sequence[Case], opened: Opened, stored: Peaks | None) -> tuple[str, ...]:
    dtypes = {str(case.point.get("dtype")) for case in cases} & set(opened.device.dtypes)
    return tuple(sorted(dtypes - ({c.dtype for c in stored.compute} if stored else set())))
