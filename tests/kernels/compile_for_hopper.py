"""Compile our Triton kernels for an H100 without one; print the error of each check as JSON.

A process of its own: in that of the tests Triton interprets the kernels.
"""

from __future__ import annotations

import itertools
import json
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import triton
import triton.language as tl
from gpuperf.kernels import _flash as flash
from gpuperf.kernels import _linear_cross_entropy as fused
from gpuperf.kernels import _linear_triton as linear
from gpuperf.kernels import _linear_wide as wide
from gpuperf.kernels import _mlp_triton as gates
from gpuperf.kernels import _norm_sums as norm_sums
from gpuperf.kernels import _norms_triton as norms
from gpuperf.kernels import _rows as rows
from gpuperf.kernels import _softmax_triton as softmax
from gpuperf.kernels import _split_kv as split_kv
from gpuperf.kernels._matmul_triton import matmul_kernel, matmul_tma_kernel
from gpuperf.kernels._sincos_triton import sincos_kernel
from gpuperf.kernels.cross_entropy import gradient_kernel, losses_kernel
from gpuperf.kernels.kv_append import append_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SHARED_BYTES = 227 * 1024  # that a block may have
KINDS = {"lse": "*fp32", "sums": "*fp32", "factor": "fp32", "slope": "fp32", "scale": "fp32"}
TENSORS = ("q", "k", "v", "o", "do", "dq", "dk", "dv")


