"""Does the example of sharded blocks communicate and compute as its docstring says?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuperf.profile.breakdown import profiles
from gpuperf.run.store import read_run

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "block_sharded.py"
LAYERS, RANKS = 2, 2
SIZES = "--width 32 --heads 4 --kv-heads 2 --hidden 64 --length 16 --steps 20"
# Of the products of a step with 16 tokens: forward, and two of each backward.
FLOPS = 3 * LAYERS * 2 * 16 * 32 * (32 + 2 * 16 + 32 + 3 * 64)


@pytest.mark.parametrize(
    ("way", "calls", "share"),
    [
        # The weights of each block are gathered for the forward and again for the backward pass.
        ("fsdp", {"all_gather": 2 * LAYERS, "reduce_scatter": LAYERS}, 1),
        ("tensor", {"all_reduce": 4 * LAYERS}, RANKS),
    ],
)
def test_collectives_and_products_of_a_step(
    tmp_path: Path, way: str, calls: Mapping[str, int], share: int
) -> None:
    words = ["-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "-m", "gpuperf", "profile"]
    options = ["--steps", "3", "--warmup", "2", "--budget", "5", "--out", str(tmp_path)]
    program = [str(EXAMPLE), "--parallel", way, "--layers", str(LAYERS), *SIZES.split()]
    ended = subprocess.run(
        [sys.executable, *words, *options, *program],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    (path,) = tmp_path.glob("*.jsonl")
    profile = profiles(read_run(path))[0]
    costs = [row.record.cost for row in profile.operators if row.record.case.op == "aten::mm"]
    assert sum(cost.flop_count for cost in costs if cost) == FLOPS // share
    caveats = {caveat.kind for caveat in profile.region.caveats}
    assert not caveats & {"other-operators", "unknown-operators"}
    together = profile.together
    assert together is not None
    counted: dict[str, int] = {}
    for each in together.collectives:
        name = each.collective.message.name
        counted[name] = counted.get(name, 0) + each.collective.count
    assert counted == calls
