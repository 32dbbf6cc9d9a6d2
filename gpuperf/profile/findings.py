"""Find what to change first in a program, and estimate how much the whole step gains.

Each finding has a figure and its basis. Findings under `LEAST` of the step are left out (of those
on communication under `LEAST_OF_LINKS`), and a step that was only timed under a profiler, which
slows the host, has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from gpuperf.model.cost import Flops
from gpuperf.model.program import Chain
from gpuperf.model.record import Header
from gpuperf.profile.breakdown import OperatorRow, Profile
from gpuperf.profile.gain import Gain, saved
from gpuperf.profile.hostgains import HOST_MAKERS
from gpuperf.profile.ranks.gains import LINK_MAKERS
from gpuperf.units import format_bytes, format_number

LEAST = 0.02  # share of the step: findings that save less are left out
# Of findings on communication, which is measured and not estimated, and grows with more ranks.
LEAST_OF_LINKS = 0.01
MOST_WHERE = 4  # places of a finding
ALIGNED = 16  # bytes: rows of a matmul should be multiples of it (cuBLAS's own advice)
USUAL_RATE = 0.7  # share of the roof that a large matmul reaches, if no other one is comparable
SLOW = 0.7  # a matmul is worth padding if it then takes less than this share of its time
ALIKE = 8  # ratio of FLOPs a call up to which two matmuls are comparable
LARGE = 2e10  # FLOPs: a call with more fills a GPU


def findings(profile: Profile, header: Header) -> tuple[Gain, ...]:
    """Return the findings on a step, the largest gain first; none if no plain pass timed it."""
    if not profile.plain:
        return ()
    others = (_fusion, _precision, _alignment, _attention, *HOST_MAKERS)
    gains = [
        gain
        for makers, least in ((others, LEAST), (LINK_MAKERS, LEAST_OF_LINKS))
        for maker in makers
        for gain in maker(profile, header)
        if gain.share >= least
    ]
    return tuple(sorted(gains, key=lambda gain: -gain.gain_s))


def _fusion(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of fusing elementwise chains: of the optimizer, which has a fused kernel
    itself, and of the other operators."""
    program = profile.region.program
    chains = program.chains if program else ()
    for optimizer in (False, True):
        own = [chain for chain in chains if chain.optimizer == optimizer]
        yield from _fused(profile, own, optimizer)


def _fused(profile: Profile, chains: Sequence[Chain], optimizer: bool) -> Iterator[Gain]:
    """Yield the gain of fusing *chains*: the bytes saved, at the bandwidth that the same operators
    reach in this profile, and so at most the time of these operators."""
    names = {name for chain in chains for name in chain.operators}
    own = [
        s
        for s in profile.operators
        if s.record.case.op.removeprefix("aten::") in names
        and s.seconds
        and not _to_or_from_host(s)
    ]
    moved = sum(s.record.cost.dram_bytes for s in own if s.record.cost)
    seconds = sum(s.seconds for s in own)
    if not chains or not moved or not seconds:
        return
    fewer = sum(chain.bytes - chain.fused_bytes for chain in chains)
    gain_s, share = saved(profile, min(fewer / moved, 1.0) * seconds)
    best = sorted(chains, key=lambda chain: chain.fused_bytes - chain.bytes)
    count = sum(chain.count for chain in chains)
    plural = "" if count == 1 else "s"
    norms = " and norms" if any("norm" in name for name in names) else ""
    title = (
        f"let the optimizer fuse its {count} chain{plural} of elementwise operators: fused=True"
        if optimizer
        else f"fuse {count} chain{plural} of elementwise operators{norms} (torch.compile does)"
    )
    yield Gain(
        title,
        gain_s,
        share,
        f"they move {format_bytes(sum(c.bytes for c in chains))} a step, and would move "
        f"{format_bytes(sum(c.fused_bytes for c in chains))} fused, at the "
        f"{format_bytes(moved / seconds)}/s that these operators reach in this profile",
        tuple(
            f"{chain.where or 'backward'} ({' '.join(chain.operators[:4])})"
            for chain in best[:MOST_WHERE]
        ),
    )


def _to_or_from_host(row: OperatorRow) -> bool:
    return any(k.route.startswith(("HtoD", "DtoH")) for k in row.record.kernels)


