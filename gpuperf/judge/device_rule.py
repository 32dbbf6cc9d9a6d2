"""Judge what was observed of a GPU: pure functions of the evidence, one for each fact.

The reference is the control of each fact: a submission is not accused of what the reference does as
well, but for kernels of libraries where these are forbidden. A fact whose figures are missing is
unavailable, with the reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from gpuperf.judge.author import OWN, shares
from gpuperf.judge.evidence import (
    CaseEvidence,
    Hardware,
    RecordedWindow,
    SeenWindow,
    WindowTime,
    usual,
)
from gpuperf.judge.fact import Fact, Status, fact, unavailable, unjudged
from gpuperf.judge.task import Side
from gpuperf.model.cost import Cost
from gpuperf.model.kernelname import COMPUTING, kind_of
from gpuperf.model.peaks import Peaks

# Work before the stream has reached it or after its end: seconds, and share of the work.
LATE_S, LATE_SHARE = 10e-6, 0.02
RESTLESS_S, CALM_S = 3e-3, 1.5e-3  # seconds with traffic in a pause: of a cheat, and of the control
# A read of another process after a window, while that process's own context is not the last one.
LEAST_PROBES, PROBE_TIMES, PROBE_S = 5, 3.0, 2e-3
UNEVEN = 0.1  # share of the time in kernels that only some calls run
WORKED = 1.5  # times that recorded calls may work longer than timed calls take
WORKED_S = 3e-4  # ... and seconds of a window
MANY_L2 = 4.0  # sizes of the L2: a window of fewer bytes may find its inputs there
# Share of the bytes that must be read, where they are about as many as the L2 has: a larger share
# may be of the submission's own memory, or noise.
MOST_READ = 1.5
READ, SKIPPED = 0.9, 0.5  # shares of the bytes that must be read: below, suspect; cheat
PER_PAIR = 4  # operations of an instruction on two halves
LEAST_OPERATIONS = 0.1  # share of the cost's: Winograd's and Strassen's products need fewer
COLLECTED, COLLECTED_S = 0.5, 1e-3  # share of the calls' time, and seconds, that copying may take
LEAST_OWN = 0.9  # share of the kernels' time where libraries are forbidden; others may set zeros
SIDES: tuple[Side, Side] = ("submission", "reference")
ROOF = 1.05  # times what the roofs allow
LOW = ("tensor_fp8", "tensor_int8", "tensor_fp16", "tensor_bf16", "tensor_tf32")
PRECISE = ("fp32", "fp64")  # dtypes of tasks whose results lower precision makes wrong


def device_facts(evidence: CaseEvidence, hardware: Hardware) -> Iterator[Fact]:
    """Yield every check of what was observed of a GPU."""
    yield _stream(hardware)
    yield _order(hardware)
    yield _pause(hardware)
    yield _rest(hardware)
    yield _work(evidence, hardware)
    yield _collect(evidence, hardware)
    yield _kernels(hardware)
    yield _bytes(hardware)
    yield _operations(evidence, hardware)
    yield _precision(evidence, hardware)
    yield _floor(evidence, hardware)
    yield _author(evidence, hardware)
    yield _withdrawal(hardware)


def _recorded(hardware: Hardware, side: Side) -> list[RecordedWindow]:
    return [w for w in hardware.recorded if w.side == side and w.calls and not w.lost]


def _seen(hardware: Hardware, side: Side) -> list[SeenWindow]:
    return [w for w in hardware.seen if w.side == side and w.calls]


def _missing(hardware: Hardware, key: str, name: str, what: str) -> Fact:
    """Return that the fact *name* is unavailable, with the reason that is stored under *key*."""
    return unavailable(name, hardware.missing.get(key, what))


def _stream(hardware: Hardware) -> Fact:
    """Check that no work runs on other streams when the stream of the calls has ended."""
    mine, control = _recorded(hardware, "submission"), _recorded(hardware, "reference")
    if not mine:
        return _missing(hardware, "kernels", "stream", "no window was recorded")
    worst = max((w.late_s for w in control), default=0.0)
    late = [
        w for w in mine if w.late_s > max(LATE_S, 2 * worst) and w.late_s > LATE_SHARE * w.busy_s
    ]
    longest = max(w.late_s for w in mine)
    text = (
        f"in {len(late)} of {len(mine)} windows, work on another stream went on for up to "
        f"{longest * 1e6:.0f} µs after the stream of the calls had ended"
    )
    return fact("stream", 2 * len(late) <= len(mine), longest, LATE_S, text, "cheat")


def _order(hardware: Hardware) -> Fact:
    """Check that no work of a call begins while its stream is held, before its inputs are there."""
    mine, control = (
        [w.early_s for w in _recorded(hardware, side) if w.early_s is not None] for side in SIDES
    )
    if not mine:
        return _missing(hardware, "kernels", "order", "no window began behind a held stream")
    bound = max(LATE_S, 2 * max(control, default=0.0))
    seen = statistics.median(mine)
    text = (
        f"work on another stream ran for {seen * 1e6:.0f} µs before the stream of the calls had "
        "reached it, and so did not wait for its inputs"
    )
    return fact("order", seen <= bound, seen, bound, text, "wrong")


def _pause(hardware: Hardware) -> Fact:
    """Check that another process sees the device rest after the submission's windows."""
    mine, control = _seen(hardware, "submission"), _seen(hardware, "reference")
    if not mine or not control:
        return _missing(hardware, "witness", "pause", "no window was watched")
    calm = statistics.median(w.pause_busy_s for w in control) < CALM_S
    busy = statistics.median(w.pause_busy_s for w in mine)
    text = (
        f"another process saw the device work for {busy * 1e3:.1f} ms of a pause of "
        f"{mine[0].pause_s * 1e3:.0f} ms after the windows"
    )
    return fact("pause", not (calm and busy > RESTLESS_S), busy, RESTLESS_S, text, "cheat")


