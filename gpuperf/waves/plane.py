"""Predict throughput over m and n together, on the grid of a heatmap."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpuperf.model.workload import Case
from gpuperf.waves.study import KernelStudy, WaveStudy

MOST_CELLS = 256  # cells along each side, even if the sizes of a run file span more


@dataclass(frozen=True)
class Plane:
    """FLOP per cycle that a model predicts for each of *ms* (rows) with each of *ns* (columns).

    A cell ends at its size and begins after the size before: so tiles end where cells do, and a
    cell has the tiles of its size.
    """

    ms: range
    ns: range
    rows: tuple[tuple[float, ...], ...]


def varies_both(cases: Iterable[Case]) -> bool:
    """Whether m and n vary by themselves in the cases of one implementation, all else equal."""
    pairs: dict[object, set[tuple[object, object]]] = {}
    for case in cases:
        point = case.point
        others = tuple((k, v) for k, v in point.items() if k not in ("m", "n"))
        key = (case.implementation, tuple(case.options.items()), others)
        pairs.setdefault(key, set()).add((point.get("m"), point.get("n")))
    return any(map(spans, pairs.values()))


def spans(pairs: Collection[tuple[object, object]]) -> bool:
    """Whether distinct (m, n) lie in a plane: on a line, m would follow from n."""
    sides = [len(set(side)) for side in zip(*pairs, strict=True)]
    return len(pairs) > max(sides) and min(sides) > 1 if sides else False


def panels(study: WaveStudy, most: int) -> tuple[tuple[KernelStudy, ...], tuple[str, ...]]:
    """Return at most *most* kernels of a `study_plane` that have a model and span m and n, those
    with most sizes first; and counts of what is left out, in words."""
    modelled = [kernel for kernel in study.kernels if kernel.model]
    flat = [k for k in modelled if spans({(p.measured.m, p.measured.n) for p in k.points})]
    kernels = tuple(sorted(flat, key=lambda kernel: -len(kernel.points)))
    left_out = (
        (len(study.kernels) - len(modelled), "kernel", "without a model"),
        (len(modelled) - len(kernels), "kernel", "not spanning m and n"),
        (len(kernels[most:]), "kernel", "with fewer sizes"),
        (len(study.left_out), "size", "without a time in cycles"),
    )
    words = (f"{n} {noun}{'s' if n > 1 else ''} {why}" for n, noun, why in left_out if n)
    return kernels[:most], tuple(words)


def predict(kernel: KernelStudy) -> Plane:
    """Predict over the sizes that *kernel* was measured at. Raises: ValueError without a model."""
    if kernel.model is None:
        raise ValueError("a prediction needs a model")
    model, k = kernel.model, kernel.points[0].measured.k
    ms = _cells([point.measured.m for point in kernel.points])
    ns = _cells([point.measured.n for point in kernel.points])
    return Plane(
        ms, ns, tuple(tuple(2 * m * n * k / model.cycles(m, n, k) for n in ns) for m in ms)
    )


def _cells(sizes: Collection[int]) -> range:
    """Return the ends of cells that hold all *sizes*, in steps of a power of two, as tiles have."""
    low, high = min(sizes), max(sizes)
    step = 1
    while -(-high // step) - -(-low // step) >= MOST_CELLS:
        step *= 2
    return range(-(-low // step) * step, -(-high // step) * step + 1, step)
