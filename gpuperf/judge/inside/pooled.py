"""Judge the submissions that a pool sends: `python -P -m gpuperf.judge.inside.pooled`.

This process is a clerk: it never imports a task or a submission. A pool has several, as the clerk's
clock must not wait for another thread of its process.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from gpuperf.errors import GpuperfError, UsageError
from gpuperf.judge.pool import Judged, Sit, ToPooled
from gpuperf.judge.protocol import Ready, Refused
from gpuperf.judge.run import Sitting
from gpuperf.measure.pipe import Pipe, die_with_parent


def main(arguments: list[str] | None = None) -> int:
    """Serve requests until the pool ends."""
    parser = argparse.ArgumentParser()
    for name in ("--requests", "--replies", "--parent"):
        parser.add_argument(name, type=int, required=True)
    options: Any = parser.parse_args(arguments)
    die_with_parent(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pool's to handle
    pipe = Pipe(options.requests, options.replies, ToPooled)
    requests = pipe.requests()
    sit = next(requests, None)
    if not isinstance(sit, Sit):
        return 0
    try:
        with Sitting(Path(sit.against), sit.task, sit.settings, keep=True) as sitting:
            pipe.send(Ready())
            for request in requests:
                assert not isinstance(request, Sit)
                pipe.send(_verdict(sitting, Path(request.path)))
    except GpuperfError as error:
        pipe.send(_refused(error))
    return 0


def _verdict(sitting: Sitting, path: Path) -> Judged | Refused:
    try:
        return Judged(sitting.judge(path))
    except GpuperfError as error:
        return _refused(error)


def _refused(error: GpuperfError) -> Refused:
    kind = "usage" if isinstance(error, UsageError) else "task"
    return Refused(kind, str(error), error.hint)


if __name__ == "__main__":
    sys.exit(main())
