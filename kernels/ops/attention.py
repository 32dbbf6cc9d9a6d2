"""Compute attention, o = dropout(softmax(scale · q kᵀ + mask)) v with scale = 1/√d, and gradients.

q is (batch, heads, seq, head_dim), k and v are (batch, heads/gqa, kv, head_dim); kv = seq unless
given. A causal mask admits for query i the keys j ≤ i + kv − seq (`lower-right`, FlashAttention's)
or j ≤ i (`upper-left`, that of torch's `is_causal`); a query without a key gives 0. A window admits
the `window` keys up to the query's own, and without a causal mask as many from it on. Documents of
a sequence, of two or three lengths, do not see each other. A mask tensor is an input of its own,
(seq, kv) for all heads: added to the scores, or true where a pair counts. With a softcap scores are
softcap · tanh(score / softcap). Dropout sets elements of the softmax to 0 and divides the others by
1 − its probability.

The FLOPs of the cost are those of the matmuls over the S pairs of query and key that the mask
admits: 4·batch·heads·head_dim·S forward, and twice that backward. S is exact; with `causal_flops`
half it is n²/2 for a causal mask of n queries and n keys, the convention of papers. A mask tensor,
whose values no kernel knows, leaves S as it is. Masked pairs that a kernel computes, or scores that
it computes twice, belong to its `work`. With u bytes of scores and v bytes of a tensor, the
implementations move forward:

- `eager`: torch's matmul, scale, mask, softmax, dropout, matmul; 6u + 4v, 2u more with a mask, 2u
  and a byte a score more with dropout.
- `compile`: the same function under torch.compile.
- `sdpa_math`, `sdpa_efficient`, `sdpa_flash`, `sdpa_cudnn`: torch's scaled_dot_product_attention,
  each pinned to one backend; the names of the kernels that ran confirm it. Windows and documents
  are a boolean mask of all pairs, which `sdpa_flash` does not take. With dropout, cuDNN 9.19
  drops the same elements in rows i, i + 2, i + 4 and i + 6 of a head, and is `wrong`.
- `flex`: torch's flex_attention, compiled, with a block mask.
- `triton_flash`: gpuperf's Triton kernels (`_flash.py`); 4v, and the log-sum-exp.
- `gluon_flash`: the same in Gluon, for Hopper (`_flash_hopper.py`, `_flash_hopper_backward.py`).
- `flash_attn_2`, `flash_attn_3`: Dao's packages, where they are installed.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpuperf.kernels import _attention_cost as costs
from gpuperf.kernels import _attention_support as support
from gpuperf.kernels import _flash as flash
from gpuperf.kernels import _flash_hopper as hopper
from gpuperf.kernels import _flash_hopper_backward as hopper_backward
from gpuperf.kernels._attention_dropout import kept_by
from gpuperf.kernels._attention_inputs import NAMES, gradient_sizes, make_inputs, narrow, prepared
from gpuperf.kernels._attention_reference import reference
from gpuperf.kernels._masks import (
    DOCUMENTS,
    DROPOUT,
    MASK,
    SOFTCAP,
    WINDOW,
    cap_of,
    diagonals,
    document_starts,
    dropout_of,
    has_blind_queries,
    has_documents,
    has_hidden_places,
    hidden_places,
    is_banded,
    key_count,
    key_ranges,
    mask_of,
    offset_of,
    window_of,
)
from gpuperf.kernels._modes import MODE, Backward, by_mode, by_torch

from gpuperf import Axis, Implementation, Point, Workload
from gpuperf.errors import Unsupported
from gpuperf.jit import Tuned, compiled, lacks_compiler, tune

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], Any]
Attend = Callable[..., torch.Tensor]
Build = Callable[[Inputs, Point, object], Call]

NO_BACKEND = ("No available kernel", "No viable backend")  # torch's errors if it lacks a backend


def eager(point: Point, device: Any) -> Attend:
    """Return attention as single operations; keys are repeated for query heads that share them.

    `where` and its gradient are one kernel each over the scores; `masked_fill` copies them first.
    """
    hidden, scale, blind = None, point.head_dim**-0.5, has_blind_queries(point)
    kind, dropout, cap = mask_of(point), dropout_of(point), cap_of(point)
    if has_hidden_places(point):
        hidden = hidden_places(point, torch.arange(point.seq, device=device))

    def attend(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        if point.gqa > 1:
            k, v = k.repeat_interleave(point.gqa, 1), v.repeat_interleave(point.gqa, 1)
        scores = q @ k.transpose(-1, -2) * (scale / cap if cap else scale)
        if cap:
            scores = torch.tanh(scores) * cap
        if mask is not None:
            scores = scores + mask if kind == "additive" else torch.where(mask, scores, -math.inf)
        if hidden is not None:
            scores = torch.where(hidden, -math.inf, scores)
        shares = torch.softmax(scores, -1)
        if hidden is not None and blind:
            shares = torch.where(hidden, 0.0, shares)  # softmax gives NaN where all keys are hidden
        if dropout:
            shares = torch.native_dropout(shares, dropout, True)[0]
        return shares @ v

    return attend


def build_of(make: Callable[[Point, Any], Attend]) -> Build:
    """Return the build of what `make(point, device)` returns, with autograd's gradient."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        attend = make(point, inputs["q"].device)
        if "mask" in inputs:
            attend = partial(attend, mask=inputs["mask"])
        call: Call = by_torch(point.mode, attend, inputs, NAMES, "do")
        return call

    return build


