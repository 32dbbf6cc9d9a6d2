"""Run gpuperf commands in a folder of their own, with a CPU whose peaks are given."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest.mock
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forks
import pytest

from gpuperf import app

COMMAND = [sys.executable, "-P", "-c", "from gpuperf.app import main; main()"]


# Peaks of some CPU, so that no command stops to measure this one's.
PEAKS = """
schema = 1
id = "a-cpu"
name = "A CPU"
vendor = "nobody"
arch = "none"
capability = "none"
names = ["A CPU"]
sm_count = { value = 2, unit = "count", status = "verified", source = "a test" }
pcie = { value = "4.0", status = "uncertain", source = "a test" }

[figures.memory_bandwidth]
value = 20
unit = "GB/s"
status = "verified"
source = "a test"

[[compute]]
pipe = "vector"
dtype = "fp32"
accumulate = "fp32"
value = 0.1
unit = "TFLOP/s"
status = "verified"
source = "a test"
waiver = "a test"
"""


# What a user writes to add a workload: this file, and nothing else.
SAXPY = '''
"""saxpy: y ← a·x + y with x, y (n,).

2·n FLOP; x and y are read, y is written.

- `eager`: two operations, with the product in memory between them.
- `fused`: `torch.add` with its own factor.
"""

from __future__ import annotations

import torch

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.units import itemsize

FACTOR = 2.5


def saxpy_eager(inputs, point, options):
    """The product first, then the sum."""
    x, y = inputs["x"], inputs["y"]
    return lambda: x * FACTOR + y


def saxpy_fused(inputs, point, options):
    """One pass over memory."""
    x, y = inputs["x"], inputs["y"]
    return lambda: torch.add(y, x, alpha=FACTOR)


def reference(inputs, point):
    """The same in float64."""
    return inputs["x"].double() * FACTOR + inputs["y"].double()


def make_inputs(point: Point, make):
    """x and y (n,)."""
    return {"x": make((point.n,), point.dtype), "y": make((point.n,), point.dtype)}


def cost(point: Point) -> Cost:
    """2·n FLOP, 2·n elements read and n written."""
    size = itemsize(point.dtype)
    return Cost(
        (Flops(2 * point.n, "elementwise", point.dtype),),
        (Bytes(read=2 * point.n * size, written=point.n * size),),
    )


def eager_work(point: Point) -> Work:
    """The product is written and read once more."""
    size = itemsize(point.dtype)
    return Work(cost(point).flops, (Bytes(read=3 * point.n * size, written=2 * point.n * size),))


SAXPY = Workload(
    name="saxpy",
    summary="y = a·x + y",
    formula="2·n FLOP; 3·n·s bytes",
    axes=(
        Axis("n", 2**20, "elements", main=True),
        Axis("dtype", "auto", "of x and y", choices=("fp32", "fp64")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("eager", saxpy_eager, "two operations", work=eager_work),
        Implementation("fused", saxpy_fused, "torch.add"),
    ),
)
'''


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class CommandLine:
    """Runs gpuperf in *folder*, with a cache of its own and no GPU in sight."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "GPUPERF_DEBUG")
        }
        return kept | {
            "GPUPERF_CACHE": str(self.folder / "cache"),
            "CUDA_VISIBLE_DEVICES": "",
            "HIP_VISIBLE_DEVICES": "",
            "PYTHONUTF8": "1",
        }

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """The command, running."""
        return forks.Popen(
            [*COMMAND, *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def __call__(self, *words: str, **more: Any) -> Ended:
        """The command, once it has ended."""
        with self.start(*words, **more) as process:
            out, err = process.communicate(timeout=100)
        return Ended(process.returncode, out, err)

    def within(self, *words: str) -> Ended:
        """The command in this process, where the process boundary is not what is tested."""
        bytes_out, err = io.BytesIO(), io.StringIO()
        out = io.TextIOWrapper(bytes_out, "utf-8", write_through=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["gpuperf", *words])
            # A command may set variables, as --threads does: they end with it.
            with (
                unittest.mock.patch.dict(os.environ, self.environment, clear=True),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                code = app._guarded(app._run)
        return Ended(code, bytes_out.getvalue().decode(), err.getvalue())

    def run_file(self, out: str) -> Path:
        """The one run file in the folder *out*."""
        (path,) = (self.folder / out).glob("*.jsonl")
        return path

    @classmethod
    def at(cls, folder: Path, **files: str) -> CommandLine:
        """In *folder*, beside the peaks file and these modules; the catalogue is cached."""
        (folder / "peaks.toml").write_text(PEAKS)
        shutil.copytree(Path(_cache().name) / "catalogue", folder / "cache" / "catalogue")
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        return cls(folder)


@functools.cache
def _cache() -> tempfile.TemporaryDirectory[str]:
    """A cache that holds the catalogue; a worker describes the workloads once for all tests."""
    folder = tempfile.TemporaryDirectory(prefix="gpuperf-catalogue-")
    environment = {**os.environ, "GPUPERF_CACHE": folder.name, "CUDA_VISIBLE_DEVICES": ""}
    forks.run([*COMMAND, "list"], env=environment, capture_output=True, check=True)
    return folder


QUICK = ("--device", "cpu", "--peaks", "peaks.toml", "--budget", "0.02")


def assert_refused(ended: Ended, code: int, sentence: str, hint: str = "") -> None:
    """The last words on stderr are one sentence and one hint; nothing is on stdout."""
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
    said, hinted = ended.err.splitlines()[-2:]
    assert said.startswith("gpuperf: ")
    assert hinted.startswith("  hint: ")
    assert re.search(sentence, said), said
    assert hint in hinted
