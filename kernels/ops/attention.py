"""Compute attention, o = softmax(scale · q kᵀ + mask) v with scale = 1/√d, and its gradients.

q is (batch, heads, seq, head_dim), k and v are (batch, heads/gqa, kv, head_dim); kv = seq unless
given. A causal mask admits for query i the keys j ≤ i + kv − seq (`lower-right`, FlashAttention's)
or j ≤ i (`upper-left`, that of torch's `is_causal`); a query without a key gives 0.

The FLOPs of the cost are those of the matmuls over the S pairs of query and key that the mask
admits: 4·batch·heads·head_dim·S forward, and twice that backward. S is exact; with `causal_flops`
half it is n²/2 for a causal mask of n queries and n keys, the convention of papers. Masked pairs
that a kernel computes, or scores that it computes twice, belong to its `work`. With u bytes of
scores and v bytes of a tensor, the implementations move forward:

- `eager`: torch's matmul, scale, mask, softmax, matmul; 6u + 4v, and 2u more with a mask.
- `compile`: the same function under torch.compile.
- `sdpa_math`, `sdpa_efficient`, `sdpa_flash`, `sdpa_cudnn`: torch's scaled_dot_product_attention,
  each pinned to one backend; the names of the kernels that ran confirm it.
- `flex`: torch's flex_attention, compiled, with a block mask.
- `triton_flash`: gpuperf's Triton kernels (`_flash.py`); 4v, and the log-sum-exp.
- `flash_attn_2`, `flash_attn_3`: Dao's packages, where they are installed.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpuperf.kernels import _attention_cost as costs
from gpuperf.kernels import _flash as flash
from gpuperf.kernels._masks import has_blind_queries, key_count, offset_of
from gpuperf.kernels._modes import MODE, Backward, by_mode, by_torch

from gpuperf import Axis, Implementation, Point, Workload
from gpuperf.errors import CannotMeasure, Unsupported
from gpuperf.jit import Tuned, compiled, lacks_compiler, lacks_descriptors, tune

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], Any]
Attend = Callable[..., torch.Tensor]
Build = Callable[[Inputs, Point, object], Call]

NAMES = ("q", "k", "v")
LARGEST_CHUNK = 2**27  # float64 scores that the reference holds at a time: 1 GiB
FLASH_DIMS = (16, 32, 64, 128, 256)
MOST_HEADS = 2**16 - 1  # batch · heads: CUDA's limit to the second axis of a grid
NO_BACKEND = ("No available kernel", "No viable backend")  # torch's errors if it lacks a backend


def eager(point: Point, device: Any) -> Attend:
    """Return attention as single operations; keys are repeated for query heads that share them.

    `where` and its gradient are one kernel each over the scores; `masked_fill` copies them first.
    """
    hidden, scale, blind = None, point.head_dim**-0.5, has_blind_queries(point)
    if point.causal == "yes":
        i, j = (torch.arange(n, device=device) for n in (point.seq, key_count(point)))
        hidden = j > i[:, None] + offset_of(point)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if point.gqa > 1:
            k, v = k.repeat_interleave(point.gqa, 1), v.repeat_interleave(point.gqa, 1)
        scores = q @ k.transpose(-1, -2) * scale
        if hidden is not None:
            scores = torch.where(hidden, -math.inf, scores)
        shares = torch.softmax(scores, -1)
        if hidden is not None and blind:
            shares = torch.where(hidden, 0.0, shares)  # softmax gives NaN where all keys are hidden
        return shares @ v

    return attend


def build_of(make: Callable[[Point, Any], Attend]) -> Build:
    """Return the build of what `make(point, device)` returns, with autograd's gradient."""
    return lambda inputs, point, options: by_torch(
        point.mode, make(point, inputs["q"].device), inputs, NAMES, "do"
    )


def sdpa(backend: str) -> Callable[[Point, Any], Attend]:
    """Return the maker of torch's scaled_dot_product_attention pinned to *backend*."""

    def make(point: Point, device: Any) -> Attend:
        from torch.nn.attention import SDPBackend, bias, sdpa_kernel

        pinned, causal, mask = getattr(SDPBackend, backend), point.causal == "yes", None
        if causal and offset_of(point):
            causal, mask = False, bias.causal_lower_right(point.seq, key_count(point))
        attention = partial(F.scaled_dot_product_attention, enable_gqa=point.gqa > 1)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            try:
                with sdpa_kernel(pinned):
                    return attention(q, k, v, mask, is_causal=causal)
            except RuntimeError as error:
                # Any CUDA error mentions a "kernel", so torch's whole phrases are compared.
                if not any(words in str(error) for words in NO_BACKEND):
                    raise
                reason = f"torch {torch.__version__} has no {backend.lower()} kernel for this shape"
                raise Unsupported(reason, "another head-dim, dtype, mask or backend") from None

        return attend

    return make