def _matmuls(profile: Profile) -> list[OperatorRow]:
    kinds = ("matmul", "convolution", "attention")
    return [
        s
        for s in profile.operators
        if s.record.operator and s.record.operator.kind in kinds and s.record.cost and s.seconds
    ]


def _main_flops(row: OperatorRow) -> Flops | None:
    flops = row.record.cost.flops if row.record.cost else ()
    return max((f for f in flops if f.kind == "matmul"), key=lambda f: f.count, default=None)


def _rate(header: Header, dtype: str) -> float | None:
    """Return the roof of a matmul in FLOP/s: the measured one, or else the data sheet's."""
    flops = Flops(1, "matmul", dtype, "fp32")
    roofs = (peaks.ceiling(flops) for peaks in (header.ceilings, header.peaks) if peaks)
    return next((roof.rate.value for roof in roofs if roof), None)


def _precision(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of tf32 for fp32 matmuls, on a device whose tf32 roof is the higher one."""
    slow = [(s, f) for s in _matmuls(profile) if (f := _main_flops(s)) and f.dtype == "fp32"]
    before, after = _rate(header, "fp32"), _rate(header, "tf32")
    if not slow or not before or not after or after <= before:
        return
    less_s = sum(
        max(0.0, row.seconds - max(flops.count / (USUAL_RATE * after), _least_s(row, header)))
        for row, flops in slow
    )
    gain_s, part = saved(profile, less_s)
    yield Gain(
        'let fp32 matmuls use tf32: torch.set_float32_matmul_precision("high"); or bf16',
        gain_s,
        part,
        f"{len(slow)} operators run in fp32, whose roof is {format_number(before / 1e12, 3)} "
        f"TFLOP/s; tf32 is taken to reach {USUAL_RATE:.0%} of {format_number(after / 1e12, 3)}, "
        "or the roof of memory",
        _places(row for row, _ in slow),
    )


def _alignment(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of padding slow matmuls that have a dimension off a boundary of 16 bytes.

    Their rate is compared with that of aligned matmuls of the same dtype and similar FLOPs a call.
    A record does not say which dimension is contiguous in memory: only that one has to be aligned,
    so a matmul that is not slow needs no padding.
    """
    if not profile.cuda:
        return
    odd: list[tuple[OperatorRow, Flops]] = []
    even: list[tuple[OperatorRow, Flops]] = []
    for row in _matmuls(profile):
        flops = _main_flops(row)
        if flops is not None and _kind(row) == "matmul":
            (odd if _odd(row, flops.dtype) else even).append((row, flops))
    less_s, slow = 0.0, []
    for row, flops in odd:
        rate = _usual_rate(row, flops, even, header)
        after = max(flops.count / rate, _least_s(row, header)) if rate else row.seconds
        if after < SLOW * row.seconds:
            less_s += row.seconds - after
            slow.append(row)
    gain_s, part = saved(profile, less_s)
    if slow:
        yield Gain(
            "pad the dimensions that are no multiple of 8 (a vocabulary, for one)",
            gain_s,
            part,
            f"rows of these matmuls are off a boundary of {ALIGNED} bytes; aligned, they would "
            f"reach the rate of this profile's aligned matmuls of equal dtype and size (or "
            f"{USUAL_RATE:.0%} of the roof), at most the roof of memory",
            _places(slow),
        )


def _usual_rate(
    row: OperatorRow, flops: Flops, others: Iterable[tuple[OperatorRow, Flops]], header: Header
) -> float | None:
    """Return the FLOP/s of those of the matmuls *others* with the same dtype and similar FLOPs.

    Without such matmuls it is `USUAL_RATE` of the roof if *row* is large, and None if it is small.
    """
    own = flops.count / _calls(row)
    alike = [
        (s, f)
        for s, f in others
        if f.dtype == flops.dtype and own / ALIKE <= f.count / _calls(s) <= own * ALIKE
    ]
    if alike:
        return sum(f.count for _, f in alike) / sum(s.seconds for s, _ in alike)
    roof = _rate(header, flops.dtype)
    return USUAL_RATE * roof if roof and own > LARGE else None


def _calls(row: OperatorRow) -> float:
    count = row.record.operator.count if row.record.operator else 1.0
    return count if count > 0 else 1.0


def _least_s(row: OperatorRow, header: Header) -> float:
    """Return the seconds that the operator's compulsory bytes take at the roof of memory."""
    roofs = (peaks.bandwidth for peaks in (header.ceilings, header.peaks) if peaks)
    bandwidth, cost = next((roof for roof in roofs if roof), None), row.record.cost
    return cost.dram_bytes / bandwidth.value if bandwidth and cost else 0.0


WIDTH = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp64": 8}


def _odd(row: OperatorRow, dtype: str) -> bool:
    """Return whether a matrix of the operator has a dimension off a boundary of 16 bytes."""
    step = max(1, ALIGNED // WIDTH.get(dtype, 4))
    return any(n % step for shape in _shapes(row) if len(shape) > 1 for n in shape[-2:])


def _attention(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of fused attention over two products with a softmax between.

    The scores of such attention go through memory. They are detected by shapes: one product of
    b×n×d and b×d×m makes scores of b×n×m, another multiplies them by b×m×e, and a softmax has as
    many elements in rows of m. Other operators of that shape (mask, scale, dropout, their backward)
    count as passes over the scores.
    """
    scores = _scores(profile)
    soft = [
        s
        for s in profile.operators
        if _kind(s) == "softmax"
        and "_log" not in s.record.case.op
        and any(_matrices(shape) in scores for shape in _shapes(s))
    ]
    rows = {_rows(shape) for s in soft for shape in _shapes(s) if _matrices(shape) in scores}
    passes = [
        s
        for s in profile.operators
        if _kind(s) in ("softmax", "elementwise", "copy", "random")
        and any(_rows(shape) in rows for shape in _shapes(s))
    ]
    gain_s, part = saved(profile, sum(s.seconds for s in passes))
    # Only the fallback of scaled_dot_product_attention calls _safe_softmax.
    called = any(s.record.case.op == "aten::_safe_softmax" for s in soft)
    yield Gain(
        "let scaled_dot_product_attention take a fused kernel: it falls back to products"
        if called
        else "use scaled_dot_product_attention: the scores then never leave the chip",
        gain_s,
        part,
        "the gain is the time of the softmax and of other operators on the scores; the two "
        "products remain",
        _places(passes),
    )


def _scores(profile: Profile) -> set[tuple[int, int, int]]:
    """Return (elements, rows, columns) of each batched product that another one multiplies."""
    made, taken = set(), set()
    for row in profile.operators:
        name = row.record.case.op
        factors = _shapes(row)[1:] if name == "aten::baddbmm" else _shapes(row)
        if name not in ("aten::bmm", "aten::baddbmm") or [len(f) for f in factors] != [3, 3]:
            continue
        (b, n, _), (_, _, m) = factors
        made.add((b * n * m, n, m))
        taken.add(_matrices(factors[0]))
    return made & taken


def _matrices(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the elements of *shape*, and the rows and columns of each of its matrices."""
    return (math.prod(shape), shape[-2], shape[-1]) if len(shape) > 1 else (0, 0, 0)


def _rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of elements of *shape*, and of one of its rows."""
    return (math.prod(shape), shape[-1]) if shape else (1, 1)


def _kind(row: OperatorRow) -> str:
    return row.record.operator.kind if row.record.operator else ""


def _shapes(row: OperatorRow) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors that the operator takes, without scalars."""
    operator = row.record.operator
    return [tensor.shape for tensor in operator.tensors if tensor.shape] if operator else []


def _places(shares: Iterable[OperatorRow]) -> tuple[str, ...]:
    """Return `line (operator of operands)` for the slowest of the operators *shares*."""
    places: dict[str, None] = {}
    ordered: Sequence[OperatorRow] = sorted(shares, key=lambda row: -row.seconds)
    for row in ordered:
        operator = row.record.operator
        case = row.record.case
        what = f"{case.op.removeprefix('aten::')} of {operator.operands if operator else ''}"
        line = operator.where[0] if operator and operator.where else ""
        line = line or ("backward" if operator and operator.backward else "")
        places[f"{line} ({what})" if line else what] = None
    return tuple(places)[:MOST_WHERE]
