"""Compute the time of collectives over links, and from how many tokens on training hides them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gpuperf.theory.links import all_reduce_bytes, collectives, gather_bytes
from gpuperf.theory.theory import Chip, Curve, Parameter, Part, Plot, Quantity, Theory, Value, ratio
from gpuperf.theory.transformer.find import find_model

USABLE = 20.6 / 25  # of an NVLink 4 by NCCL's own table, in which a link carries 20.6 GB/s
SIXTEEN = 2  # bytes of a parameter, of its gradient and of an activation
SIZES = tuple(2**k for k in range(10, 34))


def seconds(at: Any, steps: int, sent: float, link: float | None) -> float | None:
    """Return α + steps · hop + bytes / link; None without a link."""
    moved = ratio(sent, link)
    return None if moved is None else (at.base_us + steps * at.hop_us) * 1e-6 + moved


def link_of(at: Any, chip: Chip, ranks: int) -> float | None:
    """Return the usable byte/s of one direction between neighbours of a ring. Rings leave a host by
    all of its NICs, one ring by each."""
    both, network = chip.figure("link_bandwidth"), at.network * 1e9 if ranks > at.host else math.inf
    return None if both is None else min(USABLE * both / 2, network)


def _direct_link(at: Any, chip: Chip, ranks: int) -> float | None:
    """Return the byte/s of a rank that sends to all others at once: what leaves the host goes by
    its share of the host's NICs, and the rest by the links within the host meanwhile."""
    leaving: float = max(0, ranks - at.host) / (ranks - 1)
    within = link_of(at, chip, min(ranks, at.host))
    if within is None or not leaving:
        return within
    share: float = at.network * 1e9 / at.host
    rest: float = within / (1 - leaving) if leaving < 1 else math.inf
    return min(rest, share / leaving)


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    for ranks in at.ranks:
        ring, direct = link_of(at, chip, ranks), _direct_link(at, chip, ranks)
        for size in at.size:
            for name, algorithm, steps, sent, factor in collectives(size, ranks):
                link = direct if algorithm == "direct" else ring
                time = seconds(at, steps, sent, link)
                bus = ratio(factor * size, time)
                yield ranks, size, name, algorithm, steps, sent, time, bus, ratio(bus, link)


def _training_rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    model, rate = find_model(at.model), chip.rate("bf16")
    size, own = SIXTEEN * model.parameters, 2 * model.active  # bytes; FLOPs of a token forward
    for ranks in at.ranks:
        link = link_of(at, chip, ranks)
        for name, sent, flops in (
            ("data parallel: gradients in the backward", all_reduce_bytes(size, ranks), 2),
            ("sharded: parameters twice, gradients", 3 * gather_bytes(size, ranks), 3),
        ):
            time, token_s = ratio(sent, link), ratio(flops * own / at.mfu, rate)
            tokens = ratio(time, token_s)
            yield ranks, name, sent, time, None if tokens is None else math.ceil(tokens), None
        moved = 4 * model.layers * all_reduce_bytes(SIXTEEN * model.width, ranks)
        time, token_s = ratio(moved, link), ratio(3 * own / ranks / at.mfu, rate)
        yield ranks, "tensor parallel: a token", moved, time, None, ratio(time, token_s)


def _plot(at: Any, chip: Chip) -> Plot:
    curves = []
    for ranks in at.ranks:
        link, points = link_of(at, chip, ranks), []
        for size in SIZES:
            ring, *_ = collectives(size, ranks)
            time = seconds(at, ring[2], ring[3], link)
            points += [(size, ring[4] * size / time)] if time else []
        curves.append(Curve(f"{ranks} ranks", points))
    y = "bus rate of a ring all-reduce, a second"
    return Plot("bytes", y, curves, in_bytes=True, of_bytes=True)


TRAINING = Part(
    "training",
    "Communication of a training step, and the tokens a rank that hide it",
    (
        Quantity("ranks", "ranks"),
        Quantity("way", "way"),
        Quantity("sent", "sent", "byte", "2·(n − 1)/n or 3·(n − 1)/n of 2·P; 8·L·(n − 1)/n·2·d"),
        Quantity("seconds", "at least", "s", "sent / link"),
        Quantity("tokens", "hidden from", "tokens", "time / (4·A or 6·A FLOPs / (MFU · peak))"),
        Quantity("of_compute", "of compute", "", "time / (6·A/n FLOPs / (MFU · peak))"),
    ),
    _training_rows,
)
THEORY = Theory(
    question="How long do collectives take, and when does training wait for them?",
    parameters=(
        Parameter("size", "1k,1M,64M,1G", "bytes of the whole array", swept=True, most=2**40),
        Parameter("ranks", "2,8,64,4096", "GPUs", swept=True, least=2, most=2**20),
        Parameter("host", "8", "GPUs of a host", most=1024),
        Parameter("network", "400", "GB/s of all NICs of a host", least=0, kind="number"),
        Parameter("base_us", "6.6", "µs of a collective", least=0, kind="number"),
        Parameter("hop_us", "0.6", "µs of a step", least=0, kind="number"),
        Parameter("model", "llama-3-8b", "a model by name, or a config.json", kind="text"),
        Parameter("mfu", "0.4", "of the peak that training reaches", 0.01, 1, kind="number"),
    ),
    quantities=(
        Quantity("ranks", "ranks"),
        Quantity("size", "size", "byte"),
        Quantity("collective", "collective"),
        Quantity("algorithm", "by"),
        Quantity("steps", "steps", "", "ring 2·(n − 1) or n − 1, tree 2·⌈log₂ n⌉"),
        Quantity("sent", "sent", "byte", "by a rank: 2·(n − 1)/n·S, (n − 1)/n·S, S; tree 2·S", 2),
        Quantity("seconds", "time", "s", "base + steps · hop + sent / link"),
        Quantity("busbw", "bus", "byte/s", "S / time · 2·(n − 1)/n, (n − 1)/n or 1"),
        Quantity("of_link", "of link"),
    ),
    rows=_rows,
    plot=_plot,
    parts=(TRAINING,),
    sources=(
        "NCCL 2.30: ring LL 6.6 + 0.6 µs a step on NVLink, 20.6 GB/s of a link's 25; factors of "
        "the bus: nccl-tests; double binary trees: Sanders et al. (2009)",
    ),
    notes=(
        "a link is half of the sheet's figure for both ways, as far as NCCL uses it; beyond "
        "a host it is at most --network, and steps take longer: give --hop_us; what an "
        "all-to-all sends beyond the host has the GPU's share of --network; reduce-scatter is as "
        "all-gather, and reduce as broadcast",
        "a bound: NCCL 2.29 takes 14.3 µs for 1 MiB and 1.70 ms for 512 MiB between two H200, and "
        "reduction in the switch (NVLS) may exceed the bus of a ring",
        "the model has P parameters, of which a token uses A, in L layers of width d",
    ),
)
