"""Compare the step time that a profile reports with the step of the plain program.

`python docs/measured/programs.py > docs/measured/programs.txt` runs on a GPU with transformers and
torchvision for 5 minutes: each of five programs without marked steps runs plainly, under `gpuperf
profile`, and plainly again. `headline` is the reported step, `outside` its distance from the nearer
plain run, if it is not between them. `programs.py resnet ddp` runs two of the programs;
`programs.py --run NAME ROUNDS` is the plain program, which prints its milliseconds for each round.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

WARM = 20  # rounds before the clock starts
BATCH = 128  # images, which the GPU takes longer for than eight workers
DEVICE = "cuda"
D = 1024  # width of the compiled transformer


class Clock:
    """A clock of the milliseconds of a round, from the end of the warm-up."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def round(self, index: int) -> None:
        """Start the clock at the first round after the warm-up."""
        if index == WARM:
            torch.cuda.synchronize()
            self.began = time.perf_counter()

    def print(self) -> None:
        """Print the mean of the rounds."""
        torch.cuda.synchronize()
        print("STEP_MS", (time.perf_counter() - self.began) / self.rounds * 1e3)


class Images(torch.utils.data.Dataset[Any]):
    """Images of a pool in uint8, which the workers of the loader copy and collate.

    Drawing them, or copying them in fp32, would take the workers longer than the GPU takes for a
    step, and the host's time varies by a quarter from run to run.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.pool = torch.randint(256, (64, 3, 224, 224), dtype=torch.uint8)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.pool[index % len(self.pool)], index % 1000


def resnet(rounds: int) -> None:
    """Train ResNet-50 on batches of a DataLoader with 8 workers."""
    import torchvision

    layout = torch.channels_last
    model = torchvision.models.resnet50(weights=None).to(DEVICE, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, clock = Images(BATCH * (WARM + rounds)), Clock(rounds)
    loader = torch.utils.data.DataLoader(images, BATCH, num_workers=8, pin_memory=True)
    for index, (x, y) in enumerate(loader):
        clock.round(index)
        x = x.to(DEVICE, non_blocking=True).to(torch.bfloat16, memory_format=layout).div_(255)
        y = y.to(DEVICE, non_blocking=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    clock.print()


def llama() -> Any:
    """Return a Llama of 8 layers with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=8,
        max_position_embeddings=2048,
    )
    return LlamaForCausalLM(config).to(DEVICE, torch.bfloat16)


def llama_train(rounds: int) -> None:
    """Train the Llama, and read its loss in each step."""
    model, clock = llama(), Clock(rounds)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    data = torch.randint(0, 32000, (8, 1024))
    for index in range(WARM + rounds):
        clock.round(index)
        ids = data.to(DEVICE)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
    clock.print()


def llama_generate(rounds: int) -> None:
    """Generate four sequences of *rounds* tokens with the Llama, three times after a warm-up."""
    model = llama().eval()
    ids = torch.randint(0, 32000, (4, 64), device=DEVICE)

    def generate() -> None:
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=rounds,
            min_new_tokens=rounds,
            do_sample=False,
            pad_token_id=0,
        )

    generate()
    clock = Clock(3 * rounds)
    clock.round(WARM)
    for _ in range(3):
        generate()
    clock.print()


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, n, 3, 16, 64).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, n, D))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def trained(model: Any, x: torch.Tensor, optimizer: torch.optim.Optimizer, rounds: int) -> None:
    """Train *model* on one batch."""
    clock = Clock(rounds)
    for index in range(WARM + rounds):
        clock.round(index)
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    clock.print()


def compiled(rounds: int) -> None:
    """Train a transformer of 8 blocks under torch.compile."""
    model = nn.Sequential(*(Block() for _ in range(8))).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    x = torch.randn(8, 1024, D, device=DEVICE, dtype=torch.bfloat16)
    trained(torch.compile(model), x, optimizer, rounds)


def ddp(rounds: int) -> None:
    """Train a model in DistributedDataParallel with one process."""
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    layers = [m for _ in range(8) for m in (nn.Linear(4096, 4096), nn.GELU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(DEVICE, torch.bfloat16))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(8192, 4096, device=DEVICE, dtype=torch.bfloat16)
    trained(model, x, optimizer, rounds)
    torch.distributed.destroy_process_group()


PROGRAMS: dict[Callable[[int], None], int] = {  # each with rounds that are enough for all passes
    resnet: 250,
    llama_train: 150,
    llama_generate: 150,
    compiled: 600,
    ddp: 700,
}


def ran(*words: str) -> tuple[str, str, float]:
    """Run a command, and return its stdout, its stderr and its seconds."""
    began = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout, done.stderr, time.perf_counter() - began


def step_ms(text: str) -> float:
    """Return the milliseconds that the plain program printed."""
    return next(float(line.split()[1]) for line in text.splitlines() if "STEP_MS" in line)


def main(names: list[str]) -> None:
    """Print a line for each program: plain steps, headline, differences, extra seconds, caveats."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print(f"{'':15}{'plain ms':>18}{'headline':>10}{'of mean':>9}{'outside':>9}{'longer':>8}")
    for program, rounds in PROGRAMS.items():
        name = program.__name__
        if names and name not in names:
            continue
        script = (str(Path(__file__)), "--run", name, str(rounds))
        before, _, took_s = ran(sys.executable, *script)
        with tempfile.TemporaryDirectory() as out:
            options = ("profile", "--format", "json", "--out", out)
            output, _, whole_s = ran(sys.executable, "-m", "gpuperf", *options, *script)
        after, _, _ = ran(sys.executable, *script)
        plain = step_ms(before), step_ms(after)
        (region,) = json.loads(output)["regions"]
        headline, mean = region["step_s"] * 1e3, sum(plain) / 2
        nearest = min(max(headline, min(plain)), max(plain))
        caveats = ", ".join(caveat["kind"] for caveat in region["caveats"])
        print(
            f"{name:15}{plain[0]:9.3f}{plain[1]:9.3f}{headline:10.3f}{headline / mean - 1:9.2%}"
            f"{headline / nearest - 1:9.2%}{whole_s - took_s:6.1f} s  {caveats}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        next(p for p in PROGRAMS if p.__name__ == sys.argv[2])(int(sys.argv[3]))
    else:
        main(sys.argv[1:])
