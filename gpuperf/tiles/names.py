"""Parse the tile of a matmul kernel from its name, and recognise products and attention.

Names are not a stable interface: each family has a grammar here that must match the whole name, and
a name that matches none has no known tile. The tests have examples of each.

- nvjet (cuBLASLt): `nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT`: types of inputs, accumulator
  and output, tile, K-tile × stages, cluster, flags, layout. (TM + TN)·TK·bytes·stages fits shared
  memory for all observed names, except if two CTAs share a tile (`2cta`).
- xmma: `sm90_xmma_gemm_…_tn_n_tilesize128x256x32_…`: layout, tile with K-tile, stages.
- cuBLAS: `ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_tn`.
- CUTLASS 2: `cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_nn_align8`, in a template.
- CUTLASS 3: `cutlass3x_sm100_simt_sgemm_f32_…_128x64x16_1x1x1_3_tnn_align1`.
- Tensile (rocBLAS, hipBLASLt): `Cijk_Ailk_Bjlk_BBS_BH_…_MT64x16x64_MI16x16x1_SN_…`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gpuperf.model.record import Record

Family = Literal["nvjet", "xmma", "cublas", "cutlass2", "cutlass3", "tensile"]


@dataclass(frozen=True)
class NamedTile:
    """The tile and other properties in the name of a kernel.

    `rows` × `columns` are in the kernel's own orientation, which is column-major for BLAS: it
    computes torch's row-major C = A·B as Cᵀ = Bᵀ·Aᵀ. `k`, `stages` and `align` are 0 if the name
    does not have them; `align` is the alignment that its loads need, in elements (1: the slow
    path). `splits`: several programs share the sum of a tile, so tiles do not determine the time.
    `streams`: each program takes an equal share of all K-tiles (stream-K). `paired`: two CTAs share
    a tile. `persistent`: a program computes one tile after the other.
    """

    family: Family
    rows: int
    columns: int
    k: int = 0
    stages: int = 0
    cluster: tuple[int, int] = (1, 1)
    align: int = 0
    layout: str = ""
    splits: bool = False
    streams: bool = False
    paired: bool = False
    persistent: bool = False


_NVJET = re.compile(
    r"nvjet(?:_sm\d+)?_(?P<types>[a-z]{3,6})_(?P<rows>\d+)x(?P<columns>\d+)_"
    r"(?P<k>\d+)x(?P<stages>\d+)_(?P<cx>\d+)x(?P<cy>\d+)(?P<flags>(?:_[A-Za-z0-9]+)*)"
)
_NVJET_MMA = re.compile(
    r"nvjet_sm\d+_(?P<types>[a-z]{3,6})_mma_(?P<rows>\d+)x(?P<columns>\d+)x(?P<k>\d+)_"
    r"(?P<stages>\d+)_\d+x\d+x\d+(?P<flags>(?:_[A-Za-z0-9]+)*)"
)
_XMMA = re.compile(
    r"sm\d+_xmma_(?:sparse_)?gemm_\w*?_(?P<layout>[ntc]{2}_[ntc])_"
    r"tilesize(?P<rows>\d+)x(?P<columns>\d+)x(?P<k>\d+)(?:_stage(?P<stages>\d+))?(?P<flags>_\w*)"
)
_CUBLAS = re.compile(
    r"(?:volta|turing|ampere|hopper)_\w*gemm\w*?_(?P<rows>\d+)x(?P<columns>\d+)(?P<flags>(?:_\w+)?)"
)
_CUTLASS_2 = re.compile(
    r"cutlass_\d+_\w*gemm\w*?_(?P<rows>\d+)x(?P<columns>\d+)(?:_(?P<k>\d+)x(?P<stages>\d+))?_"
    r"(?P<layout>[ntc]{2})_align(?P<align>\d+)"
)
_CUTLASS_3 = re.compile(
    r"cutlass3x_sm\d+_\w*gemm\w*?_(?P<rows>\d+)x(?P<columns>\d+)x(?P<k>\d+)_"
    r"(?P<cx>\d+)x(?P<cy>\d+)x\d+_(?P<stages>\d+)_(?P<layout>[ntc]{3})_align(?P<align>\d+)"
)
_TENSILE = re.compile(r"Cijk_\w*?_MT(?P<rows>\d+)x(?P<columns>\d+)x(?P<k>\d+)(?P<flags>_\w+)?")

_GRAMMARS: tuple[tuple[Family, re.Pattern[str]], ...] = (
    ("nvjet", _NVJET),
    ("nvjet", _NVJET_MMA),
    ("xmma", _XMMA),
    ("cutlass3", _CUTLASS_3),
    ("cutlass2", _CUTLASS_2),
    ("cublas", _CUBLAS),
    ("tensile", _TENSILE),
)
MOST = 2**16  # rows or columns of a tile, or CTAs of a cluster
LONGEST = 400  # characters of a name, as some grammars take time by the square of its length
_TEMPLATE = re.compile(r"void cutlass::(?:Kernel2?|device_kernel)<(?P<name>\w+)>\(.*\)")
# The kernel that adds up the partial sums of a tile.
_REDUCTION = re.compile(r"split_?k_?reduce", re.IGNORECASE)
# xmma splits K in segments that do not end where K-tiles end.
_SPLITS = re.compile(r"split_?k|segment_k_on|_GSU(?!1(?:_|$))\d", re.IGNORECASE)
_STREAMS = re.compile(r"stream_?k|_SK[1-9]", re.IGNORECASE)
# A kernel of Inductor lists the operators that it fuses: pointwise (`poi`), of a reduction (`red`,
# `per`), or of a template (`tem`), which alone computes a product or attention.
_INDUCTOR = re.compile(r"triton_(?P<form>[a-z]+)_fused_(?P<operators>\w+)")
_MATRIX_OPERATOR = re.compile(r"(?:^|_)(?:addmm|bmm|baddbmm|mm)(?:_|$)")
# cuDNN, FlashAttention 2 and 3, memory-efficient attention, and kernels named after attention.
_ATTENTION = re.compile(r"sdpa|fmha|attention|attn|flash_(?:fwd|bwd)", re.IGNORECASE)
_PRODUCT = re.compile(r"nvjet_|gemm|gemv|Cijk_", re.IGNORECASE)


@lru_cache(4096)
def parse_name(name: str) -> NamedTile | None:
    """Return the tile in *name*, or None if no grammar matches the whole name."""
    if len(name) > LONGEST:
        return None
    template = _TEMPLATE.fullmatch(name)
    plain = template["name"] if template else name
    for family, grammar in _GRAMMARS:
        if match := grammar.fullmatch(plain):
            tile = _read(family, match)
            sizes = (tile.rows, tile.columns, *tile.cluster)
            return tile if all(0 < size <= MOST for size in sizes) else None
    return None


def reduces_splits(name: str) -> bool:
    """Whether the kernel *name* adds up the partial sums of tiles."""
    return bool(_REDUCTION.search(name))


def multiplies(name: str) -> bool:
    """Return whether the kernel *name* computes a matrix product, or adds up parts of one.

    A fused kernel of Inductor names the products of which it reads or rearranges the result, and is
    no product itself. Products within attention count to attention.
    """
    if fused := _INDUCTOR.match(name):
        return fused["form"] == "tem" and bool(_MATRIX_OPERATOR.search(fused["operators"]))
    if attends(name):
        return False
    return bool(parse_name(name) or reduces_splits(name) or _PRODUCT.search(name[:LONGEST]))


def attends(name: str) -> bool:
    """Return whether the kernel *name* computes attention.

    A fused kernel of Inductor names the attention whose operands it prepares, and computes none.
    """
    fused = _INDUCTOR.match(name)
    return bool(_ATTENTION.search(name)) and (fused is None or fused["form"] == "tem")


def fused_operators(name: str) -> str:
    """Return the operators in the name of a pointwise kernel of Inductor, joined by `_`; empty for
    any other kernel."""
    fused = _INDUCTOR.fullmatch(name)
    return fused["operators"] if fused and fused["form"] == "poi" else ""


def _read(family: Family, match: re.Match[str]) -> NamedTile:
    parts = match.groupdict()
    flags = parts.get("flags") or ""
    number = {key: int(parts.get(key) or 0) for key in ("k", "stages", "align")}
    if family == "cublas" and (depth := re.search(r"_(\d+)x(\d+)(?:_|$)", flags)):
        number["k"], number["stages"] = int(depth[1]), int(depth[2])
    layout = parts.get("layout") or ""
    if not layout and (ending := re.search(r"_([NTntc]{2,4})$", flags)):
        layout = ending[1]
    return NamedTile(
        family=family,
        rows=int(parts["rows"]),
        columns=int(parts["columns"]),
        cluster=(int(parts.get("cx") or 1), int(parts.get("cy") or 1)),
        layout=layout,
        splits=bool(_SPLITS.search(match.string)),
        streams=bool(_STREAMS.search(match.string)),
        paired="_2cta" in flags,
        persistent=family == "nvjet" or "_warpgroupsize" in flags,
        **number,
    )


def main_kernel(record: Record) -> str:
    """Return the name of the kernel that does the work: the first matmul, else the first kernel."""
    names = [k.name for k in record.kernels if k.computes]
    return next((name for name in names if parse_name(name)), names[0] if names else "")