def compiled(
    kernel: Any,
    kinds: Mapping[str, str],
    constants: Mapping[str, Any],
    aligned: Sequence[str] = (),
    **options: int,
) -> Any:
    """Compile *kernel*; ptxas optimizes little, which would be a quarter of the time."""
    index = kernel.arg_names.index
    kinds = {**kinds, **dict.fromkeys(constants, "constexpr")}
    values = {(index(name),): value for name, value in constants.items()}
    divisible = {(index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = ASTSource(kernel, kinds, values, divisible)
    return triton.compile(source, GPUTarget("cuda", 90, 32), {**options, "ptx_options": "-O1"})


def flash_kernel(kernel: Any, d: int, tile: Mapping[str, int], mask: str = "causal") -> int:
    """The bytes of shared memory of a kernel of flash attention, checked for Hopper's loads."""
    constants: dict[str, Any] = {"D": d, "BM": tile["BM"]}
    multiplies = "BN" in kernel.arg_names
    names = kernel.arg_names
    ranges = [name for name in names if name.endswith(("_begins", "_ends"))]
    if multiplies:
        cap = "fast" if mask == "band" else "none"
        constants |= {"BN": tile["BN"], "PRECISION": "tf32", "MASK": mask, "CAP": cap}
        constants |= {} if mask == "band" else dict.fromkeys(ranges)
    kinds = {n: "*bf16" if n in TENSORS else KINDS.get(n, "i32") for n in names}
    kinds |= dict.fromkeys(ranges, "*i32")
    aligned = [n for n in names if kinds[n][0] == "*" or n[:2] in ("sq", "sk", "s_")]
    options = {name: tile[name] for name in ("num_warps", "num_stages")}
    made = compiled(kernel, kinds, constants, aligned, **options)
    if multiplies:
        assert "wgmma.mma_async" in made.asm["ptx"], (kernel, d, tile)
        assert "cp.async.bulk.tensor" in made.asm["ptx"], (kernel, d, tile)
        assert ("tanh.approx" in made.asm["ptx"]) == (mask == "band")
    return int(made.metadata.shared)


def fits(kernel: Any, dims: Sequence[int], tiles: Sequence[Mapping[str, int]]) -> None:
    # An H200 was seen to like the first tile; smaller GPUs have room for the last.
    for d in dims:
        shared = flash_kernel(kernel, d, tiles[0])
        assert shared <= SHARED_BYTES, (kernel, d)
    # A kernel without a mask has the loops of the masked one, of which the largest d needs most.
    for mask in ("all", "band"):
        assert flash_kernel(kernel, d, tiles[0], mask) <= SHARED_BYTES, (kernel, d)
    assert flash_kernel(kernel, d, tiles[-1]) <= SHARED_BYTES // 2, kernel


def flash_forward() -> None:
    fits(flash.forward_kernel, (64, 256), flash.FORWARD)


def flash_backward() -> None:
    fits(flash.backward_kv_kernel, (64, 128), flash.BACKWARD_KV)
    fits(flash.backward_q_kernel, (64, 128), flash.BACKWARD_Q)
    fits(flash.backward_kv_kernel, (256,), flash.BACKWARD_KV_256)
    fits(flash.backward_q_kernel, (256,), flash.BACKWARD_Q_256)
    flash_kernel(flash.row_sums_kernel, 128, {"BM": 64, "num_warps": 4, "num_stages": 3})


def matmul() -> None:
    tile = {"BM": 64, "BN": 64, "BK": 64, "GROUP": 8}
    descriptors = [f"tensordesc<bf16[64,{n}]>" for n in (64, 64, 32)]
    for kernel, tensors, constants in (
        (matmul_kernel, ["*bf16"] * 3, {**tile, "PRECISION": "ieee"}),
        (matmul_tma_kernel, descriptors, tile),
    ):
        kinds = dict(zip("abcmnk", tensors + ["i32"] * 3, strict=True))
        made = compiled(kernel, kinds, constants, num_stages=3)
        assert "wgmma.mma_async" in made.asm["ptx"]


def linear_layer() -> None:
    """Codes that are converted by PTX; the interpreter takes code that no compiler does."""
    pointers = {"x": "*bf16", "weight": "*i8", "scale": "*bf16", "x_scale": "*fp32", "y": "*bf16"}
    kinds = pointers | dict.fromkeys(("m", "n", "k", "group"), "i32")
    every = {"BN": 8, "BK": 512, "STEP": 1, "X_STEP": -1, "FAST": True, "ALONG": 8, "GROUP": 128}
    for kernel in (linear.gemv_kernel, linear.packed_gemv_kernel):
        names = kernel.arg_names
        constants = {name: value for name, value in every.items() if name in names}
        of = {name: kind for name, kind in kinds.items() if name in names}
        made = compiled(kernel, of, constants, [*of], num_warps=2, num_stages=1)
        assert "bar.sync" not in loop_of(made.asm["ptx"]), kernel  # no layout is exchanged
        assert "cvt.rn.f32.s" not in made.asm["ptx"], kernel
    constants = {"BM": 64, "BN": 64, "BK": 64, "ALIGNED": True, "STEP": -1, "X_STEP": -1}
    constants |= {"FACTOR": tl.bfloat16, "FAST": True, "PROMOTE": None}
    for kind in (linear.PLAIN, linear.PACKED):
        at = {**constants, "KIND": kind}
        made = compiled(linear.linear_kernel, kinds, at, [*kinds], num_stages=3)
        assert "wgmma.mma_async" in made.asm["ptx"]
    at = {**constants, "KIND": linear.PLAIN, "FACTOR": tl.float8e4nv, "FAST": False, "PROMOTE": 64}
    kinds |= {"x": "*fp8e4nv", "weight": "*fp8e4nv", "scale": "*fp32"}
    compiled(linear.linear_kernel, kinds, at, [*kinds], num_stages=3)


def wide_linear_layer() -> None:
    """Codes become an operand of tensor cores in registers, and not in shared memory."""
    for weights, name, x, depth in (
        ("int8", "i8", "bf16", 64),
        ("int4", "i8", "bf16", 64),
        ("fp8", "fp8e4nv", "fp8e4nv", 128),
    ):
        tile = next(tile for tile in wide.TILES[weights] if tile[:3] == (128, 128, depth))
        constants = dict(zip(wide.KEYS, tile, strict=True))
        warps, stages, _ = (constants.pop(key) for key in ("warps", "stages", "RESTORE"))
        kinds = {"x": f"tensordesc<{x}[128,{depth}]>", "y": "*bf16", "scale": "*bf16"}
        kinds |= {"weight": f"tensordesc<{name}[128,{depth}]>", "x_scale": "*fp32"}
        kinds |= dict.fromkeys(("m", "n", "k"), "i32")
        converts = x == "bf16"
        constants |= {"KIND": wide.KINDS.get(weights, wide.PLAIN), "GROUP": 128, "FAST": converts}
        constants |= {"STEP": -1, "X_STEP": -1, "FINISH": converts}
        constants |= {"FACTOR": tl.bfloat16 if converts else tl.float8e4nv}
        options = {"num_warps": warps, "num_stages": stages}
        made = compiled(wide.wide_kernel, kinds, constants, ("n", "k"), **options)
        dots = re.findall(r"warp_group_dot .*: (\S+?)<[^*]*\*", made.asm["ttgir"])
        assert set(dots) == {"tensor" if converts else "!ttg.memdesc"}, (weights, dots)
        assert made.metadata.shared <= SHARED_BYTES, (weights, tile)
    for packed in (False, True):
        kinds = {"weight": "*i8", "scale": "*bf16", "restored": "*bf16"}
        kinds |= dict.fromkeys(("width", "group"), "i32")
        compiled(wide.restore_kernel, kinds, {"PACKED": packed, "FAST": True, "BLOCK": 4096})


def loop_of(ptx: str) -> str:
    """The text between a label and the last jump back to it."""
    labels = re.findall(r"^(\$L\w+):", ptx, re.MULTILINE)
    bodies = (re.search(rf"^\{label}:(.*)bra\S*\s+\{label};", ptx, re.M | re.S) for label in labels)
    return max((body.group(1) for body in bodies if body), key=len)


def sincos() -> None:
    for dtype in ("fp32", "bf16", "fp64"):
        kinds = {**dict.fromkeys("xby", f"*{dtype}"), "n": "i32"}
        compiled(sincos_kernel, kinds, {"BLOCK": 1024})


def decode() -> None:
    """Loads of pages are 16 bytes wide, and the largest tile fits."""
    kernel = split_kv.split_kernel
    pointers = {**dict.fromkeys(("q", "k", "v"), "*bf16"), "table": "*i32"}
    pointers |= {"out": "*fp32", "norms": "*fp32", "o": "*bf16", "arrived": "*i32"}
    names = [n for n in kernel.arg_names if not n.isupper()]
    kinds = {n: pointers.get(n, "fp32" if n == "factor" else "i32") for n in names}
    for d, page, tile in ((128, 16, split_kv.TILES[5]), (256, 0, split_kv.TILES[0])):
        constants = {"D": d, "PAGE": page, "ROWS": 16, "BN": tile["BN"], "R": 4, "STEP": 8}
        constants |= {"ALONE": False, "PRECISION": "tf32", "JOINED": tile["JOINED"]}
        constants["OVERLAP"] = not tile["JOINED"]
        options = {name: tile[name] for name in ("num_warps", "num_stages")}
        made = compiled(kernel, kinds, constants, (*pointers, "kv", "chunk"), **options)
        assert made.metadata.shared <= SHARED_BYTES, (d, tile)
        assert "cp.async.cg.shared.global" in made.asm["ptx"]
        assert bool(tile["JOINED"]) == ("atom.global.gpu.acq_rel.add" in made.asm["ptx"])
        assert constants["OVERLAP"] == ("griddepcontrol.launch_dependents" in made.asm["ptx"])
    pointers = {"parts": "*fp32", "norms": "*fp32", "o": "*bf16", "rows": "i32", "splits": "i32"}
    constants = {"D": 128, "SPLITS": 32, "STEP": 32, "OVERLAP": True}
    made = compiled(split_kv.combine_kernel, pointers, constants, launch_pdl=True)
    waits, loads = (made.asm["ptx"].find(part) for part in ("griddepcontrol.wait", "ld.global"))
    assert 0 < waits < loads
    tensors = dict.fromkeys(("k", "v", "new_k", "new_v"), "*bf16") | {"places": "*i32"}
    tensors |= dict.fromkeys(("n", "tokens", "kv_heads", "size"), "i32")
    compiled(append_kernel, tensors, {"D": 128, "PAGED": True, "BLOCK": 1024})


def mlp() -> None:
    for kernel in (gates.activate_kernel, gates.gradient_kernel):
        tensors = dict.fromkeys((n for n in kernel.arg_names if n.islower()), "*bf16")
        for gated in (False, True):
            compiled(kernel, {**tensors, "n": "i32"}, {"GATED": gated, "BLOCK": 1024})


LOGITS = dict.fromkeys(("x", "loss", "dy", "dx"), "*bf16") | {"targets": "*i64", "lse": "*fp32"}


def cross_entropy() -> None:
    """Whole vectors are loaded and stored, whether or not the vocabulary is a multiple of them."""
    for kernel, ahead in itertools.product((losses_kernel, gradient_kernel), (1, 3)):
        constants = {"VECTORS": 256, "WIDTH": 8, "ALIGN": 64, "AHEAD": ahead}
        names = [name for name in kernel.arg_names if name not in constants]
        kinds = {name: LOGITS.get(name, "i32") for name in names}
        for aligned in ([*LOGITS], [*LOGITS, "v"]):
            given = [name for name in aligned if name in names]
            loop = loop_of(compiled(kernel, kinds, constants, given, num_warps=8).asm["ptx"])
            load = "ld.global.v4.b32" if ahead == 1 else "cp.async.cg.shared.global"
            assert load in loop, (kernel, aligned, ahead)
            assert ("st.global.v4.b32" in loop) == (kernel is gradient_kernel), (aligned, ahead)


def linear_cross_entropy() -> None:
    """Tiles are loaded by TMA during products, those of the next tile before the epilogue."""
    pointers = dict.fromkeys(("most", "total", "hit"), "*fp32") | {"slopes": "*bf16"}
    for tile in ({**dict(zip(fused.KEYS, tile, strict=True))} for tile in fused.TMA_TILES):
        constants = {name: tile[name] for name in ("BM", "BV", "BK", "GROUP", "TMA")}
        constants |= {"FACTOR": tl.bfloat16}
        moved = {"x": f"tensordesc<bf16[{tile['BM']},{tile['BK']}]>"}
        moved |= {"weight": f"tensordesc<bf16[{tile['BV']},{tile['BK']}]>"}
        options = {"num_warps": tile["warps"], "num_stages": tile["stages"]}
        for kernel in (fused.slab_kernel, fused.slopes_kernel):
            names = [name for name in kernel.arg_names if name not in constants]
            kinds = {n: ({**LOGITS, **pointers, **moved}).get(n, "i32") for n in names}
            divisible = [n for n in names if kinds[n][0] == "*" or n in ("k", "stride", "v")]
            made = compiled(kernel, kinds, constants, divisible, **options)
            assert made.metadata.shared * max(1, tile["PROGRAMS"]) <= SHARED_BYTES, (kernel, tile)
            assert "wgmma.mma_async" in made.asm["ptx"], kernel
            assert "cp.async.bulk.tensor" in made.asm["ptx"], kernel
    kinds = {n: ({**LOGITS, **pointers}).get(n, "i32") for n in fused.merge_kernel.arg_names[:9]}
    compiled(fused.merge_kernel, kinds, {"ROWS": fused.MERGED, "SLABS": fused.SLABS})


ROW_KINDS = {
    **dict.fromkeys(("mean", "rstd", "means", "sums"), "*fp32"),
    **dict.fromkeys(("m", "n", "stride", "count"), "i32"),
    "eps": "fp32",
}


def rows_kernel(
    kernel: Any, warps: int, *aligned: str, registers: int = 0, **constants: Any
) -> Any:
    """Compile a kernel of rows in bf16, whose tensors and *aligned* arguments are multiples of 16.

    Its flags are set, but for what *constants* says.
    """
    flags = dict.fromkeys(("CENTRED", "ADDED", "KEPT", "FULL", "HELD", "OVERLAP"), True)
    given = {n: value for n, value in {**flags, **constants}.items() if n in kernel.arg_names}
    kinds = {n: ROW_KINDS.get(n, "*bf16") for n in kernel.arg_names if n not in given}
    divisible = [n for n, kind in kinds.items() if kind[0] == "*" or n in aligned]
    bound = {"maxnreg": registers} if registers else {}
    return compiled(kernel, kinds, given, divisible, num_warps=warps, **bound)


def rows_in_registers() -> None:
    """Rows that fill an SM: loaded ahead by asynchronous copies, and converted again."""
    ahead = rows.tiling_of(1, 16, 64, 2, 2, 1, 0)
    deep = norms.backward_tiling(1, 16, 2, 1, 1, 1, 0)
    split = norms.backward_tiling(4, 8, 3, 2, 0, 1, 1)
    for kernel, tiling in (
        *((norms.norm_kernel, ahead), (softmax.softmax_fused_kernel, ahead)),
        *((softmax.softmax_backward_kernel, ahead), (norms.norm_backward_kernel, deep)),
        (norms.norm_backward_kernel, split),
    ):
        columns = tiling.get("split", 0)
        constants = {name.upper(): value for name, value in tiling.items()}
        constants |= {"GIVEN": bool(columns), "BLOCK": norms.SPLIT if columns else 16384}
        bound = tiling.get("registers", 0)
        made = rows_kernel(kernel, tiling["warps"], "n", "stride", registers=bound, **constants)
        assert "cp.async.cg.shared.global" in made.asm["ptx"], kernel
        unpacks = kernel is norms.norm_backward_kernel  # by assembly, again or not
        assembly = re.search(r"begin inline asm\s+(xor|shl).b32", made.asm["ptx"])
        assert (assembly and assembly[1]) == ("shl" if unpacks else "xor"), kernel
        assert made.metadata.shared * tiling["per_sm"] <= SHARED_BYTES, (kernel, tiling)


def rows_in_pieces() -> None:
    """Pieces are kept in the L1 but in the last reading, after which they need not stay."""
    for kernel in (
        norms.norm_pieces_kernel,
        softmax.softmax_pieces_kernel,
        softmax.softmax_backward_pieces_kernel,
    ):
        made = rows_kernel(kernel, 32, "stride", PIECES=2, BLOCK=8192)
        for policy in ("evict_last", "evict_first"):
            assert re.search(rf"ld.global.L1::{policy}\S*.v4.b32", made.asm["ptx"]), kernel


def other_kernels_of_rows() -> None:
    """Also rows of one element, where there are no pairs to unpack."""
    rows_kernel(norms.norm_means_kernel, 16, BLOCK=norms.STREAMED)
    one = {"ROWS": 64, "BLOCK": 1, "STAGES": 3, "AGAIN": 0, "GIVEN": False}
    rows_kernel(norms.norm_backward_kernel, 1, **one)
    for summed, columns, warps in norm_sums.SUMS.values():
        rows_kernel(norm_sums.norm_sums_kernel, warps, COUNT=summed, BLOCK=columns)


CHECKS: tuple[Callable[[], None], ...] = (
    *(flash_forward, flash_backward),
    *(matmul, linear_layer, wide_linear_layer, sincos, decode, mlp),
    *(cross_entropy, linear_cross_entropy),
    *(rows_in_registers, rows_in_pieces, other_kernels_of_rows),
)


def error_of(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    print(json.dumps({check.__name__: error_of(check) for check in CHECKS}))
