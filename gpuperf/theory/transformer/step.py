"""Compute the time of one pass of a transformer: prefill, decode, and both together.

The kernels of a pass run one after another, so the times of its operators add up; each is that of
its FLOPs or that of its bytes. One maximum over the sums of all operators would be up to two times
too short: linear layers may be bound by compute while attention is bound by memory.

The activations between operators are left out: those of a decode step stay in the L2, and those of
a linear layer in a prefill hide behind its FLOPs. `elementwise_elements` counts the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from gpuperf.errors import UsageError
from gpuperf.theory.decoding import attention_seconds, causal_pairs, decode_attention, packed_bits
from gpuperf.theory.theory import Chip
from gpuperf.theory.transformer.model import Linear, Model
from gpuperf.units import itemsize

AUTO = "auto"  # bf16 on a device that has it, else fp16
SIXTEEN = ("bf16", "fp16")
# Bits of a weight, and the dtype of the products; int4 has a scale of 16 bits a group besides. One
# scale for a row of 8-bit weights is under 0.5 % of its bytes and is left out.
WEIGHTS: Mapping[str, tuple[int, str]] = {
    "bf16": (16, "bf16"),
    "fp16": (16, "fp16"),
    "fp8": (8, "fp8"),
    "int8": (8, "bf16"),
    "int8-dynamic": (8, "int8"),
    "int4": (4, "bf16"),
}
KV = ("bf16", "fp16", "fp8", "int8")
MEMORY_SHARE = 0.9  # of a device's memory for weights and cache; the rest is for activations


@dataclass(frozen=True)
class Formats:
    """The formats of weights and of the KV cache.

    `int8` and `int4` weights are multiplied in 16 bits (weight-only), `fp8` and `int8-dynamic` in
    their own dtype. The head and the embedding keep 16 bits. `group` weights of int4 share a scale.
    Raises: ValueError.
    """

    weights: str = "bf16"
    kv: str = "bf16"
    group: int = 128

    def __post_init__(self) -> None:
        if self.weights not in WEIGHTS or self.kv not in KV:
            raise ValueError(f"no format of weights {self.weights!r} with a cache of {self.kv!r}")

    @property
    def weight_bits(self) -> float:
        """The bits of a weight of the layers, with its share of a scale."""
        bits, _ = WEIGHTS[self.weights]
        return packed_bits(bits, self.group) if self.weights == "int4" else bits

    @property
    def product_dtype(self) -> str:
        """The dtype in which the layers' weights are multiplied."""
        return WEIGHTS[self.weights][1]

    def bits(self, linear: Linear) -> float:
        """Return the bits of a weight of *linear*."""
        return 16 if linear.of == "head" else self.weight_bits

    def name_of(self, linear: Linear) -> str:
        """Return the format of the weights of *linear*."""
        if linear.of != "head" or self.weights in SIXTEEN:
            return self.weights
        return "bf16"


@dataclass(frozen=True)
class Roofs:
    """What a pass needs of a device: byte/s, FLOP/s in 16 bits (of attention and the head), FLOP/s
    of the layers' linears, and the fixed seconds of a pass."""

    bandwidth: float
    rate: float
    linear_rate: float
    fixed_s: float = 0.0


def sixteen(chip: Chip) -> str | None:
    """Return the 16-bit dtype of *chip*: bf16 if it has it, else fp16, else None."""
    return next((dtype for dtype in SIXTEEN if chip.rate(dtype)), None)


def formats_of(chip: Chip, weights: str = AUTO, kv: str = AUTO, group: int = 128) -> Formats:
    """Return formats in which `auto` is the 16-bit dtype of *chip*. Raises: ValueError."""
    own = sixteen(chip) or "bf16"
    return Formats(own if weights == AUTO else weights, own if kv == AUTO else kv, group)


def roofs_of(chip: Chip, formats: Formats, fixed_s: float = 0.0) -> Roofs:
    """Return the roofs of *chip* for *formats*. Raises: UsageError if one is unknown."""
    own = sixteen(chip)
    products = formats.product_dtype
    dtype = own if products == "bf16" and formats.weights != "bf16" else products
    rate, linear_rate = chip.rate(own or "bf16"), chip.rate(dtype or "bf16")
    if chip.bandwidth is None or rate is None:
        raise UsageError(
            f"{chip.peaks.name} has no known bandwidth and 16-bit rate", "choose another --device"
        )
    if linear_rate is None:
        raise UsageError(
            f"{chip.peaks.name} has no known rate of {dtype}", f"for example --weights {own}"
        )
    return Roofs(chip.bandwidth, rate, linear_rate, fixed_s)


