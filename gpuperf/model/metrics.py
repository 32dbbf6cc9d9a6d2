"""Which counters are asked for, by the names that chips and versions give them?

From the lists of CUPTI 13.0 for Turing to Blackwell: a quantity is the sum of the metrics of the
first group that the chip has in full.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from gpuperf.model.record import Kernel

Groups = tuple[tuple[str, ...], ...]

TENSOR_OPS = "sm__ops_path_tensor_src_"

# Through DRAM. Blackwell's GB20x name the direction otherwise; chips that share their memory with a
# CPU (GA10B, GB10B) have no such counter.
BYTES: Mapping[str, Groups] = {
    "dram_read_bytes": (("dram__bytes_read",), ("dram__bytes_op_read",)),
    "dram_written_bytes": (("dram__bytes_write",), ("dram__bytes_op_write",)),
}

SASS = "sm__sass_thread_inst_executed_op_"


def _vector(letter: str, bits: int) -> Mapping[str, Groups]:
    return {
        f"fp{bits}_{name}": ((f"{SASS}{letter}{name}_pred_on",),) for name in ("fma", "mul", "add")
    }


# Instructions of the vector pipes, a thread each.
VECTOR: Mapping[str, Groups] = {**_vector("f", 32), **_vector("d", 64)}

# Operations of the tensor pipe by the dtype of what is multiplied; an addition and a multiplication
# are two.
TENSOR: Mapping[str, Groups] = {
    "tensor_bf16": ((f"{TENSOR_OPS}bf16_dst_fp32",),),
    "tensor_fp16": (
        (f"{TENSOR_OPS}fp16",),
        (f"{TENSOR_OPS}fp16_dst_fp16", f"{TENSOR_OPS}fp16_dst_fp32"),
        (f"{TENSOR_OPS}fp16_dst_fp16", f"{TENSOR_OPS}fp16_bf16_tf32_dst_fp32"),
    ),
    "tensor_tf32": ((f"{TENSOR_OPS}tf32_dst_fp32",),),
    "tensor_fp64": ((f"{TENSOR_OPS}fp64",),),
    # On Blackwell's data-centre chips with fp4 and fp6, which run on the same pipe.
    "tensor_fp8": (
        (f"{TENSOR_OPS}fp8",),
        (f"{TENSOR_OPS}fp8_dst_fp16", f"{TENSOR_OPS}fp8_dst_fp32"),
        (f"{TENSOR_OPS}fp4_fp6_fp8_dst_fp16", f"{TENSOR_OPS}fp4_fp6_fp8_dst_fp32"),
    ),
    "tensor_int8": ((f"{TENSOR_OPS}int8",),),
}

# Of one kernel. Through L2 goes what the SMs ask of it: `lts__t_bytes`, of which old reports may be
# made, also counts what the L2 fetches from DRAM and what two partitions of one hand each other.
KERNEL: Mapping[str, Groups] = {
    **BYTES,
    "l2_bytes": (("lts__t_sectors_srcunit_tex",), ("lts__t_bytes",)),
    "l1_bytes": (("l1tex__t_bytes",),),
    "tma_instructions": (("sm__inst_executed_pipe_tma",),),
    "cycles": (("sm__cycles_elapsed",),),
    "time_ns": (("gpu__time_duration",),),
    **TENSOR,
    **VECTOR,
}

# Of a window: cycles in which an SM had work, and in which its pipes were busy.
CYCLES: Mapping[str, Groups] = {
    "active_cycles": (("sm__cycles_active",),),
    "tensor_cycles": (("sm__pipe_tensor_cycles_active",),),
    "fma_cycles": (("sm__pipe_fma_cycles_active",),),
    "fp64_cycles": (("sm__pipe_fp64_cycles_active",),),
}

# Of each kernel in a step of a program: few counters take few steps.
OF_STEP: Mapping[str, Groups] = {**BYTES, "l2_bytes": KERNEL["l2_bytes"], **TENSOR}

PERMISSION_HINT = (
    "bare metal: modprobe option NVreg_RestrictProfilingToAdminUsers=0, or run as root; container: "
    "--cap-add SYS_ADMIN; cloud: ask the provider for profiling permission (ERR_NVGPUCTRPERM)"
)

BY_NCU = "ncu-counters"  # the kind of the caveat on counts that Nsight Compute made

LARGEST = {"sm__cycles_elapsed"}  # of all SMs, not their sum
SECTOR = 32  # bytes of what L2 counts in `sectors`, on every chip since Kepler


def choose(wanted: Mapping[str, Groups], known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The metrics of each quantity of *wanted* that a chip with the counters *known* has."""
    chosen = {}
    for quantity, groups in wanted.items():
        for group in groups:
            if all(name in known for name in group):
                chosen[quantity] = tuple(_rolled_up(name) for name in group)
                break
    return chosen


