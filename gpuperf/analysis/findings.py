"""What is worth changing first in a program, and how much would the whole step gain?

Each finding has a figure and says what it rests on. Time of the device that is saved shortens the
step only where the device is what the step waits for, so it counts by the share of the step in
which it was busy (Amdahl). Under `LEAST` of the step nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuperf.analysis.region import Profile, Share
from gpuperf.model.cost import Flops
from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Header
from gpuperf.units import format_bytes, format_number

__all__ = ["LEAST", "Gain", "findings"]

LEAST = 0.02  # of the step
MOST_WHERE = 4
ALIGNED = 16  # bytes that a row of a matmul should be a multiple of: cuBLAS's own advice
# What a row off that boundary may be paid with, where no other matmul of the program tells.
USUAL_RATE = 0.7  # of the measured roof
SLOW = 0.7  # of the rate of the others
PINNED_BYTES_PER_S = 50e9  # of a pinned copy over PCIe 5 x16: 63 GB/s less its protocol


@dataclass(frozen=True)
class Gain:
    """What to do, the seconds of a step that it would save, their share, what that rests on, and
    the lines or operators that it is about."""

    title: str
    gain_s: float
    share: float
    basis: str
    where: tuple[str, ...] = ()


def findings(profile: Profile, header: Header) -> tuple[Gain, ...]:
    """By gain, the largest first."""
    makers = (_fusion, _precision, _alignment, _attention, _launches, _waits, _pageable)
    found = [one for maker in makers for one in maker(profile, header) if one.share >= LEAST]
    return tuple(sorted(found, key=lambda one: -one.gain_s))


def _saved(profile: Profile, device_s: float) -> tuple[float, float]:
    """Seconds and share of the step for *device_s* of the device."""
    gain_s = device_s * (profile.busy_s / profile.step_s if profile.cuda else 1.0)
    return gain_s, gain_s / profile.step_s


def _fusion(profile: Profile, header: Header) -> Iterator[Gain]:
    """Elementwise chains, by the bandwidth that this program's elementwise kernels reach."""
    program = profile.region.program
    chains = program.chains if program else ()
    own = [
        s for s in profile.operators
        if s.record.operator and s.record.operator.kind in ("elementwise", "copy", "random")
    ]  # fmt: skip
    moved = sum(s.record.cost.dram_bytes for s in own if s.record.cost)
    seconds = sum(s.seconds for s in own)
    if not chains or not moved or not seconds:
        return
    saved = sum(chain.bytes - chain.fused_bytes for chain in chains)
    gain_s, share = _saved(profile, min(saved / moved, 1.0) * seconds)
    best = sorted(chains, key=lambda chain: chain.fused_bytes - chain.bytes)
    count = sum(chain.count for chain in chains)
    yield Gain(
        f"fuse {count} chains of elementwise operators (torch.compile does)", gain_s, share,
        f"they move {format_bytes(sum(c.bytes for c in chains))} a step, fused "
        f"{format_bytes(sum(c.fused_bytes for c in chains))}, at the "
        f"{format_bytes(moved / seconds)}/s that elementwise kernels reach here",
        tuple(
            f"{chain.where or 'backward'} ({' '.join(chain.operators[:4])})"
            for chain in best[:MOST_WHERE]
        ),
    )  # fmt: skip


def _matmuls(profile: Profile) -> list[Share]:
    kinds = ("matmul", "convolution", "attention")
    return [
        s for s in profile.operators
        if s.record.operator and s.record.operator.kind in kinds and s.record.cost and s.seconds
    ]  # fmt: skip


def _main_flops(share: Share) -> Flops | None:
    flops = share.record.cost.flops if share.record.cost else ()
    return max((f for f in flops if f.kind == "matmul"), key=lambda f: f.count, default=None)


