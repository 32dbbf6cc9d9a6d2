"""Time each plan of gpuperf's Gluon kernels for Hopper, beside cuDNN, Triton and cuBLAS.

`python docs/measured/hopper_plans.py > docs/measured/hopper_plans.txt` runs on a Hopper GPU for
about 3 minutes; `--group f128` prints one table. A line has TFLOP/s (FLOPs of the model over the
median of Triton's `do_bench`) of bf16: attention with batch 4 and 16 heads, forward and backward,
or a product m × n × k, where `pick` is the tile that the kernel's model chooses, and `/2` two parts
of k. PLANS and TILES explain the names; the group `bands` has windows and documents. A plan whose
results differ from those of float64 at one of two odd sizes is left out, and its error is printed;
with windows and documents the largest difference from `triton_flash` follows the rate.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import torch
from gpuperf.kernels import _flash as flash
from gpuperf.kernels import _flash_hopper as forward
from gpuperf.kernels import _flash_hopper_backward as backward
from gpuperf.kernels import _matmul_hopper as products
from gpuperf.kernels import attention
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gpuperf import Point
from gpuperf.jit import triton

Call = Callable[[], Any]
Table = Callable[[], None]
PLANS: Mapping[str, Mapping[str, Any]] = {
    "f128": {
        "f128a": forward.Plan(128, 2, 2),
        "f128e": forward.Plan(64, 3, 3),
        "f128f": forward.Plan(64, 2, 4),
    },
    "b128": {"b128a": backward.Plan(64, 2), "b128b": backward.Plan(64, 2, 2)},
    "f64": {
        "f64a": forward.Plan(128, 2, 2),
        "f64c": forward.Plan(128, 3, 2),
        "f64e": forward.Plan(128, 2, 4),
        "f64f": forward.Plan(128, 3, 4),
        "f64g": forward.Plan(64, 2, 6),
        "f64i": forward.Plan(64, 3, 4),
    },
    "b64": {
        "b64a": backward.Plan(64, 2),
        "b64b": backward.Plan(128, 2),
        "b64c": backward.Plan(64, 3),
        "b64d": backward.Plan(64, 2, 2),
        "b64e": backward.Plan(64, 2, 2, True),
        "b64f": backward.Plan(64, 3, 2, True),
    },
    "f256": {"f256a": forward.Plan(64, 2, 2)},
}
TILES = {f"m{64 * tile.members}x{tile.columns}": tile for tile in products.TILES}
# Heads of queries for each head of keys, tokens, and whether the mask is causal.
SHAPES = (
    *((1, n, causal) for n in (2048, 8192, 16384) for causal in (False, True)),
    (4, 8192, True),
)
BANDS: Mapping[str, Mapping[str, Any]] = {
    "window 1024 causal": {"window": 1024, "causal": "yes"},
    "window 4096 causal": {"window": 4096, "causal": "yes"},
    "window 1024": {"window": 1024, "causal": "no"},
    "8 documents causal": {"documents": 8, "causal": "yes"},
    "8 documents": {"documents": 8, "causal": "no"},
}
LARGE = (
    *((n, n, n) for n in (2048, 3072, 4096, 5120, 6144, 8192)),
    *((2816, 7168, 4608), (11008, 2304, 5632), (4000, 12288, 3072), (16384, 3584, 2048)),
)
WIDE = ((4096, 4096), (8192, 8192), (14336, 4096))
THIN = tuple((m, n, k) for n, k in WIDE for m in (16, 64, 128, 256))
ODD_TOKENS = ((257, True), (1000, False))
ODD_PRODUCTS = ((100, 200, 40), (513, 776, 1000))
MOST_OFF = {"attention": 0.012, "product": 0.003}  # relative error in the 2-norm


def draw(*shape: int) -> torch.Tensor:
    """Return normally distributed numbers in bf16."""
    return torch.randn(shape, device="cuda").bfloat16()


def draw_attention(b: int, h: int, group: int, n: int, d: int) -> tuple[torch.Tensor, ...]:
    """Return q (b, h, n, d), k and v (b, h / group, n, d), and do (b, h, n, d)."""
    few = h // group
    return draw(b, h, n, d), draw(b, few, n, d), draw(b, few, n, d), draw(b, h, n, d)


def rate(flops: float, call: Call) -> float:
    """Return the TFLOP/s of *call*; NaN where a library has no kernel for it."""
    try:
        return flops / triton.testing.do_bench(call, 15, 50, return_mode="median") / 1e9
    except RuntimeError:
        torch.cuda.synchronize()  # raises the error again if the GPU is in a bad state
        return float("nan")


def show(title: str, flops: float, calls: Mapping[str, Call]) -> None:
    """Print the TFLOP/s of each of *calls*."""
    print(
        f"{title}:",
        *(f"{name} {rate(flops, call):.0f}" for name, call in calls.items()),
        flush=True,
    )


def error(values: Iterable[torch.Tensor], exact: Iterable[torch.Tensor]) -> float:
    """Return the largest relative error of *values* in the 2-norm."""
    pairs = zip(values, exact, strict=True)
    return largest([float((a.double() - b).norm() / b.norm()) for a, b in pairs])


def largest(errors: list[float]) -> float:
    """Return the largest of *errors*; NaN if one is NaN, which `max` may skip."""
    return float(torch.tensor(errors, dtype=torch.float64).max())


def correct(kind: str, plans: Mapping[str, Any], off: Callable[[Any], float]) -> dict[str, Any]:
    """Return those of *plans* whose error *off* is small; print the others' errors."""
    errors = {name: off(plan) for name, plan in plans.items()}
    for name, wrong in errors.items():
        if not wrong <= MOST_OFF[kind]:
            print(f"{name} is wrong: its relative error is {wrong:.1e}", flush=True)
    return {name: plan for name, plan in plans.items() if errors[name] <= MOST_OFF[kind]}


