"""Decide by the name of a device's activity whether it is a kernel, a copy or a memset.

The names are those of libkineto (CuptiActivity.cpp), which torch.profiler and traces have too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

# `communication` is a kernel of a collective; an empty kind is decided by the name.
KernelKind = Literal["", "kernel", "communication", "copy", "set"]
COMPUTING = ("kernel", "communication")  # the kinds that are kernels

# `ncclDevKernel_AllReduce_Sum_bf16_RING_LL(…)`; RCCL's kernels are mostly called so too.
COMMUNICATION = re.compile(r"(?:^|\W)(?:nccl|rccl|msccl)", re.IGNORECASE)
# `Memcpy HtoD (Pageable -> Device)`; HIP says `Host` for either memory of the host.
COPIED = re.compile(r"Memcpy (\w+)(?: \((\w+) ->(?: (\w+))?)?")
STARTS: Mapping[str, KernelKind] = {"Memset": "set", "Memcpy": "copy"}
PAGEABLE = "pageable"  # in the route of a copy that the host makes, and waits for


def kind_of(name: str, activity: KernelKind = "") -> KernelKind:
    """Return the kind of *name*, which a trace calls a kernel, copy or set *activity*."""
    kind = activity or STARTS.get(name[:6], "kernel")
    return "communication" if kind == "kernel" and COMMUNICATION.search(name) else kind


def route_of(name: str) -> str:
    """Return the direction of the copy *name* with the host's memory, where the name has it:
    `HtoD pageable`, `DtoH pinned`, `DtoD`; `unknown` for another name."""
    match = COPIED.match(name)
    if match is None:
        return "unknown"
    memory = {"Pageable", "Pinned"} & {match[2], match[3]}
    return " ".join((match[1], *sorted(one.lower() for one in memory)))
