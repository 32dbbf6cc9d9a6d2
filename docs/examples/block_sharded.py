"""Training steps of transformer blocks over several GPUs: FSDP2, or tensor parallel.

    torchrun --nproc-per-node 4 -m gpuperf profile docs/examples/block_sharded.py --parallel fsdp
    torchrun --nproc-per-node 4 -m gpuperf profile docs/examples/block_sharded.py --parallel tensor

The blocks have the sizes of Llama 3 8B by default. Fully sharded, each rank has its own tokens and
gathers the weights of a block before it uses them, and reduces and scatters their gradients. Tensor
parallel, all ranks have the same tokens and a part of each matrix: two all-reduces of the residual
stream a block in each direction.
"""

from __future__ import annotations

import argparse
import gc
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

import gpuperf


def arguments() -> argparse.Namespace:
    """How the blocks are split, and their sizes."""
    parser = argparse.ArgumentParser(description="Train transformer blocks on several GPUs.")
    parser.add_argument("--parallel", choices=("fsdp", "tensor"), default="fsdp")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=14336, help="width of the MLP")
    parser.add_argument("--batch", type=int, default=1, help="sequences a rank")
    parser.add_argument("--length", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=40)
    return parser.parse_args()


class Attention(nn.Module):
    """Causal attention, in which some query heads share keys and values."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, self.head = options.width, options.width // options.heads
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        shared = options.kv_heads * self.head
        self.k, self.v = (nn.Linear(width, shared, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (batch, tokens, width)."""
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        projected: torch.Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return projected


class MLP(nn.Module):
    """A gated MLP."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, hidden = options.width, options.hidden
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (batch, tokens, width)."""
        gated: torch.Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return gated


class Block(nn.Module):
    """Attention and MLP, each after a norm and added to the residual stream."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.norm, self.mlp_norm = nn.RMSNorm(options.width), nn.RMSNorm(options.width)
        self.attention, self.mlp = Attention(options), MLP(options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream (batch, tokens, width) after this block."""
        x = x + self.attention(self.norm(x))
        added: torch.Tensor = x + self.mlp(self.mlp_norm(x))
        return added


def split(model: nn.Sequential, parallel: str, mesh: DeviceMesh, dtype: torch.dtype) -> None:
    """Shard the blocks of *model* over *mesh*, fully or along the heads and the hidden width."""
    if parallel == "fsdp":
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        for block in model:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        return
    plan: dict[str, ParallelStyle] = {}
    for name, columns, row in (("attention", "qkv", "o"), ("mlp", ("gate", "up"), "down")):
        # As one input of all columns, so that their gradients are added before they are reduced.
        layouts = {"input_layouts": (Replicate(),), "desired_input_layouts": (Replicate(),)}
        plan |= {name: PrepareModuleInput(**layouts), f"{name}.{row}": RowwiseParallel()}
        plan |= {f"{name}.{column}": ColwiseParallel() for column in columns}
    for block in model.to(dtype):
        parallelize_module(block, mesh, plan)


def train(options: argparse.Namespace, device: torch.device) -> float:
    """Train on random activations; return the last loss."""
    world = dist.get_world_size()
    if options.parallel == "tensor" and options.kv_heads % world:
        raise SystemExit(f"--kv-heads {options.kv_heads} is not a multiple of the {world} ranks")
    mesh = init_device_mesh(device.type, (world,))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    with device:
        model = nn.Sequential(*(Block(options) for _ in range(options.layers)))
    split(model, options.parallel, mesh, dtype)
    # torch updates many tensors at once if all of them are sharded or none is, as those of norms.
    sharded: list[nn.Parameter] = []
    whole: list[nn.Parameter] = []
    for parameter in model.parameters():
        (sharded if isinstance(parameter, DTensor) else whole).append(parameter)
    groups = [{"params": group} for group in (sharded, whole) if group]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, foreach=True)
    torch.manual_seed(1 + (dist.get_rank() if options.parallel == "fsdp" else 0))
    shape = (options.batch, options.length, options.width)
    x, target = (torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
    loss = torch.zeros((), device=device)
    for _ in range(options.steps):
        loss = F.mse_loss(model(x).float(), target.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gpuperf.step()
    return loss.item()


def main() -> None:
    """Train in a process group, which outlives the model."""
    options = arguments()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    loss = train(options, device)
    if dist.get_rank() == 0:
        print(f"loss {loss:.3f}")
    # With gloo one process in ten ended by SIGABRT where its blocks, which are parts of cycles,
    # still held the group, or another rank still communicated.
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
