"""List the metrics of the hardware counters behind each quantity, and combine their values.

The names are from the lists of CUPTI 13.0 for Turing to Blackwell. A quantity is the sum of the
metrics of the first group that the chip has in full.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from gpuperf.model.record import Kernel

Groups = tuple[tuple[str, ...], ...]

TENSOR_OPS = "sm__ops_path_tensor_src_"

# Bytes through DRAM. Blackwell's GB20x have other names; chips that share their memory with a CPU
# (GA10B, GB10B) have no such counter.
BYTES: Mapping[str, Groups] = {
    "dram_read_bytes": (("dram__bytes_read",), ("dram__bytes_op_read",)),
    "dram_written_bytes": (("dram__bytes_write",), ("dram__bytes_op_write",)),
}

SASS = "sm__sass_thread_inst_executed_op_"


def _vector(letter: str, bits: int) -> Mapping[str, Groups]:
    return {
        f"fp{bits}_{name}": ((f"{SASS}{letter}{name}_pred_on",),) for name in ("fma", "mul", "add")
    }


# Instructions of the vector pipes, counted once for each thread.
VECTOR: Mapping[str, Groups] = {**_vector("f", 32), **_vector("d", 64)}

# Operations of the tensor pipe by the dtype of the factors; a multiply-add counts as 2.
TENSOR: Mapping[str, Groups] = {
    "tensor_bf16": ((f"{TENSOR_OPS}bf16_dst_fp32",),),
    "tensor_fp16": (
        (f"{TENSOR_OPS}fp16",),
        (f"{TENSOR_OPS}fp16_dst_fp16", f"{TENSOR_OPS}fp16_dst_fp32"),
        (f"{TENSOR_OPS}fp16_dst_fp16", f"{TENSOR_OPS}fp16_bf16_tf32_dst_fp32"),
    ),
    "tensor_tf32": ((f"{TENSOR_OPS}tf32_dst_fp32",),),
    "tensor_fp64": ((f"{TENSOR_OPS}fp64",),),
    # On Blackwell's data-centre chips this includes fp4 and fp6, which use the same pipe.
    "tensor_fp8": (
        (f"{TENSOR_OPS}fp8",),
        (f"{TENSOR_OPS}fp8_dst_fp16", f"{TENSOR_OPS}fp8_dst_fp32"),
        (f"{TENSOR_OPS}fp4_fp6_fp8_dst_fp16", f"{TENSOR_OPS}fp4_fp6_fp8_dst_fp32"),
    ),
    "tensor_int8": ((f"{TENSOR_OPS}int8",),),
}

# Quantities of one kernel. The bytes of L2 are those that its slices serve to the SMs and take from
# them, local memory included. `lts__t_bytes`, which old reports may have instead, also counts
# transfers from DRAM and between the partitions of the L2. The bytes that the SMs read can be more:
# on an H200 one access of a slice serves several SMs that ask for a sector at the same time.
KERNEL: Mapping[str, Groups] = {
    **BYTES,
    "l2_bytes": (("lts__t_sectors_srcunit_tex",), ("lts__t_bytes",)),
    "sm_read_bytes": (("l1tex__m_xbar2l1tex_read_bytes",),),
    "l1_bytes": (("l1tex__t_bytes",),),
    "tma_instructions": (("sm__inst_executed_pipe_tma",),),
    "cycles": (("sm__cycles_elapsed",),),
    "time_ns": (("gpu__time_duration",),),
    **TENSOR,
    **VECTOR,
}

# Quantities of a window: cycles in which an SM had work, and cycles in which its pipes were busy.
CYCLES: Mapping[str, Groups] = {
    "active_cycles": (("sm__cycles_active",),),
    "tensor_cycles": (("sm__pipe_tensor_cycles_active",),),
    "fma_cycles": (("sm__pipe_fma_cycles_active",),),
    "fp64_cycles": (("sm__pipe_fp64_cycles_active",),),
}

# Quantities of each kernel in a step of a program: fewer counters take fewer steps.
OF_STEP: Mapping[str, Groups] = {**BYTES, "l2_bytes": KERNEL["l2_bytes"], **TENSOR}

PERMISSION_HINT = (
    "bare metal: modprobe option NVreg_RestrictProfilingToAdminUsers=0, or run as root; container: "
    "--cap-add SYS_ADMIN; cloud: ask the provider for profiling permission (ERR_NVGPUCTRPERM)"
)

BY_NCU = "ncu-counters"  # the kind of the caveat on counters from Nsight Compute

LARGEST = {"sm__cycles_elapsed"}  # metrics whose maximum over the SMs counts, not the sum
SECTOR = 32  # bytes of a sector of the L2, on every chip since Kepler


def choose(wanted: Mapping[str, Groups], known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the metrics of each quantity of *wanted* that a chip with the counters *known* has."""
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
    """Return the quantities from the *values* of the metrics *names*, without those that are
    NaN."""
    by_name = dict(zip(names, values, strict=True))
    sums = {q: sum(scale(name) * by_name[name] for name in group) for q, group in chosen.items()}
    return {quantity: value for quantity, value in sums.items() if value == value}