def exact_attention(given: tuple[torch.Tensor, ...], mask: flash.Mask) -> list[torch.Tensor]:
    """Return o, dq, dk and dv in float64."""
    q, k, v = (x.double().requires_grad_() for x in given[:3])
    scores = q @ k.mT * mask.scale
    if mask.causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf"))
    o = torch.softmax(scores, -1) @ v
    return [o.detach(), *torch.autograd.grad(o, (q, k, v), given[3].double())]


def attention_error(d: int, plan: Any) -> float:
    """Return the largest error of *plan* at the odd sizes, with head dim d."""
    errors = []
    for n, causal in ODD_TOKENS:
        mask = flash.Mask(causal, 0, d**-0.5)
        q, k, v, do = given = draw_attention(1, 2, 1, n, d)
        ours = plan if isinstance(plan, forward.Plan) else None
        o, lse = forward.forward(q, k, v, mask, ours)
        exact = exact_attention(given, mask)
        results = (o,) if ours else (o, *backward.backward(q, k, v, o, do, lse, mask, plan))
        errors.append(error(results, exact[: len(results)]))
    return largest(errors)


def product_error(tile: products.Tile) -> float:
    """Return the largest error of *tile* at the odd sizes."""
    pairs = [(draw(m, k), draw(k, n)) for m, n, k in ODD_PRODUCTS]
    results = [products.multiply_by(a, b, tile)() for a, b in pairs]
    return error(results, [a.double() @ b.double() for a, b in pairs])


def cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return attention by cuDNN."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        grouped = q.shape[1] != k.shape[1]
        return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


def forward_calls(given: Any, mask: flash.Mask, plans: Mapping[str, Any]) -> dict[str, Call]:
    """Return the forward by cuDNN, by `triton_flash` and by each of *plans*."""
    q, k, v, _ = given
    return {
        "cudnn": lambda: cudnn(q, k, v, mask.causal),
        "triton_flash": lambda: flash.forward(q, k, v, mask, flash.FORWARD[0]),
        **{n: lambda p=p: forward.forward(q, k, v, mask, p) for n, p in plans.items()},
    }


def backward_calls(given: Any, mask: flash.Mask, plans: Mapping[str, Any]) -> dict[str, Call]:
    """Return the backward by cuDNN, by `triton_flash` and by each of *plans*."""
    q, k, v, do = given
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    result = cudnn(*leaves, mask.causal)
    o, lse = flash.forward(q, k, v, mask, flash.FORWARD[0])

    def triton_flash() -> None:
        rest = (q, k, v, do, lse, flash.row_sums(o, do), mask)
        flash.backward("kv", *rest, flash.BACKWARD_KV[0])
        flash.backward("q", *rest, flash.BACKWARD_Q[0])

    return {
        "cudnn": lambda: torch.autograd.grad(result, leaves, do, retain_graph=True),
        "triton_flash": triton_flash,
        **{
            n: lambda p=p: backward.backward(q, k, v, o, do, lse, mask, p) for n, p in plans.items()
        },
    }


