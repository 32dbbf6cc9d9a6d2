"""Compute prefill and decode of a language model on a device, operator by operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuperf.theory.theory import Chip, Parameter, Plot, Theory
from gpuperf.theory.transformer.parts import (
    CHUNKS,
    DECODE,
    GQA,
    MEMORY,
    OPERATORS,
    PREFILL,
    SPECULATION,
    decode_rows,
    passes,
)
from gpuperf.theory.transformer.plots import roofline, throughput
from gpuperf.theory.transformer.setting import PARAMETERS, remarks, setting_of


def _remarks(at: Any, chip: Chip) -> Iterator[str]:
    setting = setting_of(at, chip)
    yield from remarks(setting, chip)
    if 0 < (positions := setting.model.positions) < max(*at.prompt, *at.context):
        yield f"the model has {positions:,} positions: longer prompts and contexts are arithmetic"
    beyond = [op.beyond for _, listed in passes(at, setting) for op in listed if op.beyond]
    if beyond:
        first = "; ".join(dict.fromkeys(beyond[:3]))
        yield f"extrapolated beyond the measured sizes, with the ratio of the nearest: {first}"


def _plot(at: Any, chip: Chip) -> tuple[Plot, ...]:
    setting = setting_of(at, chip)
    return roofline(at, setting), throughput(at, setting)


THEORY = Theory(
    question="How fast can a language model read a prompt and write tokens?",
    parameters=(
        *PARAMETERS,
        Parameter("prompt", "2k,8k", "tokens of a prompt", swept=True, most=2**20),
        Parameter("batch", "1,8,32,64,128,256,512", "sequences", swept=True, most=2**16),
        Parameter("context", "1k,8k", "cached tokens of each", swept=True, least=0, most=2**24),
        Parameter("chunk", "256,512,2k", "tokens of a pass", swept=True, least=16, most=2**20),
        Parameter("running", "32", "sequences beside a chunk", least=0, most=2**16),
        Parameter("drafts", "4", "drafts of a round", swept=True, most=64),
        Parameter("acceptance", "0.7", "of a draft", least=0, most=1, kind="number"),
        Parameter("draft", "", "the model that drafts; without: free", kind="text"),
    ),
    quantities=DECODE,
    rows=decode_rows,
    parts=(PREFILL, MEMORY, OPERATORS, CHUNKS, SPECULATION, GQA),
    plot=_plot,
    remarks=_remarks,
    sources=(
        "sizes: the model's file; Pope et al., Efficiently Scaling Transformer Inference (2022); "
        "Leviathan et al., Fast Inference from Transformers via Speculative Decoding (2022)",
    ),
    notes=(
        "operators run one after another, so each has its own maximum, and the maxima are added",
        "the head keeps 16 bits; activations are fused away or stay in the L2: --elementwise "
        "unfused adds the kernels of norms, sums, RoPE and activations",
        "a token chooses experts with equal probability: E·(1 − (1 − k/E)^tokens) of E are read",
    ),
)