def _rest(hardware: Hardware) -> Fact:
    """Check that a read by another process is as fast after the windows as on an idle device."""
    if len(hardware.probes) < LEAST_PROBES or not hardware.probe_s:
        return unavailable("rest", "the device was not probed after the windows")
    seen = statistics.median(hardware.probes)
    bound = PROBE_TIMES * hardware.probe_s + PROBE_S
    text = (
        f"after its windows the device was busy: a read by another process took "
        f"{seen * 1e3:.2f} ms, and {hardware.probe_s * 1e3:.2f} ms before"
    )
    return fact("rest", seen <= bound, seen, bound, text, "cheat")


def _call_s(evidence: CaseEvidence, side: Side) -> float | None:
    """Return the seconds of a call in the timed windows, by the clerk's clock, all included."""
    times = [w.clerk_s / w.calls for w in _timed(evidence, side)]
    return statistics.median(times) if times else None


def _timed(evidence: CaseEvidence, side: Side) -> list[WindowTime]:
    return usual(w for w in evidence.windows if w.side == side and w.timed)


def _work(evidence: CaseEvidence, hardware: Hardware) -> Fact:
    """Check that timed calls take as long as the device works in recorded ones."""
    ratios: dict[Side, tuple[float, float]] = {}
    for side in SIDES:
        recorded, call_s = _recorded(hardware, side), _call_s(evidence, side)
        if not recorded or not call_s:
            return _missing(hardware, "kernels", "work", "too few windows were recorded or timed")
        busy_s = min(w.busy_s / w.calls for w in recorded)
        calls = statistics.median(w.calls for w in recorded)
        ratios[side] = busy_s / call_s, (busy_s - call_s) * calls
    seen, more_s = ratios["submission"]
    idle = seen > WORKED * max(1.0, ratios["reference"][0]) and more_s > WORKED_S
    text = f"the device works {seen:.3g} times as long for a recorded call as a timed call takes"
    return fact("work", not idle, seen, WORKED, text, "cheat")


def _collect(evidence: CaseEvidence, hardware: Hardware) -> Fact:
    """Check that results are not computed while they are copied out."""
    call_s = _call_s(evidence, "submission")
    by: dict[tuple[int, int], dict[Side, float]] = {}
    counts: dict[tuple[int, int], int] = {}
    for c in hardware.collected:
        by.setdefault((c.process, c.window), {})[c.side] = c.clerk_s
        if c.side == "submission":
            counts[c.process, c.window] = c.results
    both = {key: t for key, t in by.items() if {"submission", "reference"} <= t.keys()}
    if not both or not call_s:
        return unavailable("collect", "no results were copied from both sides")
    if not any(w.calls > 1 for w in _timed(evidence, "submission")):
        # A copy of gigabytes takes as long as a call, and longer where a result is strided.
        return unavailable("collect", "a copy of results may take longer than a call")
    more_s = statistics.median(t["submission"] - t["reference"] for t in both.values())
    least = statistics.median(counts[key] for key in both) * call_s
    seen = more_s / least if least else 0.0
    text = f"copying results takes {more_s * 1e3:.2f} ms more than copying the reference's"
    computes = more_s > COLLECTED_S and seen > COLLECTED
    return fact("collect", not computes, max(0.0, seen), COLLECTED, text, "cheat")


