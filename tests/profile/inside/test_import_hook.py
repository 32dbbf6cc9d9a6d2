"""Does a trace alone cost what the program cost that it is of?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from seen import seen
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile

from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.cost import Cost
from gpuperf.profile.cost.accounting import RULES, account
from gpuperf.profile.groups import COMPOSITE
from gpuperf.profile.passes import RegionPasses
from gpuperf.profile.records import region_records
from gpuperf.profile.trace.kineto import read_trace

HOST = Contract("wall", "hot", "sustained", gap_s=0.0, data="own")
torch.manual_seed(0)
ATTENTION = nn.MultiheadAttention(32, 4, batch_first=True)
LAYER = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
RECURRENT = nn.LSTM(16, 32, batch_first=True)
CONVOLUTIONS = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(8, 4, 3)
)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


def by_math() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        q, k, v = x(2, 4, 16, 8), x(2, 4, 16, 8), x(2, 4, 16, 8)
        F.scaled_dot_product_attention(q, k, v).sum().backward()


RUNS: dict[str, Callable[[], object]] = {
    "attention by math": by_math,
    "attention in one kernel": lambda: (
        F.scaled_dot_product_attention(
            x(2, 4, 16, 8), x(2, 4, 16, 8), x(2, 4, 16, 8), is_causal=True
        )
        .sum()
        .backward()
    ),
    "multi-head attention": lambda: ATTENTION(y := x(2, 16, 32), y, y)[0].sum().backward(),
    "a transformer's layer": lambda: LAYER(x(2, 16, 32)).sum().backward(),
    "mean squared error": lambda: F.mse_loss(x(64, 32), x(64, 32)).backward(),
    "other losses": lambda: (
        F.l1_loss(x(8, 8), x(8, 8))
        + F.smooth_l1_loss(x(8, 8), x(8, 8))
        + F.cross_entropy(x(8, 8), torch.arange(8))
        + F.kl_div(x(8, 8), x(8, 8), reduction="sum")
        + F.binary_cross_entropy_with_logits(x(8, 8), torch.rand(8, 8))
    ).backward(),
    "linear": lambda: F.linear(x(4, 8, 16), x(32, 16), x(32)).sum().backward(),
    "matmul of four axes": lambda: (x(2, 3, 8, 16) @ x(2, 3, 16, 8)).sum().backward(),
    "einsum": lambda: torch.einsum("bij,bjk->bik", x(2, 8, 16), x(2, 16, 8)).sum().backward(),
    "convolutions": lambda: CONVOLUTIONS(x(2, 3, 12, 12)).sum().backward(),
    "norms": lambda: (
        (
            F.layer_norm(x(8, 16), (16,), x(16), x(16))
            + F.rms_norm(x(8, 16), (16,), x(16))
            + F.group_norm(x(8, 16), 4)
        )
        .sum()
        .backward()
    ),
    "dropout and softmax": lambda: F.dropout(F.softmax(x(8, 16), -1), 0.5).sum().backward(),
    "recurrent": lambda: RECURRENT(x(2, 8, 16))[0].sum().backward(),
    "embedding": lambda: F.embedding(torch.arange(8), x(16, 8)).sum().backward(),
}


def products(cost: Cost) -> int:
    return sum(flops.count for flops in cost.flops if flops.kind == "matmul")


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_an_imported_trace_costs_what_a_dispatch_mode_sees(
    run: Callable[[], object], tmp_path: Path
) -> None:
    run()
    costs = [account(call).cost for call in seen(run)]
    with profile(record_shapes=True, acc_events=True) as own:
        run()
    own.export_chrome_trace(str(tmp_path / "trace.json"))
    timeline = read_trace(tmp_path / "trace.json")
    told = RegionPasses(
        "r", "whole", "trace.json", HOST, Fingerprint(), (), timeline, ((0, timeline.length + 1),)
    )
    region, *_ = region_records(told)
    assert region.cost is not None
    assert products(region.cost) == sum(map(products, costs))
    # Of a trace results are inferred: the bytes of those that nobody knows are not counted.
    moved = sum(cost.dram_bytes for cost in costs)
    assert 0.65 * moved < region.cost.dram_bytes < 1.1 * moved
    others = sum(cost.flop_count - products(cost) for cost in costs)
    assert region.cost.flop_count - products(region.cost) == others


def test_what_torch_takes_apart_is_known() -> None:
    def composite(name: str) -> bool:
        packet = getattr(torch.ops.aten, name, None)
        found = []
        for overload in packet.overloads() if packet is not None else ():
            schema = getattr(packet, overload)._schema
            if any("Tensor" in str(a.type) and a.name != "out" for a in schema.arguments):
                with suppress(RuntimeError):  # of TorchScript's alone
                    found.append(
                        torch._C._dispatch_has_kernel_for_dispatch_key(
                            getattr(packet, overload).name(), "CompositeImplicitAutograd"
                        )
                    )
        return bool(found) and all(found)

    kinds = {name: kind for name, (kind, _) in RULES.items() if kind != "view"}
    assert {f"aten::{name}" for name in kinds if composite(name)} <= COMPOSITE
