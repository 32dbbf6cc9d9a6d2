"""Compute one Llama block in torch: pre-norm RMSNorm, GQA attention with RoPE, gated MLP.

With d = heads·head_dim the tokens x are (batch, tokens, d). Weights are (outputs, inputs); `qkv`
has the rows of all queries, then of the keys, then of the values. The cache of a decode step is
(batch, heads/gqa, seq, head_dim), and its last place is that of the new token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from gpuperf import Point
from gpuperf.errors import CannotMeasure

Inputs = Mapping[str, torch.Tensor]
Make = Callable[[tuple[int, ...], str], torch.Tensor]
Layer = Callable[..., tuple[torch.Tensor, ...]]
Call = Callable[[], tuple[torch.Tensor, ...]]

GAINS = ("gain_attention", "gain_mlp")
WEIGHTS = ("qkv", "out", "gate", "up", "down")
PAST = ("past_k", "past_v")
PARAMETERS = (GAINS[0], "qkv", "out", GAINS[1], "gate", "up", "down")  # in the order of the block
EPS = 1e-5
THETA = 500_000.0  # base of RoPE's wavelengths in Llama 3
SIGMA = 32.0  # of the codes of weights, so that few of them are clipped
LARGEST_CODE = 127.0


def width_of(point: Point) -> int:
    """Return the width d of the residual stream."""
    return int(point.heads * point.head_dim)


def new_tokens(point: Point) -> int:
    """Return the tokens of a sequence for which the block is computed."""
    return 1 if point.phase == "decode" else int(point.seq)


def shapes(point: Point) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input."""
    d, h, kv_heads = width_of(point), point.hidden, point.heads // point.gqa
    stream = (point.batch, new_tokens(point), d)
    named: dict[str, tuple[int, ...]] = {
        "x": stream,
        "gain_attention": (d,),
        "qkv": ((point.heads + 2 * kv_heads) * point.head_dim, d),
        "out": (d, d),
        "gain_mlp": (d,),
        "gate": (h, d),
        "up": (h, d),
        "down": (d, h),
    }
    if point.phase == "decode":
        past = (point.batch, kv_heads, point.seq - 1, point.head_dim)
        named |= dict.fromkeys(PAST, past)
    return named | ({"dy": stream} if point.phase == "train" else {})


def weight_step(inputs: int) -> float:
    """Return the distance of two neighbouring weights of rows of *inputs*, a power of 2."""
    return float(2.0 ** round(math.log2(inputs**-0.5 / SIGMA)))


def make_inputs(point: Point, make: Make) -> Inputs:
    """Draw x, the weights and what the phase has besides.

    Weights are multiples of `weight_step`, which int8 and bf16 represent alike. x is as small as
    the mean of many values, so that a wrong attention changes the result.

    Raises: CannotMeasure if gqa does not divide heads, or RoPE has no pairs of elements.
    """
    if point.heads % point.gqa:
        raise CannotMeasure(
            f"{point.heads} heads cannot be shared by {point.gqa} at a time",
            "--gqa has to divide --heads",
        )
    if point.head_dim % 2:
        raise CannotMeasure(
            f"RoPE turns pairs of elements, and head-dim = {point.head_dim} is odd",
            "choose an even --head-dim",
        )
    inputs = {name: make(shape, point.dtype) for name, shape in shapes(point).items()}
    if inputs["x"].is_meta:  # see `draw_table` in _cache.py
        return inputs
    inputs["x"].mul_(point.seq**-0.5)
    for name in WEIGHTS:
        weight = inputs[name]
        weight.mul_(SIGMA).round_().clamp_(-LARGEST_CODE, LARGEST_CODE)
        weight.mul_(weight_step(weight.shape[1]))
    return inputs


