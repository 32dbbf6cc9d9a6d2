"""Restore torch's global precision settings after a case that has changed them.

An implementation may allow TF32 for its own dtype. Left on, it makes the fp32 results of the next
case in this process wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def restored_settings() -> Iterator[None]:
    """Restore on exit whether matmuls and convolutions may round fp32 to TF32."""
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    try:
        yield
    finally:
        for switch, allowed in zip(switches, before, strict=True):
            if switch.allow_tf32 != allowed:
                switch.allow_tf32 = allowed
