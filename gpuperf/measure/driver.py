"""Open the driver of NVIDIA's GPUs in a thread, while another imports torch.

Both take tenths of a second of a worker that uses a GPU, and neither waits for the other: the calls
of `ctypes` let other threads run Python. No context is made, so the process may still use a CPU
alone; without the libraries nothing happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading


def open_ahead() -> None:
    """Begin to initialise the driver and its management library."""
    threading.Thread(target=_initialise, name="gpuperf-driver", daemon=True).start()


def _initialise() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()