def sdpa(backend: str) -> Callable[[Point, Any], Attend]:
    """Return the maker of torch's scaled_dot_product_attention pinned to *backend*."""

    def make(point: Point, device: Any) -> Attend:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        pinned, causal, corner = getattr(SDPBackend, backend), point.causal == "yes", None
        if is_banded(point):
            causal, corner = False, ~hidden_places(point, torch.arange(point.seq, device=device))
        elif causal and offset_of(point):
            from torch.nn.attention import bias  # it imports torch's compiler, for 1 to 4 s

            causal, corner = False, bias.causal_lower_right(point.seq, key_count(point))
        attention = partial(F.scaled_dot_product_attention, enable_gqa=point.gqa > 1)
        dropout = dropout_of(point)

        def attend(
            q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
        ) -> torch.Tensor:
            try:
                with sdpa_kernel(pinned):
                    hidden = corner if mask is None else mask
                    return attention(q, k, v, hidden, dropout, is_causal=causal)
            except RuntimeError as error:
                # Any CUDA error mentions a "kernel", so torch's whole phrases are compared.
                if not any(words in str(error) for words in NO_BACKEND):
                    raise
                reason = f"torch {torch.__version__} has no {backend.lower()} kernel for this shape"
                raise Unsupported(reason, "another head-dim, dtype, mask or backend") from None

        return attend

    return make


def flex(point: Point, device: Any) -> Attend:
    """Return compiled flex_attention, with a block mask where pairs are hidden by their places."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    score, block_mask, cap = None, None, cap_of(point)
    least, most = diagonals(point)
    document = None
    if has_documents(point):
        starts = torch.tensor(document_starts(point), device=device)
        tokens = torch.arange(point.seq, device=device)
        document = torch.searchsorted(starts, tokens, right=True)

    def admits(b: Any, h: Any, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        seen = i >= 0
        if most is not None:
            seen = seen & (j <= i + most)
        if least is not None:
            seen = seen & (j >= i + least)
        return seen if document is None else seen & (document[i] == document[j])

    if has_hidden_places(point):
        block_mask = create_block_mask(
            admits, None, None, point.seq, key_count(point), device=str(device)
        )
    if cap:

        def score(value: torch.Tensor, b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
            return cap * torch.tanh(value / cap)

    return compiled(
        partial(flex_attention, score_mod=score, block_mask=block_mask, enable_gqa=point.gqa > 1)
    )


def flash_mask(point: Point, device: torch.device) -> flash.Mask:
    """Return the mask of our kernels."""
    band = spans = None
    if is_banded(point):
        begins, ends = key_ranges(point, torch.device("cpu"))
        band = flash.band_of(begins.to(device), ends.to(device), key_count(point))
        spans = flash.spans_of(begins, ends)
    scale = point.head_dim**-0.5
    cap = float(cap_of(point))
    return flash.Mask(point.causal == "yes", offset_of(point), scale, band, cap, spans)


def attention_triton(inputs: Inputs, point: Point, options: object) -> Call:
    """Build gpuperf's Triton attention, each kernel with its fastest tile."""
    q, k, v = (inputs[name] for name in NAMES)
    mask = flash_mask(point, q.device)
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


