"""Real calls of torch: against its own counter, as a trace shows them, and whole models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from seen import ObservedCall, seen
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gpuperf.model.aten import Call, Tensor
from gpuperf.profile.cost.accounting import account

Run = Callable[[], Any]
aten = torch.ops.aten


def some(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def back(run: Callable[[], torch.Tensor]) -> Run:
    """`run()` and the gradients of everything in it."""
    return lambda: run().sum().backward()


def flops(calls: list[Call], kind: str = "matmul") -> int:
    return sum(f.count for c in calls for f in account(c).cost.flops if f.kind == kind)


def both(run: Run) -> tuple[int, int]:
    """FLOPs of matmuls: ours, and those of torch's counter."""
    with FlopCounterMode(display=False) as counter, ObservedCall() as mode:
        run()
    return flops(mode.calls), counter.get_total_flops()


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float16, device="meta")


Q, K, V = meta(2, 4, 6, 16), meta(2, 4, 7, 16), meta(2, 4, 7, 32)
OUT, LSE, NONE = meta(2, 4, 6, 32), meta(2, 4, 6).float(), torch.empty(0, device="meta")
ALIKE: dict[str, Run] = {
    "mm": lambda: some(2, 3) @ some(3, 5),
    "linear": back(lambda: F.linear(some(2, 7, 3), some(5, 3), some(5))),
    "bmm": back(lambda: some(4, 2, 3) @ some(4, 3, 5)),
    "baddbmm": lambda: torch.baddbmm(some(4, 2, 5), some(4, 2, 3), some(4, 3, 5)),
    "einsum": back(lambda: torch.einsum("bij,bkj->bik", some(4, 2, 3), some(4, 5, 3))),
    "conv1d": back(lambda: F.conv1d(some(2, 8, 9), some(4, 8, 3), padding="same")),
    "conv2d": back(lambda: F.conv2d(some(2, 8, 9, 9), some(4, 8, 3, 3), some(4), 2, 1)),
    "conv3d": back(lambda: F.conv3d(some(1, 2, 7, 7, 7), some(4, 2, 3, 3, 3), dilation=2)),
    "no dx": lambda: F.conv2d(torch.ones(1, 2, 5, 5), some(4, 2, 3, 3)).sum().backward(),
    "transposed": back(lambda: F.conv_transpose2d(some(2, 8, 9, 9), some(8, 3, 3, 3), stride=2)),
    "grouped": lambda: F.conv2d(some(2, 8, 9, 9), some(4, 4, 3, 3), groups=2),
    "efficient": lambda: aten._scaled_dot_product_efficient_attention(Q, K, V, None, True),
    "flash": lambda: aten._scaled_dot_product_flash_attention(Q, K, K),
    "cudnn": lambda: aten._scaled_dot_product_cudnn_attention(Q, K, V, None, True),
    "gqa": lambda: aten._scaled_dot_product_flash_attention(meta(2, 4, 6, 16), K[:, :2], K[:, :2]),
}


@pytest.mark.parametrize("run", ALIKE.values(), ids=ALIKE)
def test_matmuls_are_those_of_torchs_own_counter(run: Run) -> None:
    ours, torchs = both(run)
    assert ours == torchs > 0


def test_torchs_counter_counts_the_scores_that_a_fused_backward_does_again() -> None:
    for name, arguments in {
        "flash": (OUT, Q, K, V, OUT, LSE, NONE, NONE, 6, 7, 0.0, False, NONE, NONE),
        "efficient": (OUT, Q, K, V, None, OUT, LSE, NONE, NONE, 0.0, [True] * 3 + [False]),
        "cudnn": (OUT, Q, K, V, OUT, LSE, NONE, NONE, None, None, None, 6, 7, 0.0, False),
    }.items():
        operator = getattr(aten, f"_scaled_dot_product_{name}_attention_backward")
        with FlopCounterMode(display=False) as counter, ObservedCall() as mode:
            operator(*arguments)
        found = account(mode.calls[0])
        assert found.work.flop_count == counter.get_total_flops()
        assert found.cost.flop_count == 2 * 8 * 42 * (2 * 16 + 2 * 32)


def test_torchs_counter_halves_no_causal_mask() -> None:
    ours, torchs = both(lambda: aten._scaled_dot_product_flash_attention(Q, Q, Q, 0.0, True))
    assert (ours, torchs) == (4 * 8 * 21 * 16, 4 * 8 * 36 * 16)