def flex(point: Point, device: Any) -> Attend:
    """Return compiled flex_attention, with a block mask where the point is causal."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    offset, mask = offset_of(point), None
    if point.causal == "yes":
        mask = create_block_mask(
            lambda b, h, i, j: j <= i + offset,
            None,
            None,
            point.seq,
            key_count(point),
            device=str(device),
        )
    return compiled(partial(flex_attention, block_mask=mask, enable_gqa=point.gqa > 1))


def attention_triton(inputs: Inputs, point: Point, options: object) -> Call:
    """Build gpuperf's Triton attention, each kernel with its fastest tile."""
    q, k, v = (inputs[name] for name in NAMES)
    mask = flash.Mask(point.causal == "yes", offset_of(point), point.head_dim**-0.5)
    attend = tune(partial(partial, flash.forward, q, k, v, mask), flash.tiles("forward", q))
    tiles = {"forward": attend.chosen}
    if point.mode != "fwd":
        o, lse = attend()
        arguments = (q, k, v, inputs["do"], lse, flash.row_sums(o, inputs["do"]), mask)
        for part in ("kv", "q"):
            best = tune(partial(partial, flash.backward, part, *arguments), flash.tiles(part, q))
            tiles[f"backward_{part}"] = best.chosen

    def forward() -> tuple[torch.Tensor, Backward]:
        o, lse = attend()

        def backward(do: torch.Tensor) -> tuple[torch.Tensor, ...]:
            arguments = (q, k, v, do, lse, flash.row_sums(o, do), mask)
            dk, dv = flash.backward("kv", *arguments, tiles["backward_kv"])
            return (*flash.backward("q", *arguments, tiles["backward_q"]), dk, dv)

        return o, backward

    chosen = {f"{part}_{name}": n for part, tile in tiles.items() for name, n in tile.items()}
    return Tuned(by_mode(point.mode, inputs, forward, lambda: attend()[0], "do"), chosen)


