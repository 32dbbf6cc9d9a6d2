"""Triton's kernels run under its interpreter in the tests' own process, where there is no GPU."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import warnings
from pathlib import Path

import forks
import pytest

# Several test processes share the processors: none may spin while it waits for its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Hundreds of processes start here: each would compile gpuperf anew without its bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.pop("COLUMNS", None)  # by pytest-xdist: the width of no terminal

# The tests write some ten thousand files, for which they would wait on a disk.
MEMORY_FILES = Path("/dev/shm")
MEMORY_NEEDED = 4 << 30  # free bytes
if MEMORY_FILES.is_dir() and os.access(MEMORY_FILES, os.W_OK):
    memory = os.statvfs(MEMORY_FILES)
    if memory.f_bavail * memory.f_frsize > MEMORY_NEEDED and not memory.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FILES))

# The compiler's instructions are those of the processor: no program tests them, for six seconds.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# Nothing compiles two kernels at once: no pool of processes starts for it, each of which imports
# torch.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# Triton asks when a kernel is defined: ours, its own (gluon), and those of torch's compiler.
KERNELS = ("triton.experimental.gluon", "torch._inductor.compile_fx")
INTERPRET = "TRITON_INTERPRET"
DRIVER = Path("/dev/nvidiactl")  # exists where there is an NVIDIA GPU


def prepare() -> None:
    """Import what the tests of this process need, which takes seconds."""
    import torch

    alone = not torch.cuda.is_available()
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    if alone:
        os.environ[INTERPRET] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own making
        for module in KERNELS:
            with contextlib.suppress(ImportError):  # no Triton, or an older one without gluon
                importlib.import_module(module)

    from fast_interpreter import remember_lookups

    from gpuperf.measure.registry import load_source
    from gpuperf.run import launcher, starting

    remember_lookups()
    load_source("gpuperf.kernels")
    os.environ.pop(INTERPRET, None)  # not for what the tests start
    if alone:
        forks.serve()
        for module in (launcher, starting):
            module.subprocess = forks  # type: ignore[attr-defined]


def starts_others() -> bool:
    """Return whether this process of pytest-xdist runs no test, but starts others that do."""
    asked = any(word.startswith(("-n", "--numprocesses")) for word in sys.argv[1:])
    return asked and "PYTEST_XDIST_WORKER" not in os.environ


# Garbage is collected less often: a tenth of the tests' time, and a fifth of that of the imports,
# went into looking at what stays.
gc.set_threshold(*forks.COLLECT)
if not starts_others():
    prepare()
elif not DRIVER.exists():
    forks.serve()


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what was imported, which stays."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def real_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes start as ever, where the start or the end of one is what is tested."""
    monkeypatch.delenv(forks.SOCKET, raising=False)
