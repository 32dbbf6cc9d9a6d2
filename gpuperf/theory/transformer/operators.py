"""List the operators of a pass: FLOPs, bytes, intensity, and what binds each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuperf.theory.transformer.step import Estimate, Steps, elementwise_elements

Origin = Literal["roofs", "measured", "extrapolated"]


@dataclass(frozen=True)
class Operator:
    """An operator of a pass in all of its `layers`: FLOPs, bytes and seconds.

    `rate` is its compute roof in FLOP/s (0: it has no FLOPs that count). `beyond` says how
    measurements were extrapolated to its time.
    """

    name: str
    layers: int
    flops: float
    bytes: float
    seconds: float
    rate: float
    origin: Origin = "roofs"
    beyond: str = ""

    @property
    def intensity(self) -> float:
        """The FLOPs that it does a byte."""
        return self.flops / self.bytes

    def bound(self, bandwidth: float) -> str:
        """Return what binds it at *bandwidth* byte/s: compute or memory."""
        return "compute" if self.rate and self.intensity > self.rate / bandwidth else "memory"


def operators(
    steps: Steps,
    batch: int = 0,
    context: float = 0,
    chunks: Sequence[tuple[int, int]] = (),
    queries: int = 1,
) -> tuple[Operator, ...]:
    """Return the operators of the pass that `steps.pass_s` times, in the order of a layer.

    Their seconds, and the fixed time of a pass, add up to the time of the pass.
    """
    tokens = batch * queries + sum(new for new, _ in chunks)
    *layers, head = (op for op in _linears(steps, tokens, batch * queries + len(chunks)))
    listed = [layers[0], *_attention(steps, batch, context, chunks, queries), *layers[1:]]
    if steps.unfused:
        moved = 2 * tokens * steps.model.layers * elementwise_elements(steps.model)
        spent = steps.elementwise_s(tokens)
        listed.append(Operator("elementwise", steps.model.layers, 0, moved, spent, 0))
    return (*listed, head)


def _linears(steps: Steps, tokens: int, logits: int) -> Iterator[Operator]:
    for linear in steps.model.linears:
        rows = logits if linear.of == "head" else tokens
        flops, moved = steps.linear(linear, rows)
        known = steps.measured_linear(linear, rows)
        yield Operator(
            linear.name,
            linear.times,
            flops,
            moved,
            steps.linear_s(linear, rows),
            steps.rate(linear),
            *_origin(known),
        )


def _attention(
    steps: Steps, batch: int, context: float, chunks: Sequence[tuple[int, int]], queries: int
) -> Iterator[Operator]:
    layers, rate = steps.model.layers, steps.roofs.rate
    if batch:
        flops, moved = steps.decode_attention(batch, context, queries)
        spent = steps.decode_attention_s(batch, context, queries)
        known = steps.measured_decode(batch, context, queries)
        yield Operator("attention", layers, flops, moved, spent, rate, *_origin(known))
    for new, cached in chunks:
        flops, moved = steps.prefill_attention(new, cached)
        spent = steps.prefill_attention_s(new, cached)
        yield Operator("prompt attention", layers, flops, moved, spent, rate)


def _origin(known: Estimate | None) -> tuple[Origin, str]:
    if known is None:
        return "roofs", ""
    return ("extrapolated" if known.beyond else "measured"), known.beyond


def origin_of(listed: Sequence[Operator]) -> str:
    """Return where the times of *listed* come from, the least certain first."""
    known = {op.origin for op in listed}
    order: tuple[Origin, ...] = ("extrapolated", "measured", "roofs")
    return " + ".join(origin for origin in order if origin in known)
