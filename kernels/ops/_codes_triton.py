"""Convert integer codes of weights in registers by Triton, four at a time on NVIDIA GPUs.

With plain conversions, a product with m = 1 and 16384² weights reached 63 % of a copy's rate on an
H200 in int8 and 24 % in int4, where fp8 reached 93 %. Here codes become bits of the mantissa of a
number whose exponent is known: byte b of 2²³ + b, or the four bits n of 1 + n/16. On other devices
than NVIDIA GPUs, and in Triton's interpreter, the conversions are plain.
"""

from __future__ import annotations

import torch

from gpuperf.jit import INTERPRETED, jit, tl

PTX = tl is not None and not INTERPRETED and torch.version.hip is None

# Bytes with the upper bit flipped are from 0 to 255; 2²³ + 128 is subtracted exactly.
BYTES = ".reg .b32 t;\nxor.b32 t, $4, 0x80808080;\n" + "".join(
    f"prmt.b32 ${i}, t, 0x4B000000, 0x765{i};\nadd.f32 ${i}, ${i}, 0fCB000080;\n" for i in range(4)
)
# The low bits n of byte i become 1 + n/256, and its high bits 1 + n/16.
SHIFTS = ("shl.b32 t, w, 15", "shl.b32 t, w, 7", "shr.b32 t, w, 1", "shr.b32 t, w, 9")
HALVES = "".join(
    f"{shift};\nlop3.b32 ${i}, t, 0x00078000, 0x3F800000, 0xEA;\n"
    f"lop3.b32 ${4 + i}, t, 0x00780000, 0x3F800000, 0xEA;\n"
    for i, shift in enumerate(SHIFTS)
)


def _constant(text: str) -> object:
    return tl.constexpr("{\n" + text + "}") if tl else text


def _signed(word: str, select: str, result: str) -> str:
    """Convert two bytes of *word* to bf16.

    Without its upper bit a byte is b in 128 + b. From that 256 is subtracted if the bit is set, and
    128 if not: the bits of -128 and the upper bit are those of the negative of that number.
    """
    return (
        f"prmt.b32 t, {word}, 0x43434343, {select};\nand.b32 more, t, 0xFF7FFF7F;\n"
        "lop3.b32 t, t, 0x00800080, 0xC300C300, 0xEA;\n"
        f"fma.rn.bf16x2 {result}, more, one, t;\n"
    )


def _halves(result: str) -> str:
    """Convert the low four bits n of two bytes to bf16: 136 is subtracted from 128 + n."""
    return (
        f"lop3.b32 {result}, t, 0x000F000F, 0x43004300, 0xEA;\n"
        f"fma.rn.bf16x2 {result}, {result}, one, less;\n"
    )


def _both(select: str, low: str, high: str) -> str:
    """Convert the low and the high four bits of two bytes of the register w."""
    return f"prmt.b32 t, w, 0, {select};\n{_halves(low)}shr.b32 t, t, 4;\n{_halves(high)}"


# Inputs are copied first: they may share a register with an output that is written early.
REGISTERS = ".reg .b32 t, w, more, one, less;\nmov.b32 one, 0x3F803F80;\n"
BIASED = REGISTERS + "mov.b32 less, 0xC308C308;\n"
FLOATS = _constant(BYTES)
FACTORS = _constant(
    REGISTERS + "mov.b32 w, $2;\n" + _signed("w", "0x5140", "$0") + _signed("w", "0x7362", "$1")
)
HALF_FLOATS = _constant(".reg .b32 t, w;\nmov.b32 w, $8;\n" + HALVES)
HALF_FACTORS = _constant(
    BIASED + "mov.b32 w, $4;\n" + _both("0x4140", "$0", "$2") + _both("0x4342", "$1", "$3")
)
# Triton converts an operand of wgmma in registers only by assembly that has one result.
SIGNED_PAIR = _constant(REGISTERS + _signed("$1", "0x5140", "$0"))
LOW_PAIR = _constant(BIASED + "prmt.b32 t, $1, 0, 0x4140;\n" + _halves("$0"))
HIGH_PAIR = _constant(BIASED + "prmt.b32 t, $1, 0, 0x4140;\nshr.b32 t, t, 4;\n" + _halves("$0"))


@jit
def floats(codes, FAST: tl.constexpr):
    """Convert codes to fp32; FAST: int8 codes by PTX."""
    if FAST:
        values = tl.inline_asm_elementwise(
            FLOATS, "=r,=r,=r,=r,r", [codes], dtype=tl.float32, is_pure=True, pack=4
        )
    else:
        values = codes.to(tl.float32)
    return values


@jit
def factors(codes, FACTOR: tl.constexpr, FAST: tl.constexpr):
    """Convert codes to the dtype FACTOR; FAST: int8 codes to bf16 by PTX."""
    if FAST:
        values = tl.inline_asm_elementwise(
            FACTORS, "=r,=r,r", [codes], dtype=tl.bfloat16, is_pure=True, pack=4
        )
    else:
        values = codes.to(FACTOR)
    return values


@jit
def half_factors(codes, FACTOR: tl.constexpr, FAST: tl.constexpr):
    """Convert the low and the high four bits of bytes, less 8, to FACTOR; FAST: bf16 by PTX."""
    if FAST:
        low, high = tl.inline_asm_elementwise(
            HALF_FACTORS,
            "=r,=r,=r,=r,r",
            [codes],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=4,
        )
    else:
        low = ((codes & 15) - 8).to(FACTOR)
        high = (((codes >> 4) & 15) - 8).to(FACTOR)
    return low, high


@jit
def operand(codes, FACTOR: tl.constexpr, FAST: tl.constexpr):
    """Convert codes to FACTOR in the registers from which tensor cores read them."""
    if FAST:
        values = tl.inline_asm_elementwise(
            SIGNED_PAIR, "=r,r", [codes], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    else:
        values = codes.to(FACTOR)
    return values


@jit
def half_operands(codes, FACTOR: tl.constexpr, FAST: tl.constexpr):
    """Convert halves of bytes like `half_factors`, in the registers from which they are read."""
    if FAST:
        low = tl.inline_asm_elementwise(
            LOW_PAIR, "=r,r", [codes], dtype=tl.bfloat16, is_pure=True, pack=2
        )
        high = tl.inline_asm_elementwise(
            HIGH_PAIR, "=r,r", [codes], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    else:
        low, high = half_factors(codes, FACTOR, False)
    return low, high


@jit
def half_sums(codes, left, right, FAST: tl.constexpr):
    """Sum (low four bits − 8)·left and (high four bits − 8)·right over the last of three axes.

    FAST: by PTX, in numbers with an offset, which suits factors of 16 bits.
    """
    if FAST:
        low, high = tl.inline_asm_elementwise(
            HALF_FLOATS,
            "=r,=r,=r,=r,=r,=r,=r,=r,r",
            [codes],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=4,
        )
        first = 256.0 * tl.sum(low * left, 2) - 264.0 * tl.sum(left, 2)
        second = 16.0 * tl.sum(high * right, 2) - 24.0 * tl.sum(right, 2)
    else:
        first = tl.sum(((codes & 15) - 8).to(tl.float32) * left, 2)
        second = tl.sum((((codes >> 4) & 15) - 8).to(tl.float32) * right, 2)
    return first, second
