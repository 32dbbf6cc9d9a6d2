"""Ask the driver of NVIDIA's GPUs, and open it in a thread while another imports torch.

To open it and to import torch both take tenths of a second of a worker that uses a GPU, and neither
waits for the other: the calls of `ctypes` let other threads run Python. No context is made, so the
process may still use a CPU alone; without the libraries nothing happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading

L2_LIMIT = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE, cuda.h


def open_ahead() -> None:
    """Begin to initialise the driver and its management library."""
    threading.Thread(target=_initialise, name="gpuperf-driver", daemon=True).start()


def _initialise() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()


def l2_set_aside() -> int | None:
    """Return the bytes of the L2 that the current context sets aside for lines that persist; None
    if the driver does not say so, as without a context."""
    size = ctypes.c_size_t()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuCtxGetLimit(ctypes.byref(size), L2_LIMIT)
    except (OSError, AttributeError):
        return None
    return None if failed else size.value
