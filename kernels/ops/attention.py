"""Attention: o = softmax(scale · q kᵀ + mask) v, with scale = 1/√d.

q (batch, heads, seq, head_dim); k and v (batch, heads/gqa, kv, head_dim), kv = seq unless given.
A causal mask shows query i the keys j ≤ i + kv − seq (`lower-right`, as FlashAttention since 2.1)
or j ≤ i (`upper-left`, as torch's `is_causal`); a query that sees nothing gives 0.

FLOPs are those that the model needs: of the matmuls, over the S pairs of query and key that the
mask shows, exactly: 4·batch·heads·head_dim·S forward, and twice that backward. That a kernel does
hidden pairs too, or the scores anew, is its `work`. With u bytes of scores and v of a tensor,
forward:

- `eager`: torch's matmul, scale, mask, softmax, matmul; 6u + 4v, and 2u more with a mask.
- `compile`: the same by torch.compile.
- `sdpa_math`, `sdpa_efficient`, `sdpa_flash`, `sdpa_cudnn`: torch's, each pinned to one backend and
  held to it by the names of the kernels that ran.
- `flex`: torch's flex_attention, compiled, with a block mask.
- `triton_flash`: ours (`flash.py`); 4v, and the log-sum-exp.
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
from gpuperf.kernels import flash
from gpuperf.kernels.modes import MODE, Backward, autograd, by_mode

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.errors import CannotMeasure, Unsupported
from gpuperf.jit import Tuned, compiled, lacks_compiler, lacks_triton, tune
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], Any]
Attend = Callable[..., torch.Tensor]

NAMES = ("q", "k", "v")
LARGEST_CHUNK = 2**27  # scores of the reference held at a time: a GiB
FLASH_DIMS = (16, 32, 64, 128, 256)


def key_count(point: Point) -> int:
    """How many keys there are: `kv`, or as many as queries where that is 0."""
    return int(point.kv or point.seq)


def offset_of(point: Point) -> int:
    """Query i sees the keys j ≤ i + this."""
    return key_count(point) - int(point.seq) if point.align == "lower-right" else 0


def seen_pairs(point: Point) -> int:
    """The pairs of query and key that the mask shows."""
    queries, keys, offset = int(point.seq), key_count(point), offset_of(point)
    if point.causal == "no":
        return queries * keys
    # Query i sees min(keys, i + 1 + offset) keys, where that is positive: a ramp, then a plateau.
    first = max(0, -offset)
    full = min(max(first, keys - 1 - offset), queries)
    ramp = sum(range(first + 1 + offset, full + 1 + offset)) if full > first else 0
    return ramp + (queries - full) * keys if full < queries else ramp


def mask_of(point: Point, device: Any) -> torch.Tensor | None:
    """True where a key is hidden (seq, keys), or None without a mask."""
    if point.causal == "no":
        return None
    i = torch.arange(point.seq, device=device)[:, None]
    return torch.arange(key_count(point), device=device)[None, :] > i + offset_of(point)


def blind_queries(point: Point) -> bool:
    """Whether some query sees no key at all."""
    return bool(point.causal == "yes" and offset_of(point) < 0)


def eager(point: Point, device: Any) -> Attend:
    """Operation by operation; keys are repeated for the query heads that share them."""
    hidden, scale = mask_of(point, device), point.head_dim ** -0.5
    blind = blind_queries(point)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if point.gqa > 1:
            k, v = k.repeat_interleave(point.gqa, 1), v.repeat_interleave(point.gqa, 1)
        scores = q @ k.transpose(-1, -2) * scale
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        shares = torch.softmax(scores, -1)
        return (shares.nan_to_num(0.0) if blind else shares) @ v

    return attend


def by_torch(attend: Attend, inputs: Inputs, point: Point) -> Call:
    """The call of the point's mode, its gradient by torch."""

    def forward_only() -> torch.Tensor:
        with torch.no_grad():
            return attend(*(inputs[name] for name in NAMES))

    forward = autograd(attend, inputs, NAMES)
    call: Call = by_mode(point.mode, inputs, forward, forward_only, "do")
    return call


def attention_eager(inputs: Inputs, point: Point, options: object) -> Call:
    """The eager graph."""
    return by_torch(eager(point, inputs["q"].device), inputs, point)


def attention_compile(inputs: Inputs, point: Point, options: object) -> Call:
    """The eager graph by torch.compile."""
    return by_torch(compiled(eager(point, inputs["q"].device)), inputs, point)