def attention_gluon(inputs: Inputs, point: Point, options: object) -> Call:
    """Build gpuperf's Gluon attention for Hopper, with the tiles of its tables."""
    q, k, v = (inputs[name] for name in NAMES)
    mask = flash_mask(point, q.device)
    attend = partial(hopper.forward, q, k, v, mask)

    def forward() -> tuple[torch.Tensor, Backward]:
        o, lse = attend()
        return o, lambda do: hopper_backward.backward(q, k, v, o, do, lse, mask)

    call: Call = by_mode(point.mode, inputs, forward, lambda: attend()[0], "do")
    return call


def package(module: str) -> Callable[[Point, Any], Attend]:
    """Return the maker of attention by Dao's *module*, whose tensors are (b, n, h, d)."""

    def make(point: Point, device: Any) -> Attend:
        function = importlib.import_module(module).flash_attn_func
        if dropout_of(point):
            function = partial(function, dropout_p=dropout_of(point))
        if window := window_of(point):
            function = partial(function, window_size=(window - 1, window - 1))
        if cap := cap_of(point):
            function = partial(function, softcap=float(cap))

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            o = function(*(t.transpose(1, 2) for t in (q, k, v)), causal=point.causal == "yes")
            return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

        return attend

    return make


ATTENTION = Workload(
    name="attention",
    summary="softmax(q kᵀ / √d) v and its gradients",
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
        WINDOW,
        SOFTCAP,
        DOCUMENTS,
        MASK,
        DROPOUT,
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
            "sdpa_math",
            build_of(sdpa("MATH")),
            "torch's composed operations",
            support.sdpa_supports,
        ),
        # `runs` is part of the names of the kernels that ran on an H200; cuDNN's have "flash" too.
        Implementation(
            "sdpa_efficient",
            build_of(sdpa("EFFICIENT_ATTENTION")),
            "xFormers' kernel, in torch",
            support.efficient_supports,
            runs="fmha_cutlass",
        ),
        Implementation(
            "sdpa_flash",
            build_of(sdpa("FLASH_ATTENTION")),
            "FlashAttention-2, in torch",
            support.flash_2_supports,
            runs="pytorch_flash",
        ),
        Implementation(
            "sdpa_cudnn",
            build_of(sdpa("CUDNN_ATTENTION")),
            "cuDNN, in torch",
            support.cudnn_supports,
            runs="cudnn",
        ),
        Implementation(
            "flex", build_of(flex), "torch's flex_attention, compiled", support.flex_supports
        ),
        Implementation(
            "triton_flash",
            attention_triton,
            "FlashAttention-2 in Triton, tuned",
            support.flash_supports,
            work=costs.flash_work,
        ),
        Implementation(
            "gluon_flash",
            attention_gluon,
            "FlashAttention-3 in Gluon, for Hopper",
            support.gluon_supports,
            work=costs.one_pass_work,
        ),
        Implementation(
            "flash_attn_2",
            build_of(package("flash_attn")),
            "Dao's package flash_attn",
            support.package_supports("flash_attn", 8, True),
        ),
        Implementation(
            "flash_attn_3",
            build_of(package("flash_attn_interface")),
            "Dao's package flash_attn_interface, for Hopper",
            support.package_supports("flash_attn_interface", 9, False),
        ),
    ),
    terms=key_count,
    prepared=prepared,
    narrow=narrow,
    dropout=lambda point: partial(kept_by, point) if dropout_of(point) else None,
    sizes=gradient_sizes,
    roundings=costs.flash_roundings,
)
