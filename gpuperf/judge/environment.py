"""Choose the environment variables of the judge's workers."""

from __future__ import annotations

import os
import site
from pathlib import Path

# Variables that a worker inherits; it sees no other, since those of this process may be secret.
INHERITED = (
    *("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CC", "CXX"),
    *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
)
# A library must not look busy while it waits for work, and glibc must reuse memory: whether it maps
# large results anew in each call depends on the history of a process, and doubles the time.
PASSIVE = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "OMP_WAIT_POLICY": "passive",
    "KMP_BLOCKTIME": "0",
    "OPENBLAS_THREAD_TIMEOUT": "4",
    "PYTHONDONTWRITEBYTECODE": "1",
}


# torch.compile would start processes of its own that compile.
COMPILING = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


def worker_environment(home: str, gpu: bool = False) -> dict[str, str]:
    """Return the variables of a worker whose home and temporary folder is *home*."""
    variables = {name: os.environ[name] for name in INHERITED if name in os.environ}
    places = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if places:
        variables["PYTHONPATH"] = os.pathsep.join(str(Path(p).absolute()) for p in places)
    if site.ENABLE_USER_SITE:
        variables["PYTHONUSERBASE"] = site.getuserbase()
    compiling = COMPILING if gpu else {}
    return {**variables, **PASSIVE, **compiling, "HOME": home, "TMPDIR": home}