def check_groups(model: Model, formats: Formats) -> None:
    """Raise a UsageError if a group of int4 weights does not divide the inputs of a layer."""
    for linear in model.linears[:-1] if formats.weights == "int4" else ():
        if linear.inputs % formats.group:
            raise UsageError(
                f"groups of {formats.group} weights do not divide the {linear.inputs} inputs of "
                f"{linear.name!r} of {model.name}",
                f"choose a --group that divides {linear.inputs}",
            )


def kv_bytes_per_token(model: Model, formats: Formats) -> int:
    """Return the bytes of keys and values of one token in all layers."""
    return model.kv_elements * itemsize(formats.kv)


def weight_bytes(model: Model, formats: Formats) -> float:
    """Return the bytes that all parameters of *model* occupy: its layers' linears in the format of
    the weights, and all others in 16 bits."""
    quantized = sum(linear.parameters for linear in model.linears[:-1])
    return quantized * formats.weight_bits / 8 + 2 * (model.parameters - quantized)


def read_bytes(model: Model, formats: Formats, tokens: int = 1) -> float:
    """Return the bytes of weights that a pass over *tokens* tokens reads, with its logits."""
    each = (linear.weights_read(tokens) * formats.bits(linear) for linear in model.linears)
    return sum(each) / 8


def tokens_that_fit(
    model: Model, formats: Formats, capacity: float, gpus: int = 1, share: float = MEMORY_SHARE
) -> int:
    """Return the tokens whose KV fits beside the weights into *share* of the *capacity* bytes of
    each of *gpus* devices. It is negative if the weights alone do not fit."""
    free = share * capacity * gpus - weight_bytes(model, formats)
    return int(free // kv_bytes_per_token(model, formats))


def gpus_that_fit(model: Model, formats: Formats, capacity: float, tokens: int) -> int:
    """Return the fewest devices that have memory for the weights and the KV of *tokens* tokens."""
    needed = weight_bytes(model, formats) + tokens * kv_bytes_per_token(model, formats)
    return max(1, -int(-needed // (MEMORY_SHARE * capacity)))


def elementwise_elements(model: Model) -> int:
    """Return the elements of one token and layer that unfused elementwise kernels read and write.

    Two norms (2·d each), two residual sums (3·d each), RoPE on q and k, and the activation of the
    MLP, which reads one or two rows of its width and writes one.
    """
    rope = 0 if model.positions else 2 * (model.heads + model.kv_heads) * model.head_width
    width = model.mlp_width
    if model.experts is not None:
        width = model.experts.active * model.experts.width + model.experts.shared_width
    return 10 * model.width + rope + model.mlp_matrices * width


@dataclass(frozen=True)
class Estimate:
    """A time of one layer by measurements. `beyond` says why measured points do not surround it;
    it is empty where they do."""

    seconds: float
    beyond: str = ""


class Measured(Protocol):
    """Measured times that replace those of the roofs; None where nothing alike was measured."""

    def linear(self, linear: Linear, weights: str, tokens: int) -> Estimate | None:
        """Return the time of one layer of *linear* over *tokens* tokens."""

    def decode(self, model: Model, cache: str, point: tuple[int, float, int]) -> Estimate | None:
        """Return the time of the attention of one layer at *point*: sequences, cached tokens of
        each, new tokens of each."""


@dataclass(frozen=True)
class Steps:
    """Times of the passes of *model* on *roofs*, in seconds.

    With `unfused`, elementwise kernels move their operands through memory. `measured` replaces the
    roofs' times of operators that were measured.
    """

    model: Model
    formats: Formats
    roofs: Roofs
    unfused: bool = False
    measured: Measured | None = None

    def prefill_s(self, tokens: int, context: int = 0) -> float:
        """Return the time of a prompt of *tokens* tokens on top of *context* cached ones, with the
        logits of its last token."""
        return self.pass_s(chunks=((tokens, context),))

    def decode_s(self, batch: int, context: float, queries: int = 1) -> float:
        """Return the time of a step of *batch* sequences with *context* cached tokens in all, each
        with *queries* new tokens."""
        return self.pass_s(batch, context, queries=queries)

    def pass_s(
        self,
        batch: int = 0,
        context: float = 0,
        chunks: Sequence[tuple[int, int]] = (),
        logits: int | None = None,
        queries: int = 1,
    ) -> float:
        """Return the time of a pass in which *batch* sequences with *context* cached tokens in all
        get *queries* tokens each, and of *chunks* of prompts: (tokens, cached tokens) each.

        *logits* is the number of rows of the head: by default one a query and one a chunk.
        """
        tokens = batch * queries + sum(new for new, _ in chunks)
        rows = batch * queries + len(chunks) if logits is None else logits
        spent = self.roofs.fixed_s + self.linears_s(tokens, rows)
        if batch:
            spent += self.decode_attention_s(batch, context, queries)
        for new, cached in chunks:
            spent += self.prefill_attention_s(new, cached)
        return spent + self.elementwise_s(tokens)

    def linears_s(self, tokens: int, logits: int) -> float:
        """Return the time of the layers' linears over *tokens* tokens, and of *logits* rows of the
        head."""
        key = (tokens, logits)
        if key not in self._linears:
            layers = sum(self.linear_s(linear, tokens) for linear in self.model.linears[:-1])
            self._linears[key] = layers + self.linear_s(self.model.linears[-1], logits)
        return self._linears[key]

    @cached_property
    def _linears(self) -> dict[tuple[int, int], float]:
        """Results of `linears_s`: a simulation asks for the same few again and again."""
        return {}

    def linear_s(self, linear: Linear, tokens: int) -> float:
        """Return the time of all layers of *linear* over *tokens* tokens; 0 without tokens."""
        if not tokens:
            return 0.0
        if self.measured is not None and (known := self.measured_linear(linear, tokens)):
            return linear.times * known.seconds
        flops, moved = self.linear(linear, tokens)
        return max(flops / self.rate(linear), moved / self.roofs.bandwidth)

    def linear(self, linear: Linear, tokens: int) -> tuple[int, float]:
        """Return the FLOPs and the bytes of weights of all layers of *linear*."""
        return linear.flops(tokens), linear.weights_read(tokens) * self.formats.bits(linear) / 8

    def rate(self, linear: Linear) -> float:
        """Return the FLOP/s of the roof of *linear*."""
        return self.roofs.rate if linear.of == "head" else self.roofs.linear_rate

    def measured_linear(self, linear: Linear, tokens: int) -> Estimate | None:
        """Return the measured time of one layer of *linear*, or None."""
        if self.measured is None or linear.experts > 1:
            return None
        return self.measured.linear(linear, self.formats.name_of(linear), tokens)

    def decode_attention_s(self, batch: int, context: float, queries: int = 1) -> float:
        """Return the time of the attention of *batch* sequences in all layers."""
        if self.measured is not None and (known := self.measured_decode(batch, context, queries)):
            return self.model.layers * known.seconds
        work = self.decode_attention(batch, context, queries)
        return attention_seconds(work, self.roofs.rate, self.roofs.bandwidth)

    def measured_decode(self, batch: int, context: float, queries: int = 1) -> Estimate | None:
        """Return the measured time of one layer's attention, or None."""
        if self.measured is None:
            return None
        point = (batch, context / batch, queries)
        return self.measured.decode(self.model, self.formats.kv, point)

    def decode_attention(self, batch: int, context: float, queries: int = 1) -> tuple[float, float]:
        """Return the FLOPs and bytes of the attention of *batch* sequences in all layers."""
        m = self.model
        flops, moved = decode_attention(
            batch, context, m.heads, m.kv_heads, m.head_width, queries, itemsize(self.formats.kv)
        )
        return m.layers * flops, m.layers * moved

    def prefill_attention_s(self, tokens: int, context: int = 0) -> float:
        """Return the time of the fused causal attention of a chunk of a prompt in all layers."""
        work = self.prefill_attention(tokens, context)
        return attention_seconds(work, self.roofs.rate, self.roofs.bandwidth)

    def prefill_attention(self, tokens: int, context: int = 0) -> tuple[float, float]:
        """Return the FLOPs and bytes of the attention of *tokens* tokens after *context* cached
        ones; each key and value moves once."""
        flops = self.model.attention_flops(causal_pairs(tokens, context))
        return flops, (tokens + context) * self.kv_bytes

    def elementwise_s(self, tokens: int) -> float:
        """Return the time of the elementwise kernels over *tokens* tokens; 0 if they are fused."""
        return tokens * self._elementwise_token_s if self.unfused else 0.0

    @cached_property
    def kv_bytes(self) -> int:
        """The bytes of keys and values of one token."""
        return kv_bytes_per_token(self.model, self.formats)

    @cached_property
    def _elementwise_token_s(self) -> float:
        moved = 2 * self.model.layers * elementwise_elements(self.model)
        return moved / self.roofs.bandwidth
