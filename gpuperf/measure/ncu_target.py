"""Run one call of a case for a profiler:
`ncu … python -P -m gpuperf.measure.ncu_target REQUEST DEVICE`.

REQUEST is a file that holds a `Measure` message. The call runs a few times, and then once between
cudaProfilerStart and cudaProfilerStop: `ncu --profile-from-start off` profiles only that last call.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import torch

from gpuperf.errors import WorkloadError
from gpuperf.measure.device import open_device
from gpuperf.measure.registry import load_source
from gpuperf.measure.warmup import warm_call
from gpuperf.model.protocol import Measure


def main(arguments: list[str] | None = None) -> int:
    """Run the call of the request. Raises: what the case raises."""
    path, name = sys.argv[1:] if arguments is None else arguments
    request = msgspec.json.decode(Path(path).read_bytes(), type=Measure)
    case = request.case
    device = open_device(name)
    workloads, broken = load_source(case.source)
    if case.op not in workloads:
        raise WorkloadError(f"{case.source} holds no workload {case.op!r}: {broken}")
    call = warm_call(workloads[case.op], case, device, request.seed, request.contract.data)
    device.synchronize()
    runtime = torch.cuda.cudart()
    runtime.cudaProfilerStart()
    call()
    device.synchronize()
    runtime.cudaProfilerStop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