def test_torchs_counter_counts_the_gradient_of_a_grouped_weight_as_if_it_had_no_groups() -> None:
    ours, torchs = both(back(lambda: F.conv2d(some(2, 8, 9, 9), some(4, 4, 3, 3), groups=2)))
    forward = 2 * 2 * 49 * 4 * 4 * 9
    assert (ours, torchs) == (3 * forward, 4 * forward)


def test_torchs_counter_takes_heads_for_queries_where_heads_come_last() -> None:
    q = meta(2, 6, 4, 16)  # (b, n, h, d)
    for run in (
        lambda: aten._flash_attention_forward(q, q, q, None, None, 6, 6, 0.0, False, False),
        lambda: aten._efficient_attention_forward(
            q, q, q, None, None, None, None, None, 0.0, 0, True
        ),
    ):
        ours, torchs = both(run)
        assert (ours, torchs) == (4 * 2 * 4 * 6 * 6 * 16, 4 * 2 * 6 * 4 * 4 * 16)


def test_torchs_counter_knows_no_attention_of_cpus() -> None:
    ours, torchs = both(lambda: F.scaled_dot_product_attention(*(some(2, 4, 6, 16),) * 3))
    assert ours == 4 * 8 * 36 * 16
    assert torchs in (0, ours)  # 0 up to torch 2.13 at least: pytorch #195460


