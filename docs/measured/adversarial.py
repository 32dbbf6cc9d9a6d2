"""Judge the adversarial kernels that KernelBench ships with its tests, beside its own evaluator.

`python docs/measured/adversarial.py KernelBench > docs/measured/adversarial.txt` reads a clone of
github.com/ScalingIntelligence/KernelBench, and needs a GPU and nvcc. The judge judges each of its
`test_kernels` against problem 1 of level 1, for which they are written. Then KernelBench's
evaluator, in a process of its own, checks and times the kernel with two of its timing methods and
the settings of its test. A line says what each of the three found. That takes 2 to 3 minutes a
kernel; `--only NAME` evaluates those whose names contain it, to append in another sitting.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from kernelbench import judge_file

from gpuperf.judge.run import serving
from gpuperf.judge.settings import Settings

KERNELS = "src/kernelbench/unit_tests/test_kernels"
PROBLEM = "KernelBench/level1/1_Square_matrix_multiplication_.py"
METHODS = ("cuda_event", "do_bench")
LONGEST_S = 240  # of one evaluation, with the compilation of its kernel
# KernelBench imports clients of language models and of the web, which no evaluation needs.
EVALUATE = """
import importlib.util, json, pathlib, sys, unittest.mock
for name in ("dotenv", "litellm", "openai", "requests", "tqdm"):
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = unittest.mock.MagicMock()
from kernelbench.eval import eval_kernel_against_ref
texts = [pathlib.Path(name).read_text() for name in sys.argv[1:3]]
result = eval_kernel_against_ref(
    *texts, num_correct_trials=5, num_perf_trials=10, measure_performance=True,
    timing_method=sys.argv[3], check_for_excessive_speedup=True, excessive_speedup_threshold=10,
)
print(json.dumps([result.compiled, result.correctness, result.runtime, result.ref_runtime,
                  bool(result.metadata.get("excessive_speedup"))]))
"""


def evaluated(root: Path, kernel: Path, method: str) -> str:
    """Return what KernelBench's evaluator says of *kernel*, timed by *method*."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-c", EVALUATE, str(root / PROBLEM), str(kernel), method]
    with tempfile.TemporaryDirectory() as folder:
        environment["TORCH_EXTENSIONS_DIR"] = folder  # all kernels have one name
        try:
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=LONGEST_S
            )
        except subprocess.TimeoutExpired:
            return f"no result in {LONGEST_S} s"
    if ended.returncode:
        return f"failed: {ended.stderr.strip().splitlines()[-1:]}"
    compiled, correct, time_us, reference_us, excessive = json.loads(ended.stdout.splitlines()[-1])
    if not compiled or not correct:
        return "does not compile" if not compiled else "incorrect"
    flag = ", flagged as excessive" if excessive else ""
    return f"correct, {reference_us / time_us:.2f} times as fast as the reference{flag}"


def judged(root: Path, kernel: Path, settings: Settings, server: Any) -> str:
    """Return what gpuperf's judge says of *kernel*."""
    row = judge_file(root / PROBLEM, kernel, settings, server)
    speedup = f", {row['speedup']:.2f} times as fast" if "speedup" in row else ""
    return f"{row['status']}{speedup}: {row['reason']}".removesuffix(": ")


def main() -> None:
    """Print a line for each kernel and each of those who evaluate it."""
    parser = argparse.ArgumentParser(description="Judge KernelBench's adversarial kernels.")
    parser.add_argument("clone", type=Path, help="folder of a clone of KernelBench")
    parser.add_argument("--only", default="", help="part of the names of kernels to evaluate")
    given = parser.parse_args()
    root = given.clone.absolute()
    if not torch.cuda.is_available():
        raise SystemExit("adversarial.py needs a GPU.")
    kernels = sorted((root / KERNELS).glob(f"*{given.only}*.py"))
    if not kernels or not (root / PROBLEM).is_file():
        raise SystemExit(f"{root} lacks {KERNELS} or {PROBLEM}; clone KernelBench there.")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    settings = Settings(processes=1, deadline_s=120.0, started="forked", device="cuda:0")
    with serving(settings) as server:
        for kernel in kernels:
            print(f"{kernel.stem}\n  gpuperf judge: {judged(root, kernel, settings, server)}")
            for method in METHODS:
                print(f"  KernelBench, {method}: {evaluated(root, kernel, method)}", flush=True)


if __name__ == "__main__":
    main()
