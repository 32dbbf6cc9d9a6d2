"""Decide by the name of a device activity whether it is a kernel, a copy or a memset.

libkineto (CuptiActivity.cpp) defines the names of copies and memsets; torch.profiler uses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

# `communication` is a kernel of a collective; if the kind is empty, the name decides.
KernelKind = Literal["", "kernel", "communication", "copy", "set"]
COMPUTING = ("kernel", "communication")  # the kinds of kernels

# `ncclDevKernel_AllReduce_Sum_bf16_RING_LL(…)`, `ncclSymkDevKernel_AllReduce_…`; most of RCCL's
# kernels have such names too. Kernels of torch's symmetric memory (`multimem_all_reduce_kernel`,
# `two_shot_all_reduce_kernel`) and of vLLM (`cross_device_reduce_1stage`) are other ones.
COMMUNICATION = re.compile(
    r"(?:^|\W)(?:nccl|rccl|msccl|multimem_|(?:one|two)_shot_all_reduce|cross_device_reduce)",
    re.IGNORECASE,
)
# `Memcpy HtoD (Pageable -> Device)`; HIP calls both kinds of host memory `Host`.
COPIED = re.compile(r"Memcpy (\w+)(?: \((\w+) ->(?: (\w+))?)?")
STARTS: Mapping[str, KernelKind] = {"Memset": "set", "Memcpy": "copy"}
PAGEABLE = "pageable"  # in the route of a copy for which the host waits


def kind_of(name: str, activity: KernelKind = "") -> KernelKind:
    """Return the kind of the activity *name*, whose trace gives the kind *activity*."""
    kind = activity or STARTS.get(name[:6], "kernel")
    return "communication" if kind == "kernel" and COMMUNICATION.search(name) else kind


def route_of(name: str) -> str:
    """Return the direction of the copy *name* and the kind of host memory, if the name has it:
    `HtoD pageable`, `DtoH pinned`, `DtoD`; `unknown` for any other name."""
    match = COPIED.match(name)
    if match is None:
        return "unknown"
    memory = {"Pageable", "Pinned"} & {match[2], match[3]}
    return " ".join((match[1], *sorted(kind.lower() for kind in memory)))
