"""Run a worker in a process of its own: `python -P -m gpuperf.measure.spawned`.

It begins to open the driver before it imports the worker, and with that torch.
"""

from __future__ import annotations

import sys

from gpuperf.measure.driver import open_ahead


def main() -> int:
    """Serve requests until the supervisor closes its end."""
    open_ahead()
    from gpuperf.measure import worker  # here, as it imports torch

    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