def sdpa(backend: str) -> Callable[[Inputs, Point, object], Call]:
    """torch's scaled_dot_product_attention by *backend* alone."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        pinned = getattr(SDPBackend, backend)
        bias = _bias(point)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(pinned):
                return F.scaled_dot_product_attention(
                    q, k, v, attn_mask=bias, is_causal=point.causal == "yes" and bias is None,
                    enable_gqa=point.gqa > 1,
                )  # fmt: skip

        call = by_torch(attend, inputs, point)
        try:
            call()
        except RuntimeError as error:
            if "kernel" not in str(error) or isinstance(error, torch.OutOfMemoryError):
                raise
            raise Unsupported(
                f"torch {torch.__version__} has no {backend.lower()} kernel for this shape",
                "another head-dim, dtype or mask, or another backend",
            ) from None
        return call

    return build


def _bias(point: Point) -> Any:
    """torch's own word for a causal mask that is aligned lower right, where that matters."""
    if point.causal == "no" or offset_of(point) == 0:
        return None
    from torch.nn.attention.bias import causal_lower_right

    return causal_lower_right(point.seq, key_count(point))


def attention_flex(inputs: Inputs, point: Point, options: object) -> Call:
    """flex_attention, compiled, with a block mask where there is a mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    offset, mask = offset_of(point), None
    if point.causal == "yes":
        mask = create_block_mask(
            lambda b, h, i, j: j <= i + offset, None, None, point.seq, key_count(point),
            device=str(inputs["q"].device),
        )  # fmt: skip
    attend = partial(flex_attention, block_mask=mask, enable_gqa=point.gqa > 1)
    return by_torch(compiled(attend), inputs, point)


def attention_triton(inputs: Inputs, point: Point, options: object) -> Call:
    """Ours, each kernel with the best of its tiles."""
    q, k, v = (inputs[name] for name in NAMES)
    mask = flash.Mask(point.causal == "yes", offset_of(point), point.head_dim ** -0.5)
    attend = tune(partial(partial, flash.forward, q, k, v, mask), flash.FORWARD)
    chosen = {f"forward_{name}": value for name, value in attend.chosen.items()}
    if point.mode == "fwd":
        return Tuned(lambda: attend()[0], chosen)
    do = inputs["do"]
    o, lse = attend()
    sums = flash.row_sums(o, do)
    tiles = {}
    for what, tried in (("kv", flash.BACKWARD_KV), ("q", flash.BACKWARD_Q)):
        given = (what, q, k, v, do, lse, sums, mask)
        best = tune(partial(partial, flash.backward, *given), tried)
        tiles[what] = best.chosen
        chosen |= {f"backward_{what}_{name}": value for name, value in best.chosen.items()}

    def forward() -> tuple[torch.Tensor, Backward]:
        o, lse = attend()

        def backward(do: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given = (q, k, v, do, lse, flash.row_sums(o, do), mask)
            dk, dv = flash.backward("kv", *given, tiles["kv"])
            return (*flash.backward("q", *given, tiles["q"]), dk, dv)

        return o, backward

    return Tuned(by_mode(point.mode, inputs, forward, lambda: attend()[0], "do"), chosen)


def flash_attn(module: str) -> Callable[[Inputs, Point, object], Call]:
    """Dao's package *module*, which has the heads behind the sequence."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        function = importlib.import_module(module).flash_attn_func

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            found = function(*(t.transpose(1, 2) for t in (q, k, v)), causal=point.causal == "yes")
            return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

        return by_torch(attend, inputs, point)

    return build


