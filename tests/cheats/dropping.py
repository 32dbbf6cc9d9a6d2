"""Cheats on attention with dropout: each drops nothing, too much, or not at random.

Importing this module adds them to `CHEATS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from cheats import CHEATS, Call, Inputs, cheat
from gpuperf.kernels._modes import by_torch
from gpuperf.kernels.attention import ATTENTION

from gpuperf.model.workload import Point

__all__ = ["CHEATS"]

P = 0.1
SMALL = {"batch": 2, "heads": 4, "gqa": 1, "seq": 64, "kv": 0, "head_dim": 16}
PLAIN = {"causal": "no", "align": "lower-right", "causal_flops": "exact", "dropout": str(P)}
FORWARD = {**SMALL, **PLAIN, "mode": "fwd", "dtype": "fp32"}
BOTH = {**FORWARD, "mode": "fwd+bwd"}
GRADIENTS = {**FORWARD, "mode": "bwd"}

# Of the softmax (b, h, n, n) and the queries: the softmax after dropout.
Drop = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def attention(inputs: Inputs, point: Point, drop: Drop) -> Call:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return drop(torch.softmax(q @ k.mT * point.head_dim**-0.5, -1), q) @ v

    return by_torch(point.mode, attend, inputs, ("q", "k", "v"), "do")  # type: ignore[no-any-return]


def dropping(point: dict[str, Any], reason: str) -> Callable[[Drop], Drop]:
    """Add attention with the decorated dropout to `CHEATS`."""

    def add(drop: Drop) -> Drop:
        def build(inputs: Inputs, point: Point, options: Any) -> Call:
            return attention(inputs, point, drop)

        build.__name__, build.__doc__ = f"{drop.__name__}_{point['mode']}", drop.__doc__
        cheat(ATTENTION, point, reason)(build)
        return drop

    return add


def scaled(p: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    return p * (drawn > P) / (1 - P)


@dropping(FORWARD, "keeps 100 % of all elements")
@dropping(GRADIENTS, "keeps 100 % of all elements")
def drops_nothing(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Dropout skipped."""
    return p


@dropping(FORWARD, "keeps 75 % of all elements")
def drops_a_fixed_pattern(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Every fourth key dropped."""
    return p * (torch.arange(p.shape[-1], device=p.device) % 4 > 0) / (1 - P)


@dropping(FORWARD, "the same elements in two calls")
@dropping(GRADIENTS, "the same elements in two calls")
def drops_the_same_in_each_call(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """A pattern that looks random, from the seed of torch's generator but not from its state."""
    seed = torch.initial_seed() % 2**63
    generator = torch.Generator(p.device).manual_seed(seed)
    return scaled(p, torch.rand(p.shape, device=p.device, generator=generator))


@dropping(FORWARD, "where dropout keeps 90 %")
def drops_whole_keys(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """One random number a key, for all queries and heads."""
    return scaled(p, torch.rand(p.shape[-1], device=p.device))


@dropping(FORWARD, "neighbours on axis 1")
def drops_alike_in_all_heads(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """A quarter of the random numbers."""
    return scaled(p, torch.rand_like(p[:, :1]))


@dropping({**FORWARD, "seq": 256}, "of two rows")
def repeats_the_rows_of_other_heads(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Half of the random numbers, at heads that are no neighbours."""
    half = torch.rand_like(p[:, :2])
    return scaled(p, torch.cat([half, half], 1))


@dropping(FORWARD, "differs from the float64 reference")
def leaves_the_scale_out(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Elements that are kept stay as they are."""
    return p * (torch.rand_like(p) > P)


@dropping(FORWARD, "differs from the float64 reference")
def drops_only_where_it_is_observed(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Drops where all queries are 0, and draws the random numbers everywhere."""
    drawn = torch.rand_like(p)
    return p if q.any() else scaled(p, drawn)


@dropping(BOTH, "differs from the float64 reference")
def drops_in_the_forward_alone(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The gradient is that of attention without dropout."""
    return p + (scaled(p, torch.rand_like(p)) - p).detach()


@cheat(ATTENTION, FORWARD, "equal state of torch's generators")
def draws_from_a_generator_of_its_own(inputs: Inputs, point: Point, options: Any) -> Call:
    """Its elements cannot be observed."""
    own = torch.Generator(inputs["q"].device)

    def drop(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return scaled(p, torch.rand(p.shape, device=p.device, generator=own))

    return attention(inputs, point, drop)


@cheat(ATTENTION, FORWARD, "when timed")
def drops_nothing_after_the_check(inputs: Inputs, point: Point, options: Any) -> Call:
    """Right for the first calls, those of the check."""
    calls: list[None] = []

    def drop(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        return p if len(calls) > 12 else scaled(p, torch.rand_like(p))

    return attention(inputs, point, drop)
