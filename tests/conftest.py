"""Triton's kernels run under its interpreter in the tests' own process, where there is no GPU."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings

# Several test processes share the processors: none may spin while it waits for its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# Hundreds of processes start here: each would compile gpuperf anew without its bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Triton asks when a kernel is defined: ours, its own (gluon), and those of torch's compiler.
KERNELS = ("triton.experimental.gluon", "torch._inductor.compile_fx")
INTERPRET = "TRITON_INTERPRET"

if not torch.cuda.is_available():
    os.environ[INTERPRET] = "1"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of torch's own making
    for module in KERNELS:
        with contextlib.suppress(ImportError):  # no Triton, or an older one without gluon
            importlib.import_module(module)

import forks  # noqa: E402
import pytest  # noqa: E402
from fast_interpreter import remember_lookups  # noqa: E402

from gpuperf.measure.registry import load_source  # noqa: E402
from gpuperf.run import launcher  # noqa: E402

remember_lookups()
load_source("gpuperf.kernels")
os.environ.pop(INTERPRET, None)  # not for what the tests start
if not torch.cuda.is_available():
    forks.serve()
    launcher.subprocess = forks  # type: ignore[attr-defined]
os.environ.pop("COLUMNS", None)  # by pytest-xdist: the width of no terminal


@pytest.fixture
def real_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes start as ever, where the start or the end of one is what is tested."""
    monkeypatch.delenv(forks.SOCKET, raising=False)