def time_attention(group: str) -> None:
    """Print the table of a *group* of plans of attention."""
    d, is_forward = int(group[1:]), group[0] == "f"
    plans = correct("attention", PLANS[group], lambda plan: attention_error(d, plan))
    for shared, n, causal in SHAPES:
        if not is_forward and (n, causal) == (16384, False):
            continue  # takes as long as all others
        given, mask = draw_attention(4, 16, shared, n, d), flash.Mask(causal, 0, d**-0.5)
        calls = (forward_calls if is_forward else backward_calls)(given, mask, plans)
        pairs = n * (n + 1) // 2 if causal else n * n
        title = f"{'fwd' if is_forward else 'bwd'} d{d} gqa{shared} n{n}"
        flops = (4 if is_forward else 8) * 64 * d * pairs
        show(f"{title} {'causal' if causal else 'full'}", flops, calls)


def time_bands() -> None:
    """Print the table of the forward where a window or documents hide keys."""
    for d, (name, axes) in product((64, 128), BANDS.items()):
        rest = {"seq": 8192, "kv": 0, "head_dim": d, "align": "lower-right", **axes}
        mask = attention.flash_mask(Point(rest), torch.device("cuda"))
        q, k, v, _ = given = draw_attention(4, 16, 1, 8192, d)
        _cudnn, *calls = forward_calls(given, mask, PLANS[f"f{d}"]).items()
        assert mask.spans
        pairs = sum(map(int.__sub__, mask.spans.ends, mask.spans.begins))
        o, _ = flash.forward(q, k, v, mask, flash.FORWARD[0])
        show(f"fwd d{d} {name}", 4 * 64 * d * pairs, dict(calls))
        off = {plan: float((call()[0] - o).abs().max()) for plan, call in calls}
        print("  largest difference:", *(f"{plan} {x:.1e}" for plan, x in off.items()), flush=True)


def time_products(sizes: Iterable[tuple[int, int, int]], splits: tuple[int, ...]) -> None:
    """Print the table of products of *sizes* by each tile, with each number of parts of k."""
    tiles = correct("product", TILES, product_error)
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    for m, n, k in sizes:
        a, b = draw(m, k), draw(k, n)
        chosen, parts = products.choose(m, n, k, processors)
        name = f"m{64 * chosen.members}x{chosen.columns}"
        tried = [(x, s) for x in tiles for s in splits if s == 1 or tiles[x].members == 1]
        tried += [(name, parts)] if name in tiles and (name, parts) not in tried else []
        calls: dict[str, Call] = {"torch": lambda a=a, b=b: a @ b}
        calls |= {named(x, s): products.multiply_by(a, b, tiles[x], s) for x, s in tried}
        show(f"mm {m}x{n}x{k} pick {named(name, parts)}", 2 * m * n * k, calls)


def time_fp8() -> None:
    """Print the table of products in fp8, with float32 sums, by each tile and by cuBLASLt."""
    tiles = {f"m{64 * tile.members}x{tile.columns}": tile for tile in products.FP8_TILES}
    one = torch.ones((), device="cuda")
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    for m, n, k in (*LARGE, *THIN):
        a, b = draw(m, k).to(torch.float8_e4m3fn), draw(n, k).to(torch.float8_e4m3fn).t()
        chosen, parts = products.choose(m, n, k, processors, 1)
        name = f"m{64 * chosen.members}x{chosen.columns}"
        calls: dict[str, Call] = {
            "torch": lambda a=a, b=b: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16),
            "torch_fast": lambda a=a, b=b: torch._scaled_mm(
                a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True
            ),
            **{x: products.multiply_by(a, b, tile) for x, tile in tiles.items()},
        }
        if parts > 1:
            calls[named(name, parts)] = products.multiply_by(a, b, chosen, parts)
        show(f"fp8 {m}x{n}x{k} pick {named(name, parts)}", 2 * m * n * k, calls)


def named(tile: str, parts: int) -> str:
    """Return the name of a tile with *parts* parts of k."""
    return f"{tile}/{parts}" if parts > 1 else tile


def main() -> None:
    """Print the tables of the groups."""
    tables: dict[str, Table] = {group: lambda group=group: time_attention(group) for group in PLANS}
    tables |= {
        "mm": lambda: time_products(LARGE, (1,)),
        "thin": lambda: time_products(THIN, (1, 2, 4)),
        "fp8": time_fp8,
        "bands": time_bands,
    }
    parser = argparse.ArgumentParser(description="Time the plans of the Gluon kernels for Hopper.")
    parser.add_argument("--group", choices=tables, help="print the table of this group only")
    group = parser.parse_args().group
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        raise SystemExit("hopper_plans.py needs a Hopper GPU, such as an H100.")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}")
    for name in [group] if group else tables:
        tables[name]()


if __name__ == "__main__":
    main()
