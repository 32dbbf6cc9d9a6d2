"""Losses, scans, pools, convolutions, attention: PyTorch's, spelt in several ways, compiled."""

import torch
from torch.nn import functional as f

DEVICE = "gpu"
VARIANTS = {
    "mse": ("by_hand", "by_norm", "by_rows", "compiled"),
    "smooth_l1": ("by_hand", "huber", "compiled"),
    "hinge": ("by_hand", "relu", "compiled"),
    "cosine": ("by_hand", "normalized", "compiled"),
    "cross_entropy": ("nll", "by_hand", "compiled"),
    "kl": ("by_hand", "log_target", "compiled"),
    "cumsum": ("by_blocks", "out", "compiled"),
    "reversed_cumsum": ("by_blocks", "flipped", "compiled"),
    "max_pool": ("by_unfold", "by_amax", "compiled"),
    "avg_pool": ("by_mean", "by_axes", "compiled"),
    "pointwise_conv": ("einsum", "linear", "compiled"),
    "instance_norm": ("by_hand", "by_group", "compiled"),
    "attention": ("by_hand", "math", "in_parts", "compiled"),
    "sum_of_axis": ("by_einsum", "by_product", "compiled"),
    "masked_sum": ("where", "einsum", "compiled"),
}
BIG = torch.cuda.is_available()
ROWS, WIDTH = (4096, 4096) if BIG else (16, 128)
IMAGES = (16, 32, 256, 256) if BIG else (2, 4, 16, 16)
HEADS = (4, 16, 512, 64) if BIG else (1, 2, 16, 16)


def huber_by_hand(x, y):
    off = (x - y).abs()
    return torch.where(off < 1, 0.5 * off * off, off - 0.5).mean()


def cosine_by_hand(x, y):
    dots = (x * y).sum(-1)
    return dots / (x.square().sum(-1).sqrt() * y.square().sum(-1).sqrt())


def instance_by_hand(x):
    mean = x.mean((2, 3), keepdim=True)
    var = (x - mean).square().mean((2, 3), keepdim=True)
    return (x - mean) * torch.rsqrt(var + 1e-5)