def package(module: str) -> Callable[[Point, Any], Attend]:
    """Return the maker of attention by Dao's *module*, whose tensors are (b, n, h, d)."""

    def make(point: Point, device: Any) -> Attend:
        function = importlib.import_module(module).flash_attn_func

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            o = function(*(t.transpose(1, 2) for t in (q, k, v)), causal=point.causal == "yes")
            return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

        return attend

    return make


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute attention in float64 for one head of keys and LARGEST_CHUNK scores at a time."""
    q, k, v = (inputs[name].double().contiguous() for name in NAMES)
    do = inputs["do"].double().contiguous() if point.mode != "fwd" else q  # never read
    o, dq, dk, dv = (torch.zeros_like(t) for t in (q, q, k, v))
    # The query heads that share a head of keys are rows of one matrix of queries.
    index = torch.arange(point.gqa * point.seq, device=q.device) % point.seq
    j, scale = torch.arange(key_count(point), device=q.device), point.head_dim**-0.5
    rows = max(1, LARGEST_CHUNK // len(j))
    of_queries = (t.view(-1, len(index), point.head_dim) for t in (q, o, dq, do))
    of_keys = (t.flatten(0, 1) for t in (k, v, dk, dv))
    heads = zip(*of_queries, *of_keys, strict=True)
    for query, out, dquery, grad, key, value, dkey, dvalue in heads:
        for chunk in (slice(start, start + rows) for start in range(0, len(index), rows)):
            scores = query[chunk] * scale @ key.T
            if point.causal == "yes":
                scores.masked_fill_(j > index[chunk, None] + offset_of(point), -math.inf)
            shares = torch.softmax(scores, -1)
            if has_blind_queries(point):
                shares.nan_to_num_(0.0)
            out[chunk] = shares @ value
            if point.mode == "fwd":
                continue
            dvalue += shares.T @ grad[chunk]
            drop = (grad[chunk] * out[chunk]).sum(-1, keepdim=True)
            dscores = (grad[chunk] @ value.T).sub_(drop).mul_(shares)
            dquery[chunk] = dscores @ key * scale
            dkey += dscores.T @ query[chunk] * scale
    gradients = (dq, dk, dv)
    return {"fwd": o, "bwd": gradients, "fwd+bwd": (o, *gradients)}[point.mode]


def gradient_sizes(inputs: Inputs, point: Point) -> tuple[torch.Tensor | None, ...]:
    """Return the size of the addends of dq (b, h, n, 1), and None for the other results.

    The addends are p·(do·v − δ)·k. A query with one key has δ = do·v, and they cancel in the
    formula, but not in a kernel that sums each separately. A query has as many addends as keys,
    with a softmax p of about 1/keys.
    """
    if point.mode == "fwd":
        return (None,)
    _, k, v = (inputs[name].double().square().mean().sqrt() for name in NAMES)
    keys = torch.full((point.seq,), float(key_count(point)), device=k.device)
    if point.causal == "yes":
        admitted = torch.arange(point.seq, device=k.device) + 1.0 + offset_of(point)
        keys = admitted.clamp(1.0, float(key_count(point)))
    grad = inputs["do"].double().norm(dim=-1, keepdim=True)
    of_dq = grad * v * k * point.head_dim**-0.5 / keys.double().sqrt()[:, None]
    return (None, of_dq, None, None)[point.mode == "bwd" :]


def make_inputs(point: Point, make: Callable[[tuple[int, ...], str], torch.Tensor]) -> Inputs:
    """Draw q, k and v, and do (batch, heads, seq, head_dim) where the mode has a backward.

    Raises: CannotMeasure if gqa does not divide heads, or no gradient could be checked.
    """
    if point.heads % point.gqa:
        raise CannotMeasure(
            f"{point.heads} heads cannot be shared by {point.gqa} at a time",
            "--gqa has to divide --heads",
        )
    most_keys = point.seq + offset_of(point) if point.causal == "yes" else key_count(point)
    if point.mode != "fwd" and min(key_count(point), most_keys) == 1:
        reason = "no query attends to two keys, so the gradients of q and k are 0 and check nothing"
        raise CannotMeasure(reason, "give more keys, or --mode fwd")
    of_queries = (point.batch, point.heads, point.seq, point.head_dim)
    of_keys = (point.batch, point.heads // point.gqa, key_count(point), point.head_dim)
    inputs = {"q": make(of_queries, point.dtype)}
    inputs |= {name: make(of_keys, point.dtype) for name in "kv"}
    if point.mode != "fwd":
        inputs["do"] = make(of_queries, point.dtype)
    return inputs


def sdpa_supports(point: Point, device: Any) -> str | None:
    """Return why torch's attention cannot run the point, or None where it can."""
    return "gives NaN for a query without a key" if has_blind_queries(point) else None


def on_cuda(point: Point, device: Any) -> str | None:
    """Return why a CUDA kernel in 16 bits cannot run the point, or None where it can."""
    if device.kind != "cuda":
        return "needs an NVIDIA GPU"
    return None if point.dtype in ("bf16", "fp16") else "computes in bf16 and fp16"


def flash_2_supports(point: Point, device: Any) -> str | None:
    return sdpa_supports(point, device) or on_cuda(point, device)


def efficient_supports(point: Point, device: Any) -> str | None:
    """Return why memory-efficient attention cannot run the point, or None; it also takes fp32."""
    if device.kind != "cuda":
        return "needs an NVIDIA GPU"
    return "takes no keys that query heads share" if point.gqa > 1 else sdpa_supports(point, device)


def cudnn_supports(point: Point, device: Any) -> str | None:
    """Return why cuDNN cannot run the point; torch calls it with an upper-left mask only."""
    if point.causal == "yes" and offset_of(point):
        return "has no causal mask that is aligned lower right"
    return on_cuda(point, device)


def flex_supports(point: Point, device: Any) -> str | None:
    return "needs a GPU" if device.kind == "cpu" else lacks_compiler(point, device)