def with_peaks(counters: Sequence[str]) -> list[str]:
    """Return *counters*, followed by the metrics of the most that all SMs can count in a cycle."""
    return [*counters, *(f"{name}.peak_sustained" for name in counters)]


def per_sm(
    chosen: Mapping[str, tuple[str, ...]], names: Sequence[str], values: Sequence[float]
) -> dict[str, float]:
    """Return the quantities of `CYCLES` as means over the SMs, as far as *names* has their peaks:
    the cycles in which all of an SM, or of its pipe, would have been busy."""
    by_name = dict(zip(names, values, strict=True))
    cycles = {}
    for quantity, (name,) in chosen.items():
        peak = by_name[f"{name}.peak_sustained"]
        if peak > 0 and by_name[name] == by_name[name]:
            cycles[quantity] = by_name[name] / peak
    return cycles


def scale(metric: str) -> int:
    """Return the factor from *metric* to the unit of its quantity."""
    return SECTOR if "__t_sectors" in metric else 1


def derive(counts: Mapping[str, float]) -> dict[str, float]:
    """Return *counts* with `fp32_flops` and `fp64_flops` in place of the instructions; a fused
    multiply-add counts as 2.

    A kernel that loads by TMA gets no `l1_bytes`, since these loads bypass L1.
    """
    derived = {name: value for name, value in counts.items() if name not in VECTOR}
    if counts.get("tma_instructions", 0) > 0:
        derived.pop("l1_bytes", None)
    for bits in (32, 64):
        fma, mul, add = (counts.get(f"fp{bits}_{name}") for name in ("fma", "mul", "add"))
        if fma is not None and mul is not None and add is not None:
            derived[f"fp{bits}_flops"] = 2 * fma + mul + add
    return derived


def sum_up(launches: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of each quantity that all *launches* have."""
    all_counts = list(launches)
    known = set.intersection(*map(set, all_counts)) if all_counts else set()
    return {q: math.fsum(counts[q] for counts in all_counts) for q in sorted(known)}


def sum_by_name(launches: Iterable[tuple[str, Mapping[str, float]]]) -> tuple[Kernel, ...]:
    """Return a kernel for each name, with the counts of all its launches, in order of the first."""
    by_name: dict[str, list[Mapping[str, float]]] = {}
    for name, counts in launches:
        by_name.setdefault(name, []).append(counts)
    return tuple(Kernel(name, len(group), sum_up(group)) for name, group in by_name.items())


def moved_bytes(counts: Mapping[str, float]) -> float | None:
    """Return the bytes read and written through DRAM, if both were counted."""
    read, written = (counts.get(name) for name in BYTES)
    return None if read is None or written is None else max(0.0, read + written)


def tensor_operations(counts: Mapping[str, float]) -> float | None:
    """Return the operations of the tensor pipe in all dtypes, if any were counted."""
    operations = [counts[name] for name in TENSOR if name in counts]
    return max(0.0, sum(operations)) if operations else None


def _rolled_up(name: str) -> str:
    return f"{name}.{'max' if name in LARGEST else 'sum'}"
