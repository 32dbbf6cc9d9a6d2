"""Compute one transformer block (RMSNorm, GQA attention with RoPE, gated MLP) as a ladder of rungs.

d = heads·head_dim, and a block has P = d·(2·heads + 2·heads/gqa)·head_dim + 3·d·hidden weights. T
tokens are 2·T·P FLOP of products and 4·heads·head_dim FLOP of attention for each pair of a query
and a key that it attends to. The phases are

- `decode`: one new token of each sequence, the last of the seq tokens of its cache;
- `prefill`: seq tokens of each sequence; the results are y and the keys and values to cache;
- `train`: the forward and the backward of seq tokens; the results are y and all gradients.

Inputs and results are bf16 for all rungs. The fp32 rungs convert x, dy and the results in each
call, and keep weights and cache in fp32. Weights are multiples of a power of 2 with codes from −127
to 127, so that rungs with int8 weights compute the same block as the others.

- `fp32`: torch, operator by operator, all in fp32.
- `tf32`: products on tensor cores, which round their fp32 factors to tf32.
- `bf16`: all tensors in bf16, half the bytes.
- `compile`: torch.compile of `bf16`, which fuses elementwise operators.
- `graph`: `compile` captured as a CUDA graph, which the host launches at once.
- `quantized`: `graph` with int8 weights, by the kernels of `linear`; it does not train.
- `ours`: `quantized` with norms, activation and attention by gpuperf's Triton kernels; torch
  compiles RoPE and sums.

The cost counts products and attention, weights and cache in bf16 once. The work has, besides, the
activations that kernels read and write; those of a backward count twice those of its forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpuperf.kernels import _block_quantized as int8
from gpuperf.kernels import _block_triton as ours
from gpuperf.kernels._transformer_block import (
    GAINS,
    PARAMETERS,
    PAST,
    WEIGHTS,
    Call,
    Held,
    Inputs,
    captured,
    forward,
    layer_of,
    make_inputs,
    new_tokens,
    reference,
    shapes,
    step,
    width_of,
    with_precision,
)
from gpuperf.kernels.decode import HEAD_DIMS, MOST_ROWS

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import compiled, lacks_compiler, lacks_descriptors, lacks_triton
from gpuperf.units import itemsize

PHASES = ("decode", "prefill", "train")
USUAL_ROUNDINGS = 4  # of a chain of operators that keep their results in bf16
LEAST_HEAD = 16  # the norm of a few elements may divide by a variance that is rounding alone
TORCH = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


def rung(
    dtype: str,
    wrap: Callable[..., Any] = lambda layer: layer,
    around: Callable[[Call], Call] = lambda call: call,
) -> Callable[[Inputs, Point, object], Call]:
    """Return the build of the block in *dtype*.

    *wrap* changes the function of the block, *around* the call that computes the results.
    """

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        held = Held(inputs, point, TORCH[dtype])
        results_of = step if point.phase == "train" else forward
        compute: Call = results_of(wrap(layer_of(point)), inputs, held)
        compute = around(with_precision("high" if dtype == "tf32" else "highest", compute))

        def call() -> tuple[torch.Tensor, ...]:
            held.update()
            results: tuple[torch.Tensor, ...] = compute()
            return results

        return call

    return build


def tf32_supports(point: Point, device: Any) -> str | None:
    """Return why products cannot round to tf32, or None."""
    return None if "tf32" in device.dtypes else "needs a GPU with tf32"


def roundings(dtype: str) -> Callable[[Point], int]:
    """Return how many roundings to bf16 those of intermediate results in *dtype* amount to.

    In bf16 there are six times as many with a backward: an element of the gradient of `qkv`, whose
    rows differ in size, erred by 0.17 of the rms with 512 tokens. tf32 has an eighth of the unit
    roundoff, fp32 a 2^16th.
    """

    def of_point(point: Point) -> int:
        count = USUAL_ROUNDINGS * (6 if point.phase == "train" else 1)
        return -(-count // 8) if dtype == "tf32" else count if dtype == "bf16" else 0

    return of_point


def graph_supports(point: Point, device: Any) -> str | None:
    """Return why no CUDA graph can be captured, or None."""
    return "needs a GPU" if device.kind == "cpu" else lacks_compiler(point, device)


def quantized_supports(point: Point, device: Any) -> str | None:
    """Return why the block cannot have int8 weights, or None."""
    if point.phase == "train":
        return "int8 weights are not trained"
    return lacks_triton(point, device)


def ours_supports(point: Point, device: Any) -> str | None:
    """Return why the Triton kernels cannot compute the block, or None."""
    if point.head_dim not in HEAD_DIMS:
        return f"head-dim must be one of {', '.join(map(str, HEAD_DIMS))}"
    if point.phase == "decode" and point.gqa > MOST_ROWS:
        return f"takes gqa of at most {MOST_ROWS}"
    if device.kind == "cpu":
        return "Triton's interpreter does not multiply bf16"
    return quantized_supports(point, device) or lacks_descriptors(point, device)


def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs | None:
    """Return the inputs of some sequences; gradients of weights need all."""
    if "dy" in inputs:
        return None
    return {name: t[rows] if name in ("x", *PAST) else t for name, t in inputs.items()}


def elements(point: Point, names: tuple[str, ...]) -> int:
    """Return the elements of the inputs *names* that the phase has."""
    given = shapes(point)
    return sum(torch.Size(given[name]).numel() for name in names if name in given)


def attention_pairs(point: Point) -> int:
    """Return the pairs of a query and a key in one sequence."""
    return int(point.seq if point.phase == "decode" else point.seq * (point.seq + 1) // 2)


def flops(point: Point, backward: int) -> int:
    """Return the FLOPs of the phase, with *backward* matmuls over the pairs backward."""
    train = point.phase == "train"
    products = 2 * point.batch * new_tokens(point) * elements(point, WEIGHTS)
    matmul = 2 * point.batch * width_of(point) * attention_pairs(point)
    return int((3 if train else 1) * products + (2 + train * backward) * matmul)


def least_elements(point: Point) -> tuple[int, int]:
    """Return the elements that are read, and those that are written: inputs and results once."""
    read = elements(point, tuple(shapes(point)))
    y = elements(point, ("x",))
    if point.phase == "train":
        return read, 2 * y + elements(point, PARAMETERS)
    kv_heads = point.heads // point.gqa
    return read, y + 2 * point.batch * kv_heads * new_tokens(point) * point.head_dim


def cost(point: Point) -> Cost:
    """Return the FLOPs of products and attention; inputs and results move once."""
    size, (read, written) = itemsize(point.dtype), least_elements(point)
    count = Flops(flops(point, 4), "matmul", point.dtype, "fp32")
    return Cost((count,), (Bytes(size * read, size * written),))


def activations(point: Point, fused: bool) -> tuple[int, int]:
    """Return the elements of a token that the kernels of a forward read, and that they write.

    Each product reads its input and writes its output; a norm reads and writes d, a residual sum
    reads 2·d and writes d. RoPE on q and k is one pass that is *fused*; else it is four products of
    halves, two sums and a concatenation. The activation of the MLP is one pass, or two.
    """
    d, h, kv_heads = width_of(point), point.hidden, point.heads // point.gqa
    all_heads, turned = point.heads + 2 * kv_heads, point.heads + kv_heads
    read = 3 * d + 2 * d + h + 2 * d + 4 * d  # products (gate and up share one read), norms, sums
    read += d + (1 if fused else 5) * turned * point.head_dim + (2 if fused else 3) * h
    written = all_heads * point.head_dim + 2 * d + 2 * h + 2 * d + 2 * d
    written += d + (1 if fused else 4) * turned * point.head_dim + (1 if fused else 2) * h
    return int(read), int(written)


def eager_attention(point: Point) -> tuple[int, int]:
    """Return the elements that torch's attention in fp32 reads, and that it writes, forward.

    It is modelled as torch's math backend: keys and values are repeated, keys are scaled, and
    scores are written, masked if causal, turned into a softmax and read again. That scores are
    written is seen in the memory of a call: 2.36 GB for 2048 tokens on an H200.
    """
    keys = point.batch * point.heads * point.seq * point.head_dim
    scores = point.batch * point.heads * new_tokens(point) * point.seq
    masked = point.phase != "decode"
    read = 2 * keys // point.gqa + 3 * keys + (2 + masked) * scores
    return int(read), int(3 * keys + (2 + masked) * scores)


def work(dtype: str, fused: bool, launches: int | None = None) -> Callable[[Point], Work]:
    """Return the work of a rung in *dtype*, whose elementwise operators are *fused* or not."""

    def of_point(point: Point) -> Work:
        size, (read, written) = itemsize(dtype), least_elements(point)
        tokens, train = point.batch * new_tokens(point), point.phase == "train"
        read_each, written_each = activations(point, fused)
        passes = 3 if train else 1
        read += passes * tokens * read_each + train * elements(point, WEIGHTS)
        written += passes * tokens * written_each
        if size == itemsize("fp32"):
            read_each, written_each = eager_attention(point)
            read, written = read + passes * read_each, written + passes * written_each
        # Fused attention computes its scores again backward: five matmuls, and not four.
        count = Flops(flops(point, 5), "matmul", dtype, "fp32")
        return Work((count,), (Bytes(size * read, size * written),), launches)

    return of_point


def quantized_work(point: Point) -> Work:
    """Return the work of the compiled block with weights of one byte."""
    needed = work("bf16", True, 1)(point)
    (moved,) = needed.bytes
    saved = elements(point, WEIGHTS) * (itemsize("bf16") - itemsize("int8"))
    return Work(needed.flops, (Bytes(moved.read - saved, moved.written),), needed.launches)


BLOCK = Workload(
    name="block",
    summary="transformer block, rung by rung",
    formula="2·T·P FLOP, and 4·d a pair of attention (train: thrice); weights and cache once",
    axes=(
        Axis("phase", "decode", "what is computed", choices=PHASES),
        Axis("batch", 1, "sequences"),
        Axis("heads", 32, "heads of queries"),
        Axis("gqa", 4, "query heads that share a head of keys"),
        Axis("seq", 2048, "tokens of a sequence, cached ones too", main=True, minimum=2),
        Axis("hidden", 14336, "width of the MLP"),
        Axis("head_dim", 128, "elements of a head", minimum=LEAST_HEAD),
        Axis("dtype", "bf16", "dtype of inputs and results", choices=("bf16",)),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation(
            "fp32",
            rung("fp32"),
            "torch in fp32",
            work=work("fp32", False),
            roundings=roundings("fp32"),
        ),
        Implementation(
            "tf32",
            rung("tf32"),
            "torch, products in tf32",
            tf32_supports,
            work("tf32", False),
            roundings=roundings("tf32"),
        ),
        Implementation("bf16", rung("bf16"), "torch in bf16", work=work("bf16", False)),
        Implementation(
            "compile",
            rung("bf16", compiled),
            "torch.compile of bf16",
            lacks_compiler,
            work("bf16", True),
        ),
        Implementation(
            "graph",
            rung("bf16", compiled, captured),
            "compile as a CUDA graph",
            graph_supports,
            work("bf16", True, 1),
        ),
        Implementation(
            "quantized",
            int8.int8_rung(int8.layer_call),
            "graph with int8 weights",
            quantized_supports,
            quantized_work,
        ),
        Implementation(
            "ours",
            int8.int8_rung(ours.layer_call),
            "quantized, and more by Triton",
            ours_supports,
            quantized_work,
        ),
    ),
    narrow=narrow,
    steps=True,
    terms=lambda point: max(point.hidden, width_of(point), point.batch * point.seq),
    roundings=roundings("bf16"),
    prepared=lambda point: (*GAINS, *WEIGHTS, *(PAST if point.phase == "decode" else ())),
)
