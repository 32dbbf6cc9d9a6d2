"""Make the caveats of a profiled region, on its operators, FLOPs, step times and counters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from gpuperf.model.record import Caveat
from gpuperf.profile.groups import OperatorGroup
from gpuperf.profile.passes import RegionPasses
from gpuperf.profile.plainpass import scatter_caveat

# A caveat is due from these on:
DISAGREE = 0.1  # relative difference between gpuperf's FLOPs and those of torch's FlopCounterMode
UNEVEN = 0.01  # relative difference between the FLOPs of steps
UNKNOWN = 0.005  # share of the time in operators without a known cost
ELSEWHERE = 0.05  # share of the time in operators that the trace has and the accounting pass not


def caveats_of(passes: RegionPasses, groups: Collection[OperatorGroup]) -> Iterator[Caveat]:
    """Yield the caveats of a region, those of its operators first."""
    yield from _operator_caveats(passes, groups)
    yield from _flop_caveats(passes, groups)
    plain = passes.result("plain")
    for caveat in (passes.phases, scatter_caveat(plain) if plain else None):
        if caveat is not None:
            yield caveat
    yield from _device_caveats(passes, groups)
    for result in passes.passed:
        if result.steps and result.reason:
            yield Caveat("incomplete", f"{result.name}: {result.reason}")


def _operator_caveats(passes: RegionPasses, groups: Collection[OperatorGroup]) -> Iterator[Caveat]:
    accounted = passes.result("accounting") is not None

    def seconds(members: Iterable[OperatorGroup]) -> float:
        return sum(g.device_s if passes.cuda else g.host_s for g in members)

    whole_s = seconds(groups) or 1.0
    # The accounting pass observed the parts of a compiled graph instead of the graph.
    unknown = [g for g in groups if not g.per_call.known and not (g.graph and accounted)]
    if unknown and (share := seconds(unknown) / whole_s) > UNKNOWN:
        names = ", ".join(dict.fromkeys(g.call.name or "no operator" for g in unknown[:4]))
        yield Caveat(
            "unknown-operators",
            f"operators with {share * 100:.1f} % of the time have unknown FLOPs: {names}",
            "declare the cost of your own operators with gpuperf.register_cost",
        )
    traced_only = [
        g
        for g in groups
        if accounted
        and not g.accounted
        and g.call.name
        and (g.graph or (g.per_call.known and g.per_call.kind != "view"))
    ]
    share = seconds(traced_only) / whole_s
    if share > ELSEWHERE and passes.timeline is not None:
        yield Caveat(
            "other-operators",
            f"{share * 100:.1f} % of the time is in operators, or shapes of operators, that the "
            "accounting pass did not observe, so the step's FLOPs and those of its rows may "
            "disagree: the accounting pass took other steps, and sees inside compiled code",
            "take FLOPs of the step from the totals (accounted steps), times from rows (traced)",
        )


def _flop_caveats(passes: RegionPasses, groups: Collection[OperatorGroup]) -> Iterator[Caveat]:
    """Yield caveats if steps differ in FLOPs, or gpuperf's FLOPs from torch's FlopCounterMode."""
    accounting = passes.result("accounting")
    counts = accounting.flop_counts if accounting else ()
    if not counts or not max(counts):
        return
    mean = sum(counts) / len(counts)
    if max(counts) - min(counts) > UNEVEN * mean:
        yield Caveat(
            "uneven-steps",
            f"steps differ in their FLOPs: torch's own counter has {min(counts) / 1e9:.4g} to "
            f"{max(counts) / 1e9:.4g} GFLOP in {len(counts)} steps",
            "FLOP/s and MFU are those of a mean step, without work that only other steps do",
        )
    ours = sum(
        f.count * g.accounted for g in groups for f in g.per_call.work.flops if f.kind == "matmul"
    )
    if abs(ours / mean - 1) > DISAGREE:
        yield Caveat(
            "flops-disagree",
            f"gpuperf counts {ours / 1e9:.4g} GFLOP of matmuls and attention in a step, torch's "
            f"own counter {mean / 1e9:.4g}",
            "torch counts causal attention without its mask, and your own operators as 0 FLOPs",
        )


def _device_caveats(passes: RegionPasses, groups: Collection[OperatorGroup]) -> Iterator[Caveat]:
    kernels = passes.result("kernels")
    counted = any(kernel.counters for group in groups for kernel in group.kernels)
    if kernels and passes.timeline is not None and not counted:
        yield Caveat(
            "incomplete",
            f"kernels: counters of {len(kernels.kernels)} kernels cannot be assigned, as the "
            "traced steps have another number of kernels, or other names",
            "a CUDA graph counts as one kernel: run without it, with equal steps",
        )
    used = passes.timeline.active_devices if passes.timeline is not None else ()
    if passes.device is not None and used and used != (passes.device,):
        yield Caveat(
            "other-devices",
            f"work ran on GPU {', '.join(map(str, used))}, while times, memory and counters are "
            f"those of GPU {passes.device}",
            "use one GPU a process, or torch.cuda.set_device",
        )