def _kernels(hardware: Hardware) -> Fact:
    """Check that all calls of recorded windows run the same kernels."""
    mine, control = _recorded(hardware, "submission"), _recorded(hardware, "reference")
    if not mine:
        return _missing(hardware, "kernels", "kernels", "no window was recorded")
    if not any(w.ran for w in mine) and any(w.ran for w in control):
        return fact("kernels", False, 0, 1, "its calls ran nothing on the device", "suspect")
    uneven, other = (_uneven(windows) for windows in (mine, control))
    text = f"{uneven * 100:.0f} % of the device's time is in kernels that only some calls run"
    return fact("kernels", uneven <= max(UNEVEN, 2 * other), uneven, UNEVEN, text, "suspect")


def _uneven(windows: Sequence[RecordedWindow]) -> float:
    """Return the share of the time in kernels that do not run equally often in each call."""
    rates = [_rates(window) for window in windows]
    names = {name for rate in rates for name in rate}
    odd = {
        name
        for name in names
        if any(rate.get(name, 0.0) != rates[0].get(name, 0.0) for rate in rates)
        or rates[0].get(name, 0.0) != round(rates[0].get(name, 0.0))
    }
    kernels = [one for w in windows for one in w.ran if kind_of(one.name) in COMPUTING]
    total = sum(one.seconds for one in kernels)
    return sum(one.seconds for one in kernels if one.name in odd) / total if total else 0.0


def _rates(window: RecordedWindow) -> dict[str, float]:
    """Return how often each kernel runs in a call."""
    return {
        one.name: one.count / window.calls for one in window.ran if kind_of(one.name) in COMPUTING
    }


def _bytes(hardware: Hardware) -> Fact:
    """Check that the bytes that calls must read were read, as another process counted them."""
    least = MANY_L2 * hardware.l2_bytes
    need = hardware.needed_bytes
    reads: dict[Side, list[float]] = {}
    for side in SIDES:
        windows = [w for w in _seen(hardware, side) if need and w.calls * need > least]
        reads[side] = [w.read / (w.calls * need - hardware.l2_bytes) for w in windows]
    if not hardware.seen:
        return _missing(hardware, "witness", "bytes", "no window was watched")
    text = "its calls read {:.0f} % of the bytes of DRAM that they must read"
    if not reads["submission"] or not reads["reference"]:
        mine = [w for w in _seen(hardware, "submission") if w.calls * need >= hardware.l2_bytes > 0]
        seen = statistics.median([w.read / (w.calls * need) for w in mine] or [0.0])
        if READ <= seen <= MOST_READ:
            return fact("bytes", True, seen, READ, text.format(seen * 100), "suspect")
        return unavailable("bytes", "the inputs of a window may lie in the L2")
    seen = statistics.median(reads["submission"])
    control = min(1.0, statistics.median(reads["reference"]))
    makes: Status = "cheat" if seen < SKIPPED * control else "suspect"
    bound = READ * control
    return fact("bytes", seen >= bound, seen, bound, text.format(seen * 100), makes)


def _counts(hardware: Hardware, side: Side) -> Mapping[str, float]:
    return next((c.operations for c in hardware.counted if c.side == side), {})


def _total(counts: Mapping[str, float]) -> float | None:
    """Return the operations of a call; None if the counters of the vector pipes are missing and
    the tensor cores did nothing. An instruction on pairs of 16 bits counts as if it were fused."""
    tensor = sum(value for name, value in counts.items() if name.startswith("tensor_"))
    vector = [counts[name] for name in ("fp32_flops", "fp64_flops") if name in counts]
    pairs = PER_PAIR * sum(value for name, value in counts.items() if name.startswith("fp16_"))
    return tensor + sum(vector) + pairs if tensor or vector else None


def _operations(evidence: CaseEvidence, hardware: Hardware) -> Fact:
    """Check that a call does at least a share of the operations of the cost."""
    cost = sum(flops.count for flops in evidence.cost.flops) if evidence.cost else 0
    if not cost:
        return unavailable("operations", "the cost of the task has no operations")
    mine, control = _total(_counts(hardware, "submission")), _total(_counts(hardware, "reference"))
    if mine is None:
        what = "the counters of the vector pipes gave no values"
        return _missing(hardware, "operations", "operations", what)
    if not control:  # maxima, integers and atomic additions are not counted
        return unavailable("operations", "the counters count none of the reference's operations")
    least = min(cost, control)
    bound, share = LEAST_OPERATIONS, f"a call does {mine / least * 100:.2g} % of the operations"
    if evidence.cost_is_derived is not False and mine < bound * least:
        text = f"{share} of the reference: perhaps by another algorithm"
        return Fact("operations", "unavailable", mine / least, bound, text)
    text = f"{share} that its result needs"
    return fact("operations", mine >= bound * least, mine / least, bound, text, "suspect")