def reference(inputs: Inputs, point: Point) -> Any:
    """In float64, some heads at a time, and some queries where a head's scores are too many."""
    q, k, v = (inputs[name].double() for name in NAMES)
    do = inputs["do"].double() if point.mode != "fwd" else None
    o, dq, dk, dv = (torch.zeros_like(t) for t in (q, q, k, v))
    hidden, scale = mask_of(point, q.device), point.head_dim ** -0.5
    rows = max(1, LARGEST_CHUNK // key_count(point))
    for b in range(point.batch):
        for h in range(point.heads):
            keys, values = k[b, h // point.gqa], v[b, h // point.gqa]
            for some in torch.arange(point.seq, device=q.device).split(rows):
                scores = q[b, h, some] @ keys.T * scale
                if hidden is not None:
                    scores.masked_fill_(hidden[some], -math.inf)
                shares = torch.softmax(scores, -1).nan_to_num_(0.0)
                o[b, h, some] = shares @ values
                if do is None:
                    continue
                dshares = do[b, h, some] @ values.T
                drop = (do[b, h, some] * o[b, h, some]).sum(-1, keepdim=True)
                dscores = shares * (dshares - drop) * scale
                dq[b, h, some] = dscores @ keys
                dk[b, h // point.gqa] += dscores.T @ q[b, h, some]
                dv[b, h // point.gqa] += shares.T @ do[b, h, some]
    gradients = (dq, dk, dv)
    return {"fwd": o, "bwd": gradients, "fwd+bwd": (o, *gradients)}[point.mode]


def make_inputs(point: Point, make: Callable[[tuple[int, ...], str], torch.Tensor]) -> Inputs:
    """q, k, v, and the gradient of the output where there is a backward."""
    if point.heads % point.gqa:
        raise CannotMeasure(
            f"{point.heads} heads cannot be shared by {point.gqa} at a time",
            "--gqa has to divide --heads",
        )
    of_queries = (point.batch, point.heads, point.seq, point.head_dim)
    of_keys = (point.batch, point.heads // point.gqa, key_count(point), point.head_dim)
    inputs = {"q": make(of_queries, point.dtype)}
    inputs |= {name: make(of_keys, point.dtype) for name in "kv"}
    if point.mode != "fwd":
        inputs["do"] = make(of_queries, point.dtype)
    return inputs


def sizes(point: Point) -> tuple[int, int, int, int]:
    """Bytes of q, of k, of all heads' scores and of the log-sum-exp."""
    size = itemsize(point.dtype)
    rows = point.batch * point.heads * point.seq
    q = rows * point.head_dim * size
    k = point.batch * point.heads // point.gqa * key_count(point) * point.head_dim * size
    return q, k, rows * key_count(point) * size, rows * 4


def matmuls(point: Point, forward: float, backward: float, pairs: int) -> tuple[Flops, ...]:
    """Matmuls over *pairs*, so many in the forward and in the backward."""
    times = {"fwd": forward, "bwd": backward, "fwd+bwd": forward + backward}[point.mode]
    each = 2 * point.batch * point.heads * point.head_dim * pairs
    return (Flops(int(times * each), "matmul", point.dtype, "fp32"),)


def moved(point: Point, forward: tuple[int, int], backward: tuple[int, int]) -> tuple[Bytes, ...]:
    """(read, written) of the point's mode."""
    parts = {"fwd": [forward], "bwd": [backward], "fwd+bwd": [forward, backward]}[point.mode]
    return (Bytes(sum(p[0] for p in parts), sum(p[1] for p in parts)),)


def cost(point: Point) -> Cost:
    """q, k, v and do read once; o, or dq, dk and dv, written once. Two matmuls, and four."""
    q, k, _, _ = sizes(point)
    once = q + 2 * k + (q if point.mode != "fwd" else 0)
    written = {"fwd": q, "bwd": q + 2 * k, "fwd+bwd": 2 * q + 2 * k}[point.mode]
    return Cost(matmuls(point, 2, 4, seen_pairs(point)), (Bytes(once, written),))


def eager_work(point: Point) -> Work:
    """Each kernel by itself, the hidden pairs too; a scale and a mask pass over the scores."""
    q, k, u, _ = sizes(point)
    all_keys = k * point.gqa  # repeated, which itself moves k and v once more
    repeated = (2 * k, 2 * all_keys) if point.gqa > 1 else (0, 0)
    passes = 1 + (point.causal == "yes")  # over the scores, beside softmax and matmuls
    forward = (q + 2 * all_keys + (2 + passes) * u, q + (2 + passes) * u)
    backward = (3 * q + 2 * all_keys + (5 + passes) * u, q + 2 * all_keys + (2 + passes) * u)
    forward = (forward[0] + repeated[0], forward[1] + repeated[1])
    backward = (backward[0] + repeated[1], backward[1] + repeated[0])
    pairs = point.seq * key_count(point)
    return Work(matmuls(point, 2, 4, pairs), moved(point, forward, backward))


def flash_work(point: Point) -> Work:
    """The scores once more for dk and dv, and once more for dq: seven matmuls instead of four."""
    q, k, _, lse = sizes(point)
    forward = (q + 2 * k, q + lse)
    sums, both = (2 * q, lse), 2 * q + 2 * k + 2 * lse
    backward = (sums[0] + 2 * both, sums[1] + q + 2 * k)
    return Work(matmuls(point, 2, 7, seen_pairs(point)), moved(point, forward, backward))


def sdpa_supports(point: Point, device: Any) -> str | None:
    """torch's attention gives NaN where a query sees nothing."""
    return "gives NaN where a query sees no key" if blind_queries(point) else None


def on_cuda(point: Point, device: Any) -> str | None:
    """These backends are of CUDA, in 16 bits."""
    if sdpa_supports(point, device):
        return sdpa_supports(point, device)
    if device.kind != "cuda":
        return "needs an NVIDIA GPU"
    return None if point.dtype in ("bf16", "fp16") else "computes in bf16 and fp16"


def efficient_supports(point: Point, device: Any) -> str | None:
    """Memory-efficient attention, which also takes fp32, but no shared keys."""
    if sdpa_supports(point, device):
        return sdpa_supports(point, device)
    if device.kind != "cuda":
        return "needs an NVIDIA GPU"
    return "takes no keys that heads share" if point.gqa > 1 else None


def cudnn_supports(point: Point, device: Any) -> str | None:
    """As torch calls it, cuDNN aligns a causal mask upper left."""
    if point.causal == "yes" and offset_of(point):
        return "has no causal mask that is aligned lower right"
    return on_cuda(point, device)


def flex_supports(point: Point, device: Any) -> str | None:
    """Compiled for GPUs."""
    return "needs a GPU" if device.kind == "cpu" else lacks_compiler(point, device)


def flash_supports(point: Point, device: Any) -> str | None:
    """Head dimensions of whole tiles."""
    if point.head_dim not in FLASH_DIMS:
        return f"head-dim must be one of {', '.join(map(str, FLASH_DIMS))}"
    if point.head_dim == 256 and point.mode != "fwd":
        return "head-dim 256 has no backward"
    if device.kind == "cpu" and point.dtype == "bf16":
        return "Triton's interpreter multiplies no bf16"
    return lacks_triton(point, device)


def package_supports(module: str, least: int) -> Callable[[Point, Any], str | None]:
    """Where *module* is installed, on GPUs of compute capability *least* and newer."""

    def supports(point: Point, device: Any) -> str | None:
        if importlib.util.find_spec(module) is None:
            return f"the package {module} is not installed"
        if point.causal == "yes" and point.align == "upper-left" and key_count(point) != point.seq:
            return "aligns a causal mask lower right"
        too_old = device.capability and int(device.capability.split(".")[0]) < least
        return f"needs compute capability {least}.0" if too_old else on_cuda(point, device)

    return supports


ATTENTION = Workload(
    name="attention",
    summary="softmax(q kᵀ / √d) v, forward and backward",
    formula="4·b·h·d·S FLOP forward, 8 backward (S pairs seen, exact); q, k, v, o once",
    axes=(
        Axis("batch", 4, "sequences"),
        Axis("heads", 16, "of queries"),
        Axis("gqa", 1, "query heads that share a head of keys"),
        Axis("seq", 4096, "queries", main=True),
        Axis("kv", 0, "keys and values; as many as queries where 0", minimum=0),
        Axis("head_dim", 64, "of q, k and v"),
        Axis("causal", "no", "mask", choices=("no", "yes")),
        Axis("align", "lower-right", "of a causal mask", choices=("lower-right", "upper-left")),
        MODE,
        Axis("dtype", "auto", choices=("fp32", "bf16", "fp16")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("eager", attention_eager, "operation by operation", work=eager_work),
        Implementation("compile", attention_compile, "torch.compile of it", lacks_compiler),
        Implementation("sdpa_math", sdpa("MATH"), "torch, composed", sdpa_supports),
        Implementation(
            "sdpa_efficient", sdpa("EFFICIENT_ATTENTION"), "xFormers' kernel, in torch",
            efficient_supports, runs="fmha|efficient|mem_eff",
        ),
        Implementation(
            "sdpa_flash", sdpa("FLASH_ATTENTION"), "FlashAttention-2, in torch", on_cuda,
            runs="flash",
        ),
        Implementation(
            "sdpa_cudnn", sdpa("CUDNN_ATTENTION"), "cuDNN, in torch", cudnn_supports, runs="cudnn"
        ),
        Implementation("flex", attention_flex, "flex_attention, compiled", flex_supports),
        Implementation(
            "triton_flash", attention_triton, "ours", flash_supports, work=flash_work,
            runs="forward_kernel|backward_kv_kernel",
        ),
        Implementation(
            "flash_attn_2", flash_attn("flash_attn"), "Dao's package",
            package_supports("flash_attn", 8), runs="flash",
        ),
        Implementation(
            "flash_attn_3", flash_attn("flash_attn_interface"), "Dao's package for Hopper",
            package_supports("flash_attn_interface", 9), runs="flash",
        ),
    ),
    terms=key_count,
    # Scores before and after the scale, the mask's, the shares; and as many gradients.
    roundings=lambda point: 4 if point.mode == "fwd" else 8,
)  # fmt: skip
