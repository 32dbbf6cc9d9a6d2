"""Compute bytes, times and intensities of the layers of a model that writes tokens."""

from __future__ import annotations


def linear_seconds(
    tokens: int, k: int, m: int, weight_bits: float, rate: float, bandwidth: float
) -> float:
    """Return the least time of a linear layer of *k* inputs and *m* outputs over *tokens* tokens of
    16 bits, with weights of *weight_bits*: that of its bytes or that of its FLOPs."""
    moved = k * m * weight_bits / 8 + 2 * tokens * (k + m)
    return max(moved / bandwidth, 2 * tokens * k * m / rate)


def quantized_gain(
    tokens: int,
    shape: tuple[int, int],
    weight_bits: float,
    rates: tuple[float, float],
    bandwidth: float,
) -> float:
    """Return the least time with weights of 16 bits over that with *weight_bits*, whose products
    run at the first of *rates*; those of 16 bits run at the second. *shape* is (k, m).

    Between the tokens at which either leaves memory, the gain falls as 1 / tokens: to 1 where the
    products run at one rate, and to the ratio of the rates where they do not.
    """
    usual = linear_seconds(tokens, *shape, 16, rates[1], bandwidth)
    return usual / linear_seconds(tokens, *shape, weight_bits, rates[0], bandwidth)


def packed_bits(bits: int, group: int, scale_bits: int = 16) -> float:
    """Return the bits of a weight with one scale for *group* weights."""
    return bits + scale_bits / group


def pack(low: int, high: int) -> int:
    """Return one byte that holds two integers of 4 bits."""
    return (high & 15) << 4 | (low & 15)


def unpack(byte: int) -> tuple[int, int]:
    """Return the two signed integers of 4 bits in *byte*, as `pack` took them."""
    low, high = byte & 15, byte >> 4
    return (low ^ 8) - 8, (high ^ 8) - 8


def decode_intensity(queries: int, size: int = 2) -> float:
    """Return the FLOP/byte of attention over a cache of keys and values of *size* bytes, each read
    once for *queries*: heads of a group times tokens of a pass."""
    return 2 * queries / size


def causal_pairs(tokens: int, context: float) -> float:
    """Return the pairs of a query and a key of *tokens* new tokens of one sequence, each of which
    attends *context* cached tokens, itself and the new ones before it."""
    return tokens * context + tokens * (tokens + 1) // 2


def decode_attention(
    batch: int,
    context: float,
    heads: int,
    kv_heads: int,
    head_width: int,
    queries: int = 1,
    size: int = 2,
) -> tuple[float, float]:
    """Return the FLOPs and the bytes of one layer's attention of *batch* sequences, which have
    *context* cached tokens in all and *queries* new ones each.

    Each key and value of *size* bytes an element moves once for all heads that share it.
    """
    pairs = queries * context + batch * causal_pairs(queries, 0)
    moved = 2 * kv_heads * head_width * size * (context + batch * queries)
    return 4 * heads * head_width * pairs, moved


def attention_seconds(work: tuple[float, float], rate: float, bandwidth: float) -> float:
    """Return the least time of the FLOPs and bytes *work*. While the heads that share a key are
    fewer than rate / bandwidth, the bytes bind, and more heads of queries cost nothing."""
    flops, moved = work
    return max(flops / rate, moved / bandwidth)


def split_bandwidth(programs: int, draw: float, bandwidth: float) -> float:
    """Return the bandwidth in byte/s of *programs* that read a cache, each on an SM that draws at
    most *draw*: too few programs leave memory idle, whatever its bandwidth is."""
    return min(programs * draw, bandwidth)


def accepted_tokens(rate: float, drafts: int) -> float:
    """Return the tokens of one pass that verifies *drafts* drafts, each accepted with probability
    *rate*: (1 − α^(k+1)) / (1 − α). Source: Leviathan et al., Fast Inference (2022), equation 1."""
    return drafts + 1 if rate == 1 else (1 - rate ** (drafts + 1)) / (1 - rate)


def slots_used(batch: int) -> float:
    """Return the used share of the slots of a batch that waits for its longest completion, for
    exponentially distributed lengths: mean / maximum = 1 / H_B."""
    return 1 / sum(1 / i for i in range(1, batch + 1))


def shared_prefix_bytes(users: int, prefix: int, page: int, token_bytes: float) -> float:
    """Return the bytes that *users* save who share the whole pages of a prefix of *prefix*
    tokens."""
    return (users - 1) * (prefix // page) * page * token_bytes