def attention_by_hand(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def attention_in_parts(q, k, v):
    parts = [f.scaled_dot_product_attention(part, k, v) for part in q.chunk(2, 2)]
    return torch.cat(parts, 2)


def attention_math(q, k, v):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return f.scaled_dot_product_attention(q, k, v)


def cumsum_by_blocks(x):
    parts = x.view(x.shape[0], 8, -1).cumsum(-1)
    before = parts[:, :, -1].cumsum(-1) - parts[:, :, -1]
    return (parts + before.unsqueeze(-1)).view(x.shape)


def windows(x):
    n, c, h, w = x.shape
    return x.view(n, c, h // 2, 2, w // 2, 2)


FORMULAS = {
    "mse": {
        "reference": f.mse_loss,
        "by_hand": lambda x, y: (x - y).square().mean(),
        "by_norm": lambda x, y: torch.linalg.vector_norm(x - y).square() / x.numel(),
        "by_rows": lambda x, y: (x - y).square().mean(-1).mean(),
    },
    "smooth_l1": {"reference": f.smooth_l1_loss, "by_hand": huber_by_hand, "huber": f.huber_loss},
    "hinge": {
        "reference": lambda x, y: torch.mean(torch.clamp(1 - x * y, min=0)),
        "by_hand": lambda x, y: torch.where(x * y < 1, 1 - x * y, 0.0).mean(),
        "relu": lambda x, y: torch.relu(1 - x * y).mean(),
    },
    "cosine": {
        "reference": f.cosine_similarity,
        "by_hand": cosine_by_hand,
        "normalized": lambda x, y: (f.normalize(x, dim=-1) * f.normalize(y, dim=-1)).sum(-1),
    },
    "cross_entropy": {
        "reference": lambda x, y: f.cross_entropy(x, torch.softmax(y, -1)),
        "nll": lambda x, y: -(torch.softmax(y, -1) * torch.log_softmax(x, -1)).sum(-1).mean(),
        "by_hand": lambda x, y: (
            (torch.softmax(y, -1) * (x.logsumexp(-1, keepdim=True) - x)).sum(-1).mean()
        ),
    },
    "kl": {
        "reference": lambda x, y: f.kl_div(
            torch.log_softmax(x, -1), torch.softmax(y, -1), reduction="batchmean"
        ),
        "by_hand": lambda x, y: (
            (torch.softmax(y, -1) * (torch.log_softmax(y, -1) - torch.log_softmax(x, -1)))
            .sum(-1)
            .mean()
        ),
        "log_target": lambda x, y: f.kl_div(
            torch.log_softmax(x, -1),
            torch.log_softmax(y, -1),
            reduction="batchmean",
            log_target=True,
        ),
    },
    "cumsum": {
        "reference": lambda x: x.cumsum(-1),
        "by_blocks": cumsum_by_blocks,
        "out": lambda x: torch.cumsum(x, -1, out=torch.empty_like(x)),
    },
    "reversed_cumsum": {
        "reference": lambda x: x.flip(-1).cumsum(-1).flip(-1),
        "by_blocks": lambda x: cumsum_by_blocks(x.flip(-1)).flip(-1),
        "flipped": lambda x: torch.flip(torch.cumsum(torch.flip(x, (-1,)), -1), (-1,)),
    },
    "max_pool": {
        "reference": lambda x: f.max_pool2d(x, 2),
        "by_unfold": lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2)),
        "by_amax": lambda x: windows(x).amax((3, 5)),
    },
    "avg_pool": {
        "reference": lambda x: f.avg_pool2d(x, 2),
        "by_mean": lambda x: windows(x).mean((3, 5)),
        "by_axes": lambda x: windows(x).sum(5).sum(3) / 4,
    },
    "pointwise_conv": {
        "reference": lambda x, w: f.conv2d(x, w),
        "einsum": lambda x, w: torch.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]),
        "linear": lambda x, w: (w[:, :, 0, 0] @ x.flatten(2)).view(
            x.shape[0], -1, x.shape[2], x.shape[3]
        ),
    },
    "instance_norm": {
        "reference": f.instance_norm,
        "by_hand": instance_by_hand,
        "by_group": lambda x: f.group_norm(x, x.shape[1]),
    },
    "attention": {
        "reference": f.scaled_dot_product_attention,
        "by_hand": attention_by_hand,
        "math": attention_math,
        "in_parts": attention_in_parts,
    },
    "sum_of_axis": {
        "reference": lambda x: x.sum(0),
        "by_einsum": lambda x: torch.einsum("ij->j", x),
        "by_product": lambda x: torch.ones(x.shape[0], device=x.device) @ x,
    },
    "masked_sum": {
        "reference": lambda x, m: (x * m).sum(-1),
        "where": lambda x, m: torch.where(m, x, 0.0).sum(-1),
        "einsum": lambda x, m: torch.einsum("ij,ij->i", x, m.float()),
    },
}


def model(task, variant):
    function = FORMULAS[task]["reference" if variant == "compiled" else variant]
    if variant == "compiled":
        function = torch.compile(function, dynamic=False)

    class Made(torch.nn.Module):
        def forward(self, *arguments):
            return function(*arguments)

    return Made


def inputs(task):
    matrix = (ROWS, WIDTH)
    if task == "attention":
        return lambda: [torch.randn(*HEADS) for _ in range(3)]
    if task in ("max_pool", "avg_pool", "instance_norm"):
        return lambda: [torch.randn(*IMAGES)]
    if task == "pointwise_conv":
        return lambda: [torch.randn(*IMAGES), torch.randn(2 * IMAGES[1], IMAGES[1], 1, 1)]
    if task == "masked_sum":
        return lambda: [torch.randn(*matrix), torch.rand(*matrix) < 0.5]
    if task in ("cumsum", "reversed_cumsum", "sum_of_axis"):
        return lambda: [torch.randn(*matrix)]
    return lambda: [torch.randn(*matrix), torch.randn(*matrix)]
