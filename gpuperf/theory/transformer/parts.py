"""Make the rows of the tables of `gpuperf theory inference`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpuperf.theory.decoding import attention_seconds, decode_intensity
from gpuperf.theory.theory import Chip, Part, Quantity, Value, ratio
from gpuperf.theory.transformer.operators import Operator, operators, origin_of
from gpuperf.theory.transformer.setting import Setting, setting_of
from gpuperf.theory.transformer.step import (
    kv_bytes_per_token,
    read_bytes,
    tokens_that_fit,
    weight_bytes,
)
from gpuperf.theory.transformer.strategy import chunked_prefill, speculation
from gpuperf.units import itemsize

Row = tuple[Value, ...]
ATTENTION = ("attention", "prompt attention")


def _shares(setting: Setting, listed: tuple[Operator, ...]) -> tuple[float, float, float]:
    """Return the seconds of attention, of all other operators, and of the pass."""
    attention = sum(op.seconds for op in listed if op.name in ATTENTION)
    whole = sum(op.seconds for op in listed) + setting.roofs.fixed_s
    return attention, whole - attention, whole


def decode_rows(at: Any, chip: Chip) -> Iterator[Row]:
    """Yield a row for each batch and context of a decode step."""
    setting = setting_of(at, chip)
    for context in at.context:
        for batch in at.batch:
            listed = operators(setting.steps, batch, batch * context)
            attention, rest, whole = _shares(setting, listed)
            gpus = setting.gpus(batch * (context + 1))
            yield context, batch, rest, attention, whole, batch / whole, gpus, origin_of(listed)


DECODE = (
    Quantity("context", "context", "", "cached tokens of each sequence"),
    Quantity("batch", "batch", "", "sequences"),
    Quantity(
        "linears_s", "linears", "s", "Σ of each: max(2·tokens·weights / FLOP/s, bytes / bandwidth)"
    ),
    Quantity(
        "attention_s",
        "attention",
        "s",
        "max(4·L·H·D·Σ(l + 1) / FLOP/s, KV bytes / bandwidth), added to the linears",
    ),
    Quantity("step_s", "between tokens", "s", "linears + attention + fixed time of a pass"),
    Quantity("tokens_per_s", "token/s", "", "batch / time between tokens"),
    Quantity("gpus", "GPUs", "", "whose 90 % of memory hold weights and cache; times are of one"),
    Quantity("origin", "times of"),
)


def _prefill_rows(at: Any, chip: Chip) -> Iterator[Row]:
    setting = setting_of(at, chip)
    for prompt in at.prompt:
        listed = operators(setting.steps, chunks=((prompt, 0),))
        attention, rest, whole = _shares(setting, listed)
        flops = sum(op.flops for op in listed)
        reached = ratio(flops / whole, setting.roofs.linear_rate)
        yield prompt, rest, attention, whole, attention / whole, flops, reached, origin_of(listed)


PREFILL = Part(
    "prefill",
    "One prompt alone: time to its first token",
    (
        Quantity("prompt", "prompt", "", "tokens"),
        Quantity("linears_s", "linears", "s"),
        Quantity("attention_s", "attention", "s", "causal and fused: 2·L·H·D·T·(T + 1) FLOPs"),
        Quantity("first_token_s", "first token", "s", "linears + attention + fixed, no queue"),
        Quantity("attention_share", "attention share"),
        Quantity("flops", "FLOPs", "FLOP", "2·T·weights of the layers + head of one row + attn."),
        Quantity("mfu", "MFU", "", "FLOPs / time / peak of the linears"),
        Quantity("origin", "times of"),
    ),
    _prefill_rows,
)


def _memory_rows(at: Any, chip: Chip) -> Iterator[Row]:
    setting = setting_of(at, chip)
    model, formats = setting.model, setting.formats
    per_token, read = kv_bytes_per_token(model, formats), read_bytes(model, formats)
    fitting = None
    if setting.capacity is not None:
        fitting = max(0, tokens_that_fit(model, formats, setting.capacity))
    critical = setting.roofs.linear_rate / setting.roofs.bandwidth * formats.weight_bits / 16
    names = model.name, f"{formats.weights}, {formats.kv} cache"
    sizes = model.parameters, model.published and int(model.published), model.active
    held = weight_bytes(model, formats), read, per_token
    yield (*names, *sizes, *held, round(read / per_token), fitting, round(critical))


MEMORY = Part(
    "memory",
    "The model and its memory",
    (
        Quantity("model", "model"),
        Quantity("formats", "formats"),
        Quantity("parameters", "parameters"),
        Quantity("published", "published", "", "parameters as the model's source prints", 2),
        Quantity("active", "multiplied", "", "weights that one token is multiplied by", 1),
        Quantity("weight_bytes", "weights", "byte", "all parameters, in their formats"),
        Quantity("read_bytes", "read a step", "byte", "weights that one token needs"),
        Quantity("kv_bytes_per_token", "KV a token", "byte", "2·L·K·D·bytes of an element"),
        Quantity("kv_equals_weights", "KV = weights", "tokens", "weights read / KV a token", 3),
        Quantity("tokens_that_fit", "fit", "tokens", "(90 % of memory − weights) / KV a token"),
        Quantity("critical_tokens", "T*", "tokens", "FLOP/s / bandwidth · bytes of a weight / 2"),
    ),
    _memory_rows,
)


def passes(at: Any, setting: Setting) -> tuple[tuple[str, tuple[Operator, ...]], ...]:
    """Return the operators of the first prompt's prefill, and of the first and the last batch's
    decode step at the first context."""
    steps, context = setting.steps, at.context[0]
    listed = [(f"prefill {at.prompt[0]:,}", operators(steps, chunks=((at.prompt[0], 0),)))]
    for batch in dict.fromkeys((at.batch[0], at.batch[-1])):
        name = f"decode {batch:,} × {context:,}"
        listed.append((name, operators(steps, batch, batch * context)))
    return tuple(listed)


def _operator_rows(at: Any, chip: Chip) -> Iterator[Row]:
    setting = setting_of(at, chip)
    for name, listed in passes(at, setting):
        _, _, whole = _shares(setting, listed)
        for op in listed:
            bound = op.bound(setting.roofs.bandwidth)
            figures = op.layers, op.flops, op.bytes, op.intensity, bound, op.seconds
            yield name, op.name, *figures, op.seconds / whole, op.origin


OPERATORS = Part(
    "operators",
    "Operators of a pass, all layers together",
    (
        Quantity("pass", "pass"),
        Quantity("operator", "operator"),
        Quantity("layers", "layers", keep=1),
        Quantity("flops", "FLOPs", "FLOP", keep=2),
        Quantity("bytes", "bytes", "byte", "weights, or keys and values; activations stay in L2"),
        Quantity("intensity_flop_per_byte", "intensity", "FLOP/byte", "FLOPs / bytes"),
        Quantity("bound", "bound by"),
        Quantity("seconds", "time", "s"),
        Quantity("share", "share", "", "of the pass"),
        Quantity("origin", "time of"),
    ),
    _operator_rows,
)


def _chunk_rows(at: Any, chip: Chip) -> Iterator[Row]:
    setting = setting_of(at, chip)
    steps, running, context = setting.steps, at.running, at.context[0]
    alone = steps.decode_s(running, running * context)
    for prompt in at.prompt:
        for chunk in dict.fromkeys(min(chunk, prompt) for chunk in at.chunk):
            done = chunked_prefill(steps, prompt, chunk, running, context)
            slower = ratio(done.between_s, alone)
            yield prompt, running, chunk, done.passes, done.first_s, done.between_s, slower


CHUNKS = Part(
    "chunks",
    "Chunked prefill of a prompt beside running sequences",
    (
        Quantity("prompt", "prompt", "", "tokens"),
        Quantity("running", "running", "", "sequences that get a token in each pass"),
        Quantity("chunk", "chunk", "tokens", "of the prompt in a pass"),
        Quantity("passes", "passes"),
        Quantity("first_token_s", "first token", "s", "all passes of the prompt"),
        Quantity("between_s", "between tokens", "s", "the longest pass, for running sequences"),
        Quantity("of_decode", "of decode", "", "over a step without a chunk"),
    ),
    _chunk_rows,
)


def _speculation_rows(at: Any, chip: Chip) -> Iterator[Row]:
    setting = setting_of(at, chip)
    draft = setting_of(at, chip, at.draft).steps if at.draft else None
    context = at.context[0]
    for batch in at.batch:
        for drafts in at.drafts:
            point = batch, context
            done = speculation(setting.steps, draft, point, drafts, at.acceptance)
            yield batch, drafts, done.tokens, done.draft_s, done.verify_s, done.token_s, done.gain


SPECULATION = Part(
    "speculation",
    "Speculation: drafts that the model verifies in one pass",
    (
        Quantity("batch", "batch", "", "sequences"),
        Quantity("drafts", "k", "", "drafts a round"),
        Quantity("tokens", "tokens a round", "", "(1 − α^(k+1)) / (1 − α), α the acceptance"),
        Quantity("draft_s", "drafts", "s", "k steps of the draft model; 0 without one (look-up)"),
        Quantity("verify_s", "verify", "s", "a pass of k + 1 tokens a sequence"),
        Quantity("between_s", "between tokens", "s", "(drafts + verify) / tokens a round"),
        Quantity("gain", "gain", "", "over a step without drafts"),
    ),
    _speculation_rows,
)


def _gqa_rows(at: Any, chip: Chip) -> Iterator[Row]:
    setting = setting_of(at, chip)
    batch, context = at.batch[-1], at.context[0]
    own, size = setting.model, itemsize(setting.formats.kv)
    for kv_heads in _divisors(own.heads):
        steps = replace(setting.steps, model=replace(own, kv_heads=kv_heads))
        work = steps.decode_attention(batch, batch * context)
        spent = attention_seconds(work, steps.roofs.rate, steps.roofs.bandwidth)
        note = "this model" if kv_heads == own.kv_heads else ""
        intensity = decode_intensity(steps.model.group, size)
        yield kv_heads, steps.model.group, steps.kv_bytes, intensity, batch, spent, note


def _divisors(heads: int) -> list[int]:
    return [k for k in range(1, heads + 1) if heads % k == 0]


GQA = Part(
    "gqa",
    "Heads of keys and values: cache and decode attention by the roofs",
    (
        Quantity("kv_heads", "KV heads"),
        Quantity("group", "G", "", "heads of queries that share one"),
        Quantity("kv_bytes_per_token", "KV a token", "byte"),
        Quantity("intensity_flop_per_byte", "intensity", "FLOP/byte", "2·G / bytes of an element"),
        Quantity("batch", "batch"),
        Quantity("attention_s", "attention", "s"),
        Quantity("note", ""),
    ),
    _gqa_rows,
)
