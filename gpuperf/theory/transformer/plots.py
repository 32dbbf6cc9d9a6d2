"""Make the plots of `gpuperf theory inference`: operators under the roofline, and throughput."""

from __future__ import annotations

from typing import Any

from gpuperf.theory.theory import Curve, Plot
from gpuperf.theory.transformer.operators import Operator
from gpuperf.theory.transformer.parts import ATTENTION, passes
from gpuperf.theory.transformer.setting import Setting

BATCHES = tuple(2**k for k in range(11))
ALIKE = 0.02  # operators that differ by less are one point of the chart


def roofline(at: Any, setting: Setting) -> Plot:
    """Return the operators of the passes of *at* under the roofs, each group alike one point."""
    roofs = setting.roofs
    rates = {setting.formats.product_dtype: roofs.linear_rate}
    if roofs.rate != roofs.linear_rate:
        rates["16 bits"] = roofs.rate
    points = _points(passes(at, setting))
    ends = (0.5, max(2.0 * max(x for x, _ in points), 4096.0))
    curves = [
        Curve(f"roof of {name}", [(x, min(x * roofs.bandwidth, rate) / 1e12) for x in corners])
        for name, rate in rates.items()
        for corners in [(ends[0], rate / roofs.bandwidth, ends[1])]
    ]
    curves += [Curve("\n".join(names), [point]) for point, names in points.items()]
    title = f"{setting.model.name}, {setting.formats.weights} weights: operators of passes"
    return Plot("intensity, FLOP/byte", "TFLOP/s", curves, title=title)


def _points(
    listed: tuple[tuple[str, tuple[Operator, ...]], ...],
) -> dict[tuple[float, float], list[str]]:
    """Return the points of operators, and what is at each: a pass and its operators a line."""
    points: dict[tuple[float, float], dict[str, list[str]]] = {}
    for name, ops in listed:
        for op in ops:
            if op.flops:
                x, y = op.intensity, op.flops / op.seconds / 1e12
                near = (p for p in points if abs(p[0] / x - 1) + abs(p[1] / y - 1) < ALIKE)
                points.setdefault(next(near, (x, y)), {}).setdefault(name, []).append(op.name)
    return {
        point: [f"{name}: {_names(ops)}" for name, ops in passes.items()]
        for point, passes in points.items()
    }


def _names(names: list[str]) -> str:
    """Return a short text of the operators at one point."""
    linears = [name for name in names if name not in (*ATTENTION, "head")]
    others = [name for name in names if name in (*ATTENTION, "head")]
    if len(linears) > 1:
        experts = all(name.startswith("experts") for name in linears)
        linears = ["experts" if experts else f"{len(linears)} linears"]
    return ", ".join(linears + others)


def throughput(at: Any, setting: Setting) -> Plot:
    """Return the tokens a second by batch, a curve for each context."""
    steps = setting.steps
    curves = [
        Curve(f"context {c:,}", [(b, b / steps.decode_s(b, b * c)) for b in BATCHES])
        for c in at.context
    ]
    return Plot("batch", "token/s", curves, title=f"{setting.model.name}: decode")