def rope_tables(point: Point, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine (tokens, head_dim/2) of the new tokens' angles, in *like*'s dtype."""
    first = point.seq - new_tokens(point)
    position = torch.arange(first, point.seq, dtype=torch.float64, device=like.device)
    pair = torch.arange(0, point.head_dim, 2, dtype=torch.float64, device=like.device)
    angles = position[:, None] * THETA ** (-pair / point.head_dim)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return x (…, tokens, head_dim) with its element i and i + head_dim/2 turned by an angle."""
    one, two = x.chunk(2, -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)


def attend(
    heads: torch.Tensor,
    gqa: int,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cache: tuple[torch.Tensor, ...],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the attention of q, k and v in *heads* (batch, tokens, heads, head_dim), and k and v.

    The attention is (batch, tokens, query heads, head_dim), k and v (batch, kv heads, tokens,
    head_dim). A cache takes the new k and v at its end, and attention without one is causal.
    """
    kv_heads = heads.shape[2] // (gqa + 2)
    q, k, v = heads.transpose(1, 2).split((gqa * kv_heads, kv_heads, kv_heads), 1)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    keys, values = k, v
    if cache:
        keys, values = cache
        keys[:, :, -1:], values[:, :, -1:] = k, v
    mixed = F.scaled_dot_product_attention(
        q, keys, values, is_causal=len(cache) == 0, enable_gqa=gqa > 1
    )
    return mixed.transpose(1, 2), k, v


def layer_of(point: Point) -> Layer:
    """Return the block: f(x, *parameters, cos, sin, *cache) is y, and the new keys and values."""
    d = width_of(point)

    def layer(
        x: torch.Tensor,
        gain_attention: torch.Tensor,
        qkv: torch.Tensor,
        out: torch.Tensor,
        gain_mlp: torch.Tensor,
        gate: torch.Tensor,
        up: torch.Tensor,
        down: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *cache: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        projected = F.linear(F.rms_norm(x, (d,), gain_attention, EPS), qkv)
        heads = projected.view(*x.shape[:2], -1, point.head_dim)
        mixed, k, v = attend(heads, point.gqa, cos, sin, cache)
        x = x + F.linear(mixed.reshape(x.shape), out)
        normal = F.rms_norm(x, (d,), gain_mlp, EPS)
        return x + F.linear(F.silu(F.linear(normal, gate)) * F.linear(normal, up), down), k, v

    return layer


class Held:
    """The parameters and the cache in the dtype of a rung, which it computes with.

    They are copied from the inputs again after these have changed.
    """

    def __init__(self, inputs: Inputs, point: Point, dtype: torch.dtype) -> None:
        self._given = {name: inputs[name] for name in (*PARAMETERS, *PAST) if name in inputs}
        self._versions: list[int] = []
        self._held = {
            name: value if value.dtype == dtype else torch.empty_like(value, dtype=dtype)
            for name, value in self._given.items()
            if name not in PAST
        }
        shape = (point.batch, point.heads // point.gqa, point.seq, point.head_dim)
        for name in PAST if point.phase == "decode" else ():
            self._held[name] = inputs[name].new_empty(shape, dtype=dtype)
        self.tables = rope_tables(point, self._held["qkv"])
        self.update()

    def update(self) -> bool:
        """Copy the inputs if they have changed, and return whether they have."""
        versions = [tensor._version for tensor in self._given.values()]
        if versions == self._versions:
            return False
        self._versions = versions
        for name, given in self._given.items():
            held = self._held[name]
            if held is not given:
                (held[:, :, :-1] if name in PAST else held).copy_(given)
        return True

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The gains and weights in the order of the block."""
        return [self._held[name] for name in PARAMETERS]

    @property
    def cache(self) -> list[torch.Tensor]:
        """Keys and values (batch, kv_heads, seq, head_dim) of a decode step; else nothing."""
        return [self._held[name] for name in PAST if name in self._held]


def forward(layer: Layer, inputs: Inputs, held: Held) -> Call:
    """Return a call that computes y and the new keys and values, in the dtype of the inputs."""
    x = inputs["x"]

    def call() -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            of_rung = x.to(held.parameters[0].dtype)
            results = layer(of_rung, *held.parameters, *held.tables, *held.cache)
            return tuple(result.to(x.dtype) for result in results)

    return call


def step(layer: Layer, inputs: Inputs, held: Held) -> Call:
    """Return a call that computes y and the gradients of x and of the parameters."""
    x, dy = inputs["x"], inputs["dy"]

    def call() -> tuple[torch.Tensor, ...]:
        dtype = held.parameters[0].dtype
        leaves = [t.detach().requires_grad_() for t in (x.to(dtype), *held.parameters)]
        with torch.enable_grad():
            y = layer(*leaves, *held.tables)[0]
        results = (y.detach(), *torch.autograd.grad(y, leaves, dy.to(dtype)))
        return tuple(result.to(x.dtype) for result in results)

    return call


def captured(call: Call) -> Call:
    """Return the replay of *call*, captured as a CUDA graph; its results stay where they are."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # a capture allows neither compiling nor loading of kernels
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()

    kept = (graph, call)  # the graph's kernels use tensors that only *call* holds

    def replay() -> tuple[torch.Tensor, ...]:
        kept[0].replay()
        return results

    return replay


def with_precision(name: str, call: Call) -> Call:
    """Return *call* with torch's precision of fp32 matmuls: `highest`, or `high` for tf32."""

    def run() -> tuple[torch.Tensor, ...]:
        usual = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(name)
        try:
            return call()
        finally:
            torch.set_float32_matmul_precision(usual)

    return run


def exact_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return attention of the last tokens of k as a softmax over all scores."""
    queries, keys = q.shape[-2], k.shape[-2]
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    later = torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(keys - queries + 1)
    return torch.softmax(scores.masked_fill(later, -math.inf), -1) @ v


def exact_rotation(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return RoPE of x as a product of complex numbers."""
    turned = torch.complex(*x.chunk(2, -1)) * torch.complex(cos, sin)
    return torch.cat((turned.real, turned.imag), -1)


def exact_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """Return the RMS norm of x by its formula."""
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * gain


def exact_layer(point: Point) -> Layer:
    """Return the block by its formulas, with the arguments of `layer_of`, and no new cache."""
    kv_heads = point.heads // point.gqa

    def layer(x: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gain_attention, qkv, out, gain_mlp, gate, up, down, cos, sin, *past = rest
        rows = torch.split(qkv, [n * point.head_dim for n in (point.heads, kv_heads, kv_heads)])
        normal = exact_norm(x, gain_attention)
        q, k, v = (
            (normal @ weight.t()).unflatten(-1, (-1, point.head_dim)).transpose(1, 2)
            for weight in rows
        )
        q, k = exact_rotation(q, cos, sin), exact_rotation(k, cos, sin)
        both = [torch.cat(pair, 2) for pair in zip(past, (k, v), strict=True)] if past else (k, v)
        x = x + exact_attention(q, *both).transpose(1, 2).flatten(2) @ out.t()
        normal = exact_norm(x, gain_mlp)
        opened = normal @ gate.t()
        hidden = opened * torch.sigmoid(opened) * (normal @ up.t())
        return x + hidden @ down.t(), k, v

    return layer


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute the results of the phase in float64."""
    exact = {name: tensor.double() for name, tensor in inputs.items()}
    tables = rope_tables(point, exact["x"])
    leaves = [exact["x"], *(exact[name] for name in PARAMETERS)]
    layer = exact_layer(point)
    if point.phase != "train":
        return layer(*leaves, *tables, *(exact[name] for name in PAST if name in exact))
    leaves = [leaf.requires_grad_() for leaf in leaves]
    with torch.enable_grad():
        y = layer(*leaves, *tables)[0]
    return (y.detach(), *torch.autograd.grad(y, leaves, exact["dy"]))
