"""Run a worker in a process of its own: `python -P -m gpuperf.measure.spawned`.

It begins to open the driver before it imports the worker, and with that torch. The garbage
collector is off meanwhile: it would search torch's modules again and again, for a fifth of the
time.
"""

from __future__ import annotations

import gc
import sys

from gpuperf.measure.driver import open_ahead


def main() -> int:
    """Serve requests until the supervisor closes its end."""
    open_ahead()
    gc.disable()
    from gpuperf.measure import worker  # here, as it imports torch

    gc.freeze()  # what is imported lives as long as the process
    gc.enable()
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