def test_a_causal_mask_of_cpus_is_aligned_upper_left() -> None:
    q, k, v = some(1, 1, 2, 16), some(1, 1, 3, 16), some(1, 1, 3, 16)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(out[0, 0, 0], v[0, 0, 0])
    calls = seen(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    assert flops(calls) == 4 * 16 * 3


INDEX = torch.tensor([[0, 1], [2, 3]])
FAMILIES: dict[str, Run] = {
    **ALIKE,
    "addmm": lambda: torch.addmm(some(5), some(2, 3), some(3, 5), alpha=2),
    "vectors": lambda: (some(3).dot(some(3)), some(2, 3).mv(some(3)), some(3).outer(some(4))),
    "transposed, padded": lambda: F.conv_transpose2d(
        some(2, 8, 9, 9), some(8, 3, 3, 3), None, 2, 1, output_padding=1, groups=2
    ),
    "attention": back(
        lambda: F.scaled_dot_product_attention(
            some(2, 4, 6, 16), some(2, 2, 7, 16), some(2, 2, 7, 16), is_causal=True, enable_gqa=True
        )
    ),
    "layer norm": back(lambda: F.layer_norm(some(4, 8), (8,), some(8), some(8))),
    "rms norm": back(lambda: torch._fused_rms_norm(some(4, 8), (8,), some(8), 1e-5)[0]),
    "group norm": back(lambda: F.group_norm(some(4, 8, 3), 2, some(8), some(8))),
    "batch norm": back(
        lambda: F.batch_norm(
            some(4, 8, 3), torch.zeros(8), torch.ones(8), some(8), some(8), training=True
        )
    ),
    "batch norm, known": back(
        lambda: F.batch_norm(some(4, 8, 3), torch.zeros(8), torch.ones(8), some(8), some(8))
    ),
    "softmax": back(lambda: F.softmax(some(4, 8), -1)),
    "cross entropy": back(lambda: F.cross_entropy(some(4, 8), torch.arange(4))),
    "losses": back(
        lambda: (
            F.mse_loss(some(4, 8), some(4, 8))
            + F.smooth_l1_loss(some(4), some(4))
            + F.binary_cross_entropy(some(4).sigmoid(), torch.rand(4))
        )
    ),
    "arithmetic": back(lambda: (some(4, 8) * some(8) + 1).div(2).exp().clamp(min=0).pow(2)),
    "activations": back(lambda: F.silu(F.gelu(F.relu(some(4, 8)))).tanh().sigmoid()),
    "numbers": lambda: (
        some(4).bfloat16() * some(4),
        torch.arange(4) * 2.5,
        torch.arange(4) / 2,
        some(4) > 0,
        some(4).isnan(),
        torch.arange(4) + True,
    ),
    "in place": lambda: torch.ones(4, 8).add_(torch.ones(8), alpha=2).mul_(2).relu_().zero_(),
    "select": back(
        lambda: torch.where(some(4, 8) > 0, some(4, 8), 0.0).masked_fill(torch.ones(8) > 0, 0.0)
    ),
    "dropout": back(lambda: F.dropout(some(4, 8), 0.5)),
    "reductions": lambda: [
        some(4, 8).sum(1),
        some(4, 8).mean(),
        some(4, 8).amax(0),
        some(4, 8).max(1),
        some(4, 8).argmax(1),
        some(4, 8).std(),
        torch.var_mean(some(4, 8), 1),
        some(4, 8).norm(),
        some(4, 8).prod(1),
        some(4, 8).cumsum(1),
        some(4, 8).topk(3),
        some(4, 8).sort(1),
        torch.arange(6).sum(),
        (some(4, 8) > 0).any(),
        some(4, 8).logsumexp(1),
    ],
    "pools": back(
        lambda: (
            F.max_pool2d(some(2, 3, 9, 9), 3, 2, 1).sum()
            + F.avg_pool2d(some(2, 3, 9, 9), 2, ceil_mode=True).sum()
            + F.adaptive_avg_pool2d(some(2, 3, 9, 9), 4).sum()
        )
    ),
    "resample": back(lambda: F.interpolate(some(2, 3, 9, 9), size=(7, 7), mode="bilinear")),
    "embedding": back(lambda: F.embedding(INDEX, some(10, 4))),
    "indices": lambda: (
        some(4, 8).gather(1, INDEX),
        some(4, 8).index_select(1, torch.arange(3)),
        torch.zeros(4, 8).scatter_add_(1, INDEX, torch.ones(2, 2)),
        some(4, 8)[INDEX, INDEX],
        torch.zeros(4, 8).index_put((INDEX,), torch.ones(2, 2, 8)),
    ),
    "copies": back(lambda: torch.cat([some(4, 8), some(2, 8)]).t().contiguous().to(torch.bfloat16)),
    "views": back(lambda: some(4, 8).view(32).expand(2, 32)[1].chunk(2)[0].unbind()[1]),
    "fills": lambda: (
        torch.zeros(3, 4),
        torch.full((3,), 2.0),
        torch.arange(0, 1, 0.1),
        torch.rand(3),
        torch.randint(5, (3,)),
        torch.ones_like(some(3)),
    ),
}


@pytest.mark.parametrize("run", FAMILIES.values(), ids=FAMILIES)
def test_a_call_costs_the_same_whether_its_results_were_seen_or_not(run: Run) -> None:
    for call in seen(run):
        assert account(call) == account(replace(call, outputs=())), call
        assert account(call).known, call


def own(name: str, run: Run) -> Call:
    """The one call of the operator *name*, without the results that were seen."""
    (call,) = (one for one in seen(run) if one.name.split(".")[0] == f"aten::{name}")
    return replace(call, outputs=())


def test_a_bag_of_embeddings_adds_up_each_row_that_it_reads() -> None:
    table, indices, offsets = some(10, 4), torch.tensor([1, 2, 2, 7, 0]), torch.tensor([0, 3])
    call = own("_embedding_bag", lambda: F.embedding_bag(indices, table, offsets, mode="sum"))
    found = account(call).cost
    assert found.flop_count == 5 * 4
    assert found.bytes[0].read == 5 * 4 * 4 + (5 + 2) * 8
    assert found.bytes[0].written == 2 * 4 * 4


def test_the_columns_of_an_image_are_inferred_and_added_up_again() -> None:
    x = some(2, 3, 9, 7)
    call = own("im2col", lambda: F.unfold(x, (3, 2), dilation=2, padding=1, stride=(2, 1)))
    places = ((9 + 2 - 2 * 2 - 1) // 2 + 1) * ((7 + 2 - 2 * 1 - 1) // 1 + 1)
    found = account(call).cost
    assert (found.flop_count, found.bytes[0].read) == (0, 2 * 3 * 63 * 4)
    assert found.bytes[0].written == 2 * 3 * 6 * places * 4
    columns = F.unfold(x, (3, 2), dilation=2, padding=1, stride=(2, 1)).detach()
    back = own("col2im", lambda: F.fold(columns, (9, 7), (3, 2), 2, 1, (2, 1)))
    assert account(back).cost.flop_count == columns.numel()


@pytest.mark.parametrize(
    ("form", "forward", "backward"), [("none", (4, 1), (9, 2)), ("tanh", (8, 1), (17, 1))]
)
def test_either_form_of_gelu_has_its_own_flops(
    form: str, forward: tuple[int, int], backward: tuple[int, int]
) -> None:
    x = some(6)
    run = back(lambda: F.gelu(x, approximate=form))
    for name, expected in (("gelu", forward), ("gelu_backward", backward)):
        call = own(name, run)
        assert (flops([call], "elementwise"), flops([call], "special")) == tuple(
            6 * one for one in expected
        )


def test_a_shape_of_more_axes_than_torch_has_is_garbage() -> None:
    few, many = (Tensor((1,) * axes, "bf16", (), 1) for axes in (64, 65))
    for tensor, known in ((few, True), (many, False)):
        call = Call("aten::relu", ((tensor,),), ("",), (tensor,))
        assert account(call).known is known
        assert bool(account(call).cost.bytes) is known


def total(model: nn.Module, step: Run) -> tuple[int, int, int]:
    """Matmul FLOPs, others, and parameters of a step; every operator of torch's must be known."""
    calls = seen(step)
    assert not [c.name for c in calls if not account(c).known]
    others = flops(calls, "elementwise") + flops(calls, "special")
    return flops(calls), others, sum(p.numel() for p in model.parameters())


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


def test_a_residual_network_costs_what_is_counted_by_hand() -> None:
    stem = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model = nn.Sequential(
        stem,
        nn.BatchNorm2d(64),
        nn.ReLU(),
        Block(64),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    image, label = torch.randn(2, 3, 16, 16), torch.tensor([1, 2])
    matmul, others, _ = total(model, lambda: F.cross_entropy(model(image), label).backward())
    places = 2 * 16 * 16
    stem_flops, conv, head = 2 * places * 64 * 27, 2 * places * 64 * 64 * 9, 2 * 2 * 64 * 10
    assert matmul == 2 * stem_flops + 3 * 2 * conv + 3 * head  # of the image is no gradient
    # Three norms of 7 + 13, three activations of 1 + 1, the sum and the sum of its gradients; the
    # pools: every element once forward, an element of the result once backward, and the average.
    size = places * 64
    by_hand = size * (3 * 20 + 3 * 2 + 2) + size + size // 4 * 3
    assert matmul + others == pytest.approx(matmul + by_hand, rel=0.02)
    assert others == pytest.approx(by_hand, rel=0.02)


class Layer(nn.Module):
    """Attention with 4 heads that share 2 of keys, and a gated MLP."""

    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.q, self.o = (nn.Linear(d, d, bias=False) for _ in range(2))
        self.kv = nn.Linear(d, d, bias=False)
        self.gate, self.up = (nn.Linear(d, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, d, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        y = self.norms[0](x)
        q = self.q(y).view(b, n, 4, d // 4).transpose(1, 2)
        k, v = self.kv(y).view(b, n, 2, 2, d // 4).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, n, d))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def test_a_transformer_costs_what_is_counted_by_hand() -> None:
    b, n, d, hidden, words = 2, 32, 64, 128, 96
    model = nn.Sequential(
        nn.Embedding(words, d), Layer(d, hidden), Layer(d, hidden), nn.Linear(d, words, bias=False)
    )
    tokens = torch.randint(words, (b, n))
    matmul, others, _ = total(
        model, lambda: F.cross_entropy(model(tokens).view(-1, words), tokens.view(-1)).backward()
    )
    weights = 2 * (3 * d * d + 3 * d * hidden) + d * words
    attention = 2 * 4 * b * d * (n * (n + 1) // 2)  # 4·b·h·(d/h)·S in each of two layers
    assert matmul == 6 * b * n * weights + 3 * attention
    size, wide = b * n * d, b * n * hidden
    # A layer: two norms of 20, two sums, four sums of gradients (of x twice, of y: 1 and 1);
    # silu 4 + 9, the gate's product 1 + 2. Loss: log softmax 5 + 4; the table's gradient 1.
    by_hand = 2 * (size * (40 + 2 + 4) + wide * (13 + 3)) + b * n * words * 9 + size
    assert others == pytest.approx(by_hand, rel=0.02)
    assert matmul + others == pytest.approx(matmul + by_hand, rel=0.02)


@pytest.mark.parametrize("how", ["fused", "foreach"])
def test_a_step_of_adam_costs_what_is_counted_by_hand(how: str) -> None:
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    adam = torch.optim.Adam(model.parameters(), **{how: True})
    x, target = torch.randn(64, 128), torch.randn(64, 10)

    def step() -> None:
        F.mse_loss(model(x), target).backward()
        adam.step()

    step()
    adam.zero_grad()
    matmul, others, parameters = total(model, step)
    first, second = 2 * 64 * 128 * 256, 2 * 64 * 256 * 10
    assert matmul == 2 * first + 3 * second  # of x is no gradient
    # Biases and the sums of their gradients, relu; the loss 3 + 3; Adam 13 a parameter.
    by_hand = 2 * 64 * 266 + 2 * 64 * 256 + 6 * 640 + 13 * parameters
    assert others == pytest.approx(by_hand, rel=0.02)
    assert matmul + others == pytest.approx(matmul + by_hand, rel=0.02)
