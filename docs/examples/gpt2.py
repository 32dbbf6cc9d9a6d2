"""A training step of GPT-2 small on random tokens, to be profiled.

    gpuperf profile docs/examples/gpt2.py --attention eager
    gpuperf profile docs/examples/gpt2.py --attention sdpa
    gpuperf profile docs/examples/gpt2.py --attention sdpa --compile

The model of Radford et al. (2019): 12 blocks of 12 heads, 768 wide, 50257 tokens, the head tied to
the embedding. Matmuls run in bf16 under autocast, the parameters and AdamW in fp32.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gpuperf


class Attention(nn.Module):
    """Causal self-attention of x (b, n, width)."""

    def __init__(self, width: int, heads: int, kind: str) -> None:
        super().__init__()
        self.heads, self.kind = heads, kind
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        split = self.qkv(x).view(b, n, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        if self.kind == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
            later = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, n, width))


class Block(nn.Module):
    """Attention and an MLP of four times the width, each behind a layer norm."""

    def __init__(self, width: int, heads: int, kind: str) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, kind)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Logits (b, n, vocabulary) of tokens (b, n)."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.tokens = nn.Embedding(options.vocabulary, width)
        self.places = nn.Embedding(options.length, width)
        self.blocks = nn.ModuleList(
            Block(width, options.heads, options.attention) for _ in range(options.blocks)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, options.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def parser() -> argparse.ArgumentParser:
    """The sizes are those of GPT-2 small."""
    options = argparse.ArgumentParser()
    options.add_argument("--attention", choices=("eager", "sdpa"), default="sdpa")
    options.add_argument("--compile", action="store_true")
    options.add_argument("--batch", type=int, default=16)
    options.add_argument("--length", type=int, default=1024)
    options.add_argument("--blocks", type=int, default=12)
    options.add_argument("--heads", type=int, default=12)
    options.add_argument("--width", type=int, default=768)
    options.add_argument("--vocabulary", type=int, default=50257)
    options.add_argument("--steps", type=int, default=60)
    return options


def main() -> None:
    """Train on random tokens."""
    options = parser().parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = GPT2(options).to(device)
    forward = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    shape = (options.batch, options.length)
    tokens = torch.randint(options.vocabulary, shape, device=device)
    targets = torch.randint(options.vocabulary, shape, device=device)
    for _ in range(options.steps):
        with torch.autocast(device, torch.bfloat16):
            logits = forward(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gpuperf.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