def flash_supports(point: Point, device: Any) -> str | None:
    """Return why gpuperf's Triton kernels cannot run the point, or None where they can."""
    if point.head_dim not in FLASH_DIMS:
        return f"head-dim must be one of {', '.join(map(str, FLASH_DIMS))}"
    if point.head_dim == 256 and point.mode != "fwd":
        return "head-dim 256 has no backward"
    if point.batch * point.heads > MOST_HEADS:
        return f"takes batch · heads of at most {MOST_HEADS:,}"
    if device.kind == "cpu" and point.dtype == "bf16":
        return "Triton's interpreter does not multiply bf16"
    return lacks_descriptors(point, device)


def package_supports(module: str, least: int) -> Callable[[Point, Any], str | None]:
    """Return the `supports` of *module*, which needs compute capability *least*.0 or newer."""

    def supports(point: Point, device: Any) -> str | None:
        if importlib.util.find_spec(module) is None:
            return f"the package {module} is not installed"
        if point.causal == "yes" and point.align == "upper-left" and key_count(point) != point.seq:
            return "aligns a causal mask lower right"
        if reason := on_cuda(point, device):
            return reason
        too_old = int(device.capability.split(".")[0]) < least
        return f"needs compute capability {least}.0" if too_old else None

    return supports


ATTENTION = Workload(
    name="attention",
    summary="softmax(q kᵀ / √d) v, and its gradients",
    formula="4·b·h·d·S FLOP forward, 8 backward (S unmasked pairs); q, k, v, o once",
    axes=(
        Axis("batch", 4, "sequences"),
        Axis("heads", 16, "heads of queries"),
        Axis("gqa", 1, "query heads that share a head of keys"),
        Axis("seq", 4096, "queries", main=True),
        Axis("kv", 0, "keys and values; 0: as many as queries", minimum=0),
        Axis("head_dim", 64, "elements of a head"),
        Axis("causal", "no", "causal mask", choices=("no", "yes")),
        Axis(
            "align",
            "lower-right",
            "corner of the causal mask",
            choices=("lower-right", "upper-left"),
        ),
        Axis(
            "causal_flops", "exact", "pairs counted under a causal mask", choices=("exact", "half")
        ),
        MODE,
        Axis("dtype", "auto", "dtype of all tensors", choices=("fp32", "bf16", "fp16")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=costs.cost,
    implementations=(
        Implementation(
            "eager",
            build_of(eager),
            "torch, operation by operation",
            work=costs.eager_work,
            roundings=costs.eager_roundings,
        ),
        Implementation(
            "compile",
            build_of(lambda point, device: compiled(eager(point, device))),
            "torch.compile of eager",
            lacks_compiler,
            roundings=costs.compile_roundings,
        ),
        Implementation(
            "sdpa_math", build_of(sdpa("MATH")), "torch's composed operations", sdpa_supports
        ),
        # `runs` is part of the names of the kernels that ran on an H200; cuDNN's have "flash" too.
        Implementation(
            "sdpa_efficient",
            build_of(sdpa("EFFICIENT_ATTENTION")),
            "xFormers' kernel, in torch",
            efficient_supports,
            runs="fmha_cutlass",
        ),
        Implementation(
            "sdpa_flash",
            build_of(sdpa("FLASH_ATTENTION")),
            "FlashAttention-2, in torch",
            flash_2_supports,
            runs="pytorch_flash",
        ),
        Implementation(
            "sdpa_cudnn",
            build_of(sdpa("CUDNN_ATTENTION")),
            "cuDNN, in torch",
            cudnn_supports,
            runs="cudnn",
        ),
        Implementation("flex", build_of(flex), "torch's flex_attention, compiled", flex_supports),
        Implementation(
            "triton_flash",
            attention_triton,
            "FlashAttention-2 in Triton, tuned",
            flash_supports,
            work=costs.flash_work,
        ),
        Implementation(
            "flash_attn_2",
            build_of(package("flash_attn")),
            "Dao's package flash_attn",
            package_supports("flash_attn", 8),
        ),
        Implementation(
            "flash_attn_3",
            build_of(package("flash_attn_interface")),
            "Dao's package flash_attn_interface, for Hopper",
            package_supports("flash_attn_interface", 9),
        ),
    ),
    terms=key_count,
    prepared=lambda point: NAMES if point.mode == "bwd" else (),
    narrow=lambda inputs, rows: {name: tensor[rows] for name, tensor in inputs.items()},
    sizes=gradient_sizes,
    roundings=costs.flash_roundings,
)