def _rate(peaks: Peaks | None, dtype: str) -> float | None:
    ceiling = peaks.ceiling(Flops(1, "matmul", dtype, "fp32")) if peaks else None
    return ceiling.rate.value if ceiling else None


def _precision(profile: Profile, header: Header) -> Iterator[Gain]:
    """fp32 matmuls on a device whose tensor cores take tf32 and bf16."""
    peaks = header.ceilings or header.peaks
    slow = [(s, f) for s in _matmuls(profile) if (f := _main_flops(s)) and f.dtype == "fp32"]
    before, after = _rate(peaks, "fp32"), _rate(peaks, "tf32")
    if not slow or not before or not after or after <= before:
        return
    bandwidth = peaks.bandwidth.value if peaks and peaks.bandwidth else None
    saved = 0.0
    for share, _ in slow:
        least = share.record.cost.dram_bytes / bandwidth if bandwidth and share.record.cost else 0.0
        saved += max(0.0, share.seconds - max(share.seconds * before / after, least))
    gain_s, part = _saved(profile, saved)
    yield Gain(
        'let fp32 matmuls use tf32: torch.set_float32_matmul_precision("high"); or bf16', gain_s,
        part,
        f"{len(slow)} operators in fp32, {format_number(before / 1e12, 3)} TFLOP/s at the most; "
        f"tf32 {format_number(after / 1e12, 3)}, no faster than their bytes",
        _places(share for share, _ in slow),
    )  # fmt: skip


def _alignment(profile: Profile, header: Header) -> Iterator[Gain]:
    """Slow matmuls with a side off 16 bytes, beside those of the same dtype without one. Which side
    the rows lie along is not recorded: one across them costs nothing, and is not slow."""
    if not profile.cuda:
        return
    odd: list[tuple[Share, Flops]] = []
    rates: dict[str, list[float]] = {}
    for share in _matmuls(profile):
        flops, operator = _main_flops(share), share.record.operator
        if flops is None or operator is None or operator.kind != "matmul":
            continue
        if _odd(str(share.record.case.point.get("of", "")), flops.dtype):
            odd.append((share, flops))
        else:
            rates.setdefault(flops.dtype, []).append(flops.count / share.seconds)
    saved, told = 0.0, []
    for share, flops in odd:
        rate = max(rates.get(flops.dtype, ()), default=None)
        roof = _rate(header.ceilings or header.peaks, flops.dtype)
        rate = rate or (USUAL_RATE * roof if roof else None)
        if rate and flops.count / share.seconds < SLOW * rate:
            saved += share.seconds - flops.count / rate
            told.append(share)
    gain_s, part = _saved(profile, saved)
    if told:
        yield Gain(
            "pad the dimensions that are no multiple of 8 (a vocabulary, for one)", gain_s, part,
            f"rows off a boundary of {ALIGNED} bytes; aligned, they would run at the rate of the "
            "fastest aligned matmul of the same dtype here",
            _places(told),
        )  # fmt: skip


WIDTH = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp64": 8}


