"""Elementwise operators: PyTorch's, spelt in several ways, compiled, and in Triton."""

import math

import torch
import triton
import triton.language as tl
from torch.nn import functional as f

DEVICE = "gpu"
VARIANTS = {
    "relu": ("clamp", "maximum", "where", "threshold", "triton_1024", "triton_4096", "compiled"),
    "leaky_relu": ("where", "maximum", "prelu", "triton_1024", "triton_4096", "compiled"),
    "sigmoid": ("by_exp", "by_tanh", "in_place", "triton_1024", "triton_4096", "compiled"),
    "tanh": ("by_sigmoid", "in_place", "triton_1024", "triton_4096", "compiled"),
    "swish": ("silu", "by_exp", "addcmul", "triton_1024", "triton_4096", "compiled"),
    "gelu_tanh": ("by_hand", "by_sigmoid", "triton_1024", "triton_4096", "compiled"),
    "softplus": ("logaddexp", "by_log1p", "triton_1024", "triton_4096", "compiled"),
    "elu": ("where", "by_parts", "triton_1024", "triton_4096", "compiled"),
    "hardsigmoid": ("clamp", "relu6", "triton_1024", "triton_4096", "compiled"),
    "hardtanh": ("clamp", "min_max", "where", "triton_1024", "triton_4096", "compiled"),
    "softsign": ("by_hand", "reciprocal", "triton_1024", "triton_4096", "compiled"),
    "scale": ("mul", "in_place", "addcmul", "triton_1024", "triton_4096", "compiled"),
    "square_plus_one": ("pow", "addcmul", "fma", "triton_1024", "triton_4096", "compiled"),
}
SHAPE = (4096, 4096) if torch.cuda.is_available() else (16, 256)
C = math.sqrt(2 / math.pi)
REFERENCES = {
    "relu": torch.relu,
    "leaky_relu": lambda x: f.leaky_relu(x, 0.01),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "swish": lambda x: x * torch.sigmoid(x),
    "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"),
    "softplus": f.softplus,
    "elu": f.elu,
    "hardsigmoid": f.hardsigmoid,
    "hardtanh": f.hardtanh,
    "softsign": f.softsign,
    "scale": lambda x: x * 3.25,
    "square_plus_one": lambda x: x * x + 1,
}
SPELT = {
    "relu": {
        "clamp": lambda x: x.clamp_min(0),
        "maximum": lambda x: torch.maximum(x, torch.zeros((), device=x.device)),
        "where": lambda x: torch.where(x > 0, x, 0.0),
        "threshold": lambda x: f.threshold(x, 0.0, 0.0),
    },
    "leaky_relu": {
        "where": lambda x: torch.where(x > 0, x, x * 0.01),
        "maximum": lambda x: torch.maximum(x, x * 0.01),
        "prelu": lambda x: torch.prelu(x, torch.full((1,), 0.01, device=x.device)),
    },
    "sigmoid": {
        "by_exp": lambda x: 1 / (1 + torch.exp(-x)),
        "by_tanh": lambda x: torch.special.expit(x),
        "in_place": lambda x: x.clone().sigmoid_(),
    },
    "tanh": {
        "by_sigmoid": lambda x: torch.tanh(x.contiguous()),
        "in_place": lambda x: x.clone().tanh_(),
    },
    "swish": {
        "silu": f.silu,
        "by_exp": lambda x: x / (1 + torch.exp(-x)),
        "addcmul": lambda x: torch.addcmul(torch.zeros_like(x), x, torch.sigmoid(x)),
    },
    "gelu_tanh": {
        "by_hand": lambda x: 0.5 * x * (1 + torch.tanh(C * (x + 0.044715 * x * x * x))),
        "by_sigmoid": lambda x: x * torch.sigmoid(2 * C * (x + 0.044715 * x * x * x)),
    },
    "softplus": {
        "logaddexp": lambda x: torch.logaddexp(x, torch.zeros((), device=x.device)),
        "by_log1p": lambda x: x.clamp_min(0) + torch.log1p(torch.exp(-x.abs())),
    },
    "elu": {
        "where": lambda x: torch.where(x > 0, x, torch.expm1(x)),
        "by_parts": lambda x: x.clamp_min(0) + torch.expm1(x.clamp_max(0)),
    },
    "hardsigmoid": {
        "clamp": lambda x: (x / 6 + 0.5).clamp(0, 1),
        "relu6": lambda x: f.relu6(x + 3) / 6,
    },
    "hardtanh": {
        "clamp": lambda x: x.clamp(-1, 1),
        "min_max": lambda x: x.clamp_min(-1).clamp_max(1),
        "where": lambda x: torch.where(x > 1, 1.0, torch.where(x < -1, -1.0, x)),
    },
    "softsign": {
        "by_hand": lambda x: x / (1 + x.abs()),
        "reciprocal": lambda x: x * (1 + x.abs()).reciprocal(),
    },
    "scale": {
        "mul": lambda x: torch.mul(x, 3.25),
        "in_place": lambda x: x.clone().mul_(3.25),
        "addcmul": lambda x: 3 * x + 0.25 * x,
    },
    "square_plus_one": {
        "pow": lambda x: x.pow(2) + 1,
        "addcmul": lambda x: torch.addcmul(torch.ones((), device=x.device), x, x),
        "fma": lambda x: (x * x).add_(1),
    },
}


@triton.jit
def elementwise(x_at, out_at, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_at + at, at < n)
    if OP == "relu":
        y = tl.maximum(x, 0.0)
    elif OP == "leaky_relu":
        y = tl.where(x > 0, x, x * 0.01)
    elif OP == "sigmoid":
        y = 1 / (1 + tl.exp(-x))
    elif OP == "tanh":
        # Near 0 the quotient would lose its digits.
        e = tl.exp(-2 * tl.abs(x))
        small = x - x * x * x / 3 + 2 * x * x * x * x * x / 15
        large = (1 - e) / (1 + e)
        y = tl.where(tl.abs(x) < 0.05, small, tl.where(x < 0, -large, large))
    elif OP == "swish":
        y = x / (1 + tl.exp(-x))
    elif OP == "gelu_tanh":
        y = x / (1 + tl.exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)))
    elif OP == "softplus":
        y = tl.where(x > 20, x, tl.log(1 + tl.exp(tl.minimum(x, 20.0))))
    elif OP == "elu":
        y = tl.where(x > 0, x, tl.exp(tl.minimum(x, 0.0)) - 1)
    elif OP == "hardsigmoid":
        y = tl.minimum(tl.maximum(x / 6 + 0.5, 0.0), 1.0)
    elif OP == "hardtanh":
        y = tl.minimum(tl.maximum(x, -1.0), 1.0)
    elif OP == "softsign":
        y = x / (1 + tl.abs(x))
    elif OP == "scale":
        y = x * 3.25
    else:
        y = x * x + 1
    tl.store(out_at + at, y, at < n)


def in_triton(task, block):
    def call(x):
        out, n = torch.empty_like(x), x.numel()
        elementwise[(triton.cdiv(n, block),)](x, out, n, task, block)
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