def _precision(evidence: CaseEvidence, hardware: Hardware) -> Fact:
    """Check that results that are wrong were not computed in a lower precision than the task's."""
    mine, control = _counts(hardware, "submission"), _counts(hardware, "reference")
    if not any(name.startswith("tensor_") for name in mine):
        return _missing(hardware, "operations", "precision", "no operation was counted")
    dtypes = {flops.dtype for flops in evidence.cost.flops} if evidence.cost else set[str]()
    if not dtypes or not dtypes <= set(PRECISE):
        return Fact("precision", "ok")
    low = {name: mine.get(name, 0.0) for name in LOW if not control.get(name, 0.0)}
    most = max(low, key=lambda name: low[name], default="")
    seen = low.get(most, 0.0)
    wrong = any(audit.reason for audit in evidence.audits)
    text = f"it does {seen:.3g} operations in {most.removeprefix('tensor_')}, and is wrong"
    said = fact("precision", not (seen and wrong), seen, 0.0, text, "cheat")
    if seen and not wrong:
        noun = most.removeprefix("tensor_")
        return Fact("precision", "ok", seen, None, f"{noun} is used, and the results are right")
    return said


def _floor(evidence: CaseEvidence, hardware: Hardware) -> Fact:
    """Check that neither the bandwidth nor the rate of products is above the roof."""
    roofs, call_s = evidence.roofs, _call_s(evidence, "submission")
    if roofs is None or not call_s:
        reason = "too few windows were timed" if roofs else "no roof of the device is known"
        return unavailable("floor", reason)
    bandwidth = _bandwidth_share(evidence, hardware, roofs, call_s)
    computed = _computed_share(evidence, roofs, call_s)
    if isinstance(bandwidth, str) and computed is None:
        return unavailable("floor", bandwidth)
    moved = 0.0 if isinstance(bandwidth, str) else bandwidth
    seen = max(moved, computed or 0.0)
    text = (
        f"its bandwidth would be {seen:.3g} times that of the device's memory"
        if seen == moved
        else f"a tenth of its products alone would need {seen:.3g} times the device's tensor cores"
    )
    return fact("floor", seen <= ROOF, seen, ROOF, text, "suspect")


def _bandwidth_share(
    evidence: CaseEvidence, hardware: Hardware, roofs: Peaks, call_s: float
) -> float | str:
    """Return the share of the roof of DRAM, or why it is unknown: the inputs may lie in the L2."""
    windows = [w.calls for w in _timed(evidence, "submission")]
    read, written = hardware.needed_bytes, hardware.result_bytes
    roof = roofs.bandwidth_at(read / (read + written)) if read + written else None
    if not roof or not windows:
        return "no roof of the bandwidth is known"
    calls = statistics.median(windows)
    if calls * read < MANY_L2 * hardware.l2_bytes:
        return "the inputs of a window may lie in the L2"
    kept = 2 * hardware.l2_bytes / calls  # of inputs, and of results that are not yet written
    return max(0.0, read + written - kept) / call_s / roof


def _computed_share(evidence: CaseEvidence, roofs: Peaks, call_s: float) -> float | None:
    """Return the share of the fastest tensor cores that a tenth of the products takes; None if
    either is unknown. Results in fp32 may be right by several products of 16 bits."""
    products = [flops for flops in (evidence.cost or Cost()).flops if flops.kind == "matmul"]
    dtypes = {"bf16", "fp16", "tf32", *(flops.dtype for flops in products)}
    rates = [c.rate.value for c in roofs.compute if c.pipe == "tensor" and c.dtype in dtypes]
    count = sum(flops.count for flops in products)
    return LEAST_OPERATIONS * count / call_s / max(rates) if count and rates else None


def _author(evidence: CaseEvidence, hardware: Hardware) -> Fact:
    """Report whose kernels the time is spent in, and judge that if libraries are forbidden. A
    kernel can be given any name, so that one that passes may be a library's all the same."""
    mine = _recorded(hardware, "submission")
    if not mine:
        missing = _missing(hardware, "kernels", "author", "no window was recorded")
        return unjudged(missing) if evidence.forbidden else missing
    by = shares(one for window in mine for one in window.ran)
    own = by.get(OWN, 0.0)
    whose = ", ".join(f"{author} {share * 100:.0f} %" for author, share in by.items())
    if evidence.forbidden and by and own < LEAST_OWN:
        text = (
            f"{(1 - own) * 100:.0f} % of the time is in kernels of libraries, which are forbidden"
        )
        return fact("author", False, own, LEAST_OWN, f"{text} ({whose})", "suspect")
    bound = LEAST_OWN if evidence.forbidden else None
    return Fact("author", "ok", own, bound, f"time of kernels: {whose or 'none'}")


def _withdrawal(hardware: Hardware) -> Fact:
    """Report whether inputs were withdrawn before results were copied."""
    if hardware.inputs == "shared":
        return Fact("withdrawal", "ok")
    return _missing(hardware, "withdrawal", "withdrawal", "the device shares no memory")
