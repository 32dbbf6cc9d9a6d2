"""A data-parallel training step of GPT-2 small on each GPU of a launch, to be profiled.

    torchrun --nproc-per-node 2 -m gpuperf profile docs/examples/gpt2_ddp.py
    torchrun --nproc-per-node 2 -m gpuperf profile docs/examples/gpt2_ddp.py --overlap off

DDP reduces the gradients in buckets of 25 MiB, each as soon as it is full, while the backward pass
computes the next ones. With `--overlap off` one bucket holds all gradients, so that its all-reduce
begins when the backward pass has ended. The second profile predicts what overlap gains at most,
and the first one shows what it does gain: the gradient of the embedding is complete last.
"""

import argparse
import os

import gpt2
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import gpuperf

BUCKET_MB = {"on": None, "off": 4096}  # torch's default; more than all gradients


def arguments() -> argparse.Namespace:
    """The options of gpt2.py, and whether communication overlaps the backward pass."""
    parser = gpt2.parser()
    parser.add_argument("--overlap", choices=("on", "off"), default="on")
    return parser.parse_args()


def train(options: argparse.Namespace, device: torch.device) -> float:
    """Train on random tokens, other ones on each rank; return the last loss."""
    torch.manual_seed(0)
    model = DistributedDataParallel(
        gpt2.GPT2(options).to(device),
        bucket_cap_mb=BUCKET_MB[options.overlap],
        gradient_as_bucket_view=True,
    )
    forward = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(1 + dist.get_rank())
    shape = (options.batch, options.length)
    tokens = torch.randint(options.vocabulary, shape, device=device)
    targets = torch.randint(options.vocabulary, shape, device=device)
    for _ in range(options.steps):
        with torch.autocast(device.type, torch.bfloat16):
            logits = forward(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
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
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