def combine(
    chosen: Mapping[str, tuple[str, ...]], names: Sequence[str], values: Sequence[float]
) -> dict[str, float]:
    """The quantities from the *values* of the metrics *names*; one that is NaN is left out."""
    by_name = dict(zip(names, values, strict=True))
    found = {q: sum(scale(name) * by_name[name] for name in group) for q, group in chosen.items()}
    return {quantity: value for quantity, value in found.items() if value == value}


def with_peaks(counters: Sequence[str]) -> list[str]:
    """*counters*, and after them the most that all SMs together can count of each in a cycle."""
    return [*counters, *(f"{name}.peak_sustained" for name in counters)]


def per_sm(
    chosen: Mapping[str, tuple[str, ...]], names: Sequence[str], values: Sequence[float]
) -> dict[str, float]:
    """The quantities of `CYCLES` as a mean over SMs, where the chip tells the peaks among *names*:
    cycles in which all of an SM, or of its pipe, would have been busy."""
    by_name = dict(zip(names, values, strict=True))
    found = {}
    for quantity, (name,) in chosen.items():
        peak = by_name[f"{name}.peak_sustained"]
        if peak > 0 and by_name[name] == by_name[name]:
            found[quantity] = by_name[name] / peak
    return found


def scale(metric: str) -> int:
    """What one of *metric* is, in the unit of its quantity."""
    return SECTOR if "__t_sectors" in metric else 1


def derive(counts: Mapping[str, float]) -> dict[str, float]:
    """*counts* with `fp32_flops` and `fp64_flops` in place of the instructions: two a fused one.

    A kernel that loads by TMA has no `l1_bytes`: such loads go by L1, straight to shared memory.
    """
    found = {name: value for name, value in counts.items() if name not in VECTOR}
    if counts.get("tma_instructions", 0) > 0:
        found.pop("l1_bytes", None)
    for bits in (32, 64):
        fma, mul, add = (counts.get(f"fp{bits}_{name}") for name in ("fma", "mul", "add"))
        if fma is not None and mul is not None and add is not None:
            found[f"fp{bits}_flops"] = 2 * fma + mul + add
    return found


def sum_up(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Each quantity over all of *found*; one that is unknown of any has no sum."""
    every = list(found)
    known = set.intersection(*(set(counts) for counts in every)) if every else set()
    return {q: math.fsum(counts[q] for counts in every) for q in sorted(known)}


def sum_by_name(found: Iterable[tuple[str, Mapping[str, float]]]) -> tuple[Kernel, ...]:
    """Launches by name as kernels, those of one name together, in order of the first."""
    launches: dict[str, list[Mapping[str, float]]] = {}
    for name, counts in found:
        launches.setdefault(name, []).append(counts)
    return tuple(Kernel(name, len(own), sum_up(own)) for name, own in launches.items())


def moved_bytes(counts: Mapping[str, float]) -> float | None:
    """Read and written, through DRAM."""
    read, written = (counts.get(name) for name in BYTES)
    return None if read is None or written is None else max(0.0, read + written)


def tensor_operations(counts: Mapping[str, float]) -> float | None:
    """Of the tensor pipe, in whichever dtype."""
    found = [counts[name] for name in TENSOR if name in counts]
    return max(0.0, sum(found)) if found else None


def _rolled_up(name: str) -> str:
    return f"{name}.{'max' if name in LARGEST else 'sum'}"
