"""Reductions and norms of rows: PyTorch's, spelt in several ways, compiled, and in Triton."""

import torch
import triton
import triton.language as tl
from torch.nn import functional as f

DEVICE = "gpu"
VARIANTS = {
    "softmax": ("by_hand", "by_log", "by_rows", "triton_4", "triton_8", "compiled"),
    "log_softmax": ("by_hand", "logsumexp", "triton_4", "triton_8", "compiled"),
    "logsumexp": ("by_hand", "triton_4", "triton_8", "compiled"),
    "sum": ("einsum", "by_parts", "product", "triton_4", "triton_8", "compiled"),
    "mean": ("by_sum", "by_parts", "triton_4", "triton_8", "compiled"),
    "max": ("values", "amax", "triton_4", "triton_8", "compiled"),
    "min": ("values", "by_max", "triton_4", "triton_8", "compiled"),
    "layer_norm": ("by_hand", "var_mean", "native", "triton_4", "triton_8", "compiled"),
    "rms_norm": ("by_hand", "by_norm", "triton_4", "triton_8", "compiled"),
    "l2_norm": ("normalize", "by_sum", "triton_4", "triton_8", "compiled"),
    "l1_norm": ("normalize", "by_norm", "triton_4", "triton_8", "compiled"),
}
SHAPE = (8192, 2048) if torch.cuda.is_available() else (16, 128)
EPS = 1e-5
REFERENCES = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "max": lambda x: x.max(-1).values,
    "min": lambda x: x.min(-1).values,
    "layer_norm": lambda x: f.layer_norm(x, x.shape[-1:], eps=EPS),
    "rms_norm": lambda x: x / torch.sqrt(x.square().mean(-1, keepdim=True) + EPS),
    "l2_norm": lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True),
    "l1_norm": lambda x: x / x.abs().sum(-1, keepdim=True),
}


def norm_by_hand(x):
    off = x - x.mean(-1, keepdim=True)
    return off * torch.rsqrt(off.square().mean(-1, keepdim=True) + EPS)


def norm_var_mean(x):
    var, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(var + EPS)


def softmax_by_hand(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def logsumexp_by_hand(x):
    m = x.amax(-1, keepdim=True)
    return (m + torch.exp(x - m).sum(-1, keepdim=True).log()).squeeze(-1)


SPELT = {
    "softmax": {
        "by_hand": softmax_by_hand,
        "by_log": lambda x: torch.log_softmax(x, -1).exp(),
        "by_rows": lambda x: torch.cat([torch.softmax(part, -1) for part in x.chunk(2)]),
    },
    "log_softmax": {
        "by_hand": lambda x: x - logsumexp_by_hand(x).unsqueeze(-1),
        "logsumexp": lambda x: x - x.logsumexp(-1, keepdim=True),
    },
    "logsumexp": {"by_hand": logsumexp_by_hand},
    "sum": {
        "einsum": lambda x: torch.einsum("ij->i", x),
        "by_parts": lambda x: x.view(x.shape[0], 16, -1).sum(-1).sum(-1),
        "product": lambda x: torch.mv(x, torch.ones(x.shape[1], device=x.device)),
    },
    "mean": {
        "by_sum": lambda x: x.sum(-1) / x.shape[-1],
        "by_parts": lambda x: x.view(x.shape[0], 16, -1).mean(-1).mean(-1),
    },
    "max": {"values": lambda x: torch.max(x, -1)[0], "amax": lambda x: x.amax(-1)},
    "min": {"values": lambda x: torch.min(x, -1)[0], "by_max": lambda x: -(-x).amax(-1)},
    "layer_norm": {
        "by_hand": norm_by_hand,
        "var_mean": norm_var_mean,
        "native": lambda x: torch.native_layer_norm(x, x.shape[-1:], None, None, EPS)[0],
    },
    "rms_norm": {
        "by_hand": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS),
        "by_norm": lambda x: f.rms_norm(x, x.shape[-1:], eps=EPS),
    },
    "l2_norm": {
        "normalize": lambda x: f.normalize(x, dim=-1),
        "by_sum": lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True)),
    },
    "l1_norm": {
        "normalize": lambda x: f.normalize(x, p=1, dim=-1),
        "by_norm": lambda x: x / torch.linalg.vector_norm(x, 1, dim=-1, keepdim=True),
    },
}
REDUCING = ("logsumexp", "sum", "mean", "max", "min")


@triton.jit
def rows(x_at, out_at, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_at + row * n + at)
    if OP == "softmax":
        e = tl.exp(x - tl.max(x, 0))
        tl.store(out_at + row * n + at, e / tl.sum(e, 0))
    elif OP == "log_softmax":
        off = x - tl.max(x, 0)
        tl.store(out_at + row * n + at, off - tl.log(tl.sum(tl.exp(off), 0)))
    elif OP == "logsumexp":
        m = tl.max(x, 0)
        tl.store(out_at + row, m + tl.log(tl.sum(tl.exp(x - m), 0)))
    elif OP == "sum":
        tl.store(out_at + row, tl.sum(x, 0))
    elif OP == "mean":
        tl.store(out_at + row, tl.sum(x, 0) / n)
    elif OP == "max":
        tl.store(out_at + row, tl.max(x, 0))
    elif OP == "min":
        tl.store(out_at + row, tl.min(x, 0))
    elif OP == "layer_norm":
        off = x - tl.sum(x, 0) / n
        tl.store(out_at + row * n + at, off / tl.sqrt(tl.sum(off * off, 0) / n + 1e-5))
    elif OP == "rms_norm":
        tl.store(out_at + row * n + at, x / tl.sqrt(tl.sum(x * x, 0) / n + 1e-5))
    elif OP == "l2_norm":
        tl.store(out_at + row * n + at, x / tl.sqrt(tl.sum(x * x, 0)))
    else:
        tl.store(out_at + row * n + at, x / tl.sum(tl.abs(x), 0))


def in_triton(task, warps):
    def call(x):
        out = x.new_empty(x.shape[0]) if task in REDUCING else torch.empty_like(x)
        rows[(x.shape[0],)](x, out, x.shape[1], task, x.shape[1], num_warps=warps)
        return out

    return call


def model(task, variant):
    function = REFERENCES[task]
    if variant == "compiled":
        function = torch.compile(function, dynamic=False)
    elif variant.startswith("triton_"):
        function = in_triton(task, int(variant.removeprefix("triton_")))
    elif variant != "reference":
        function = SPELT[task][variant]

    class Made(torch.nn.Module):
        def forward(self, x):
            return function(x)

    return Made


def inputs(task):
    return lambda: [torch.randn(*SHAPE)]