def _odd(shapes: str, dtype: str) -> bool:
    """Whether a side of a matrix among *shapes* is off the boundary."""
    step = max(1, ALIGNED // WIDTH.get(dtype, 4))
    for text in shapes.split(", "):
        sizes = text.split(" ")[0].split("×")
        if len(sizes) >= 2 and any(n.isdigit() and int(n) % step for n in sizes[-2:]):
            return True
    return False


def _attention(profile: Profile, header: Header) -> Iterator[Gain]:
    """Attention by batched products around a softmax: the scores go through memory."""
    names = {s.record.case.op: s for s in profile.operators}
    soft = [s for s in profile.operators if s.record.operator
            and s.record.operator.kind == "softmax" and "_log" not in s.record.case.op]  # fmt: skip
    if "aten::bmm" not in names or not soft:
        return
    scores = {str(s.record.case.point.get("of", "")).split(", ")[0].split(" ")[0] for s in soft}
    sizes = {_size(text) for text in scores}
    passes = [
        s for s in profile.operators
        if s.record.operator and s.record.operator.kind in ("softmax", "elementwise", "copy")
        and any(_size(part.split(" ")[0]) in sizes
                for part in str(s.record.case.point.get("of", "")).split(", "))
    ]  # fmt: skip
    gain_s, part = _saved(profile, sum(s.seconds for s in passes))
    yield Gain(
        "use scaled_dot_product_attention: the scores then never leave the chip", gain_s, part,
        "the time of the softmax and of what else goes over the scores; its products stay",
        _places(passes),
    )  # fmt: skip


def _size(text: str) -> int:
    total = 1
    for word in text.split("×"):
        total *= int(word) if word.isdigit() else 0
    return total


def _launches(profile: Profile, header: Header) -> Iterator[Gain]:
    """Time in which the device waits for the host to launch, and not by a wait of the host's."""
    idle_s = profile.idle_s - _waited_s(profile)
    program = profile.region.program
    if profile.cuda and idle_s > 0 and "busy" in profile.region.times:
        kernels = program.launched.get("kernel", 0.0) if program else 0.0
        yield Gain(
            "launch less: CUDA graphs, torch.compile(mode='reduce-overhead'), larger batches",
            idle_s, idle_s / profile.step_s,
            f"the GPU is idle {idle_s / profile.step_s * 100:.1f} % of the step, and not because "
            f"the host waits for it: that takes longer to launch {kernels:,g} kernels",
        )  # fmt: skip


def _waited_s(profile: Profile) -> float:
    """Seconds that the device idles less where the host does not wait.

    Traced ones: the profiler slows the host, which then waits less; so there are no fewer in a
    plain step, up to all that it idles.
    """
    program = profile.region.program
    waits = program.waits if program and profile.cuda else ()
    return min(profile.idle_s, sum(wait.idle_s for wait in waits))


def _waits(profile: Profile, header: Header) -> Iterator[Gain]:
    """Lines that make the host wait: what the device idles until the host has caught up."""
    program = profile.region.program
    gain_s = _waited_s(profile)
    if program is None or not gain_s:
        return
    lines = [wait for wait in program.waits if wait.idle_s]
    lines.sort(key=lambda wait: -wait.idle_s)
    yield Gain(
        "do not wait for the device in the loop", gain_s, gain_s / profile.step_s,
        f"{sum(w.count for w in lines):.4g} times a step the host waits for the device, which then "
        "idles until the host has caught up: no longer than the host waited",
        tuple(f"{w.where or 'no line known'} ({w.what})" for w in lines[:MOST_WHERE]),
    )  # fmt: skip


def _pageable(profile: Profile, header: Header) -> Iterator[Gain]:
    program = profile.region.program
    moved = program.moved if program else {}
    for name, size in moved.items():
        seconds = program.occupied.get(name, 0.0) if program else 0.0
        if "pageable" in name and seconds:
            gain_s, share = _saved(profile, max(0.0, seconds - size / PINNED_BYTES_PER_S))
            yield Gain(
                "copy from pinned memory: pin_memory=True, and non_blocking=True", gain_s, share,
                f"{format_bytes(size)} a step from pageable memory at "
                f"{format_bytes(size / seconds)}/s",
            )


def _places(shares: Iterable[Share]) -> tuple[str, ...]:
    """Lines of the program, or names of operators, the slowest first."""
    told: dict[str, None] = {}
    ordered: Sequence[Share] = sorted(shares, key=lambda share: -share.seconds)
    for share in ordered:
        operator = share.record.operator
        case = share.record.case
        what = f"{case.op.removeprefix('aten::')} of {case.point.get('of')}"
        line = operator.where[0] if operator and operator.where else ""
        line = line or ("backward" if operator and operator.backward else "")
        told[f"{line} ({what})" if line else what] = None
    return tuple(told)[:MOST_WHERE]
