"""Fork workers from a process that has imported torch: `python -P -m gpuperf.measure.fork_server`.

The import of torch takes seconds, and a fork some milliseconds. This process runs no workload and
never uses a device, so that its forks can: the file of a workload is imported in the worker. It
answers a launcher over a socket: for each `Fork` it forks a guard (`guard.py`), whose fork is the
worker, and returns a pidfd of the guard. It ends when the launcher closes the socket or has died.

Forks share what this process drew at its start: the addresses of libraries and the hashes of texts.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import random
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from gpuperf.measure import worker
from gpuperf.measure.bootstrap import Finder, before_installed
from gpuperf.measure.guard import guard
from gpuperf.model.protocol import Fork, Forked, Ready

# Packages that most workloads import; the names of our kernels' packages are those of `Finder`.
LIBRARIES = ("triton.language", "triton.experimental.gluon", "numpy")
MEASURING = ("cuda.bindings.driver", "cuda.bindings.nvrtc")  # imported to measure on a GPU
# Modules that define `triton_key`: the first since Triton 3.5, the second before.
TRITON_KEYS = ("triton.runtime.cache", "triton.compiler.compiler")
KERNELS = "gpuperf.kernels"
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/dxg")  # open in a process that uses a GPU
ALIVE_S = 1.0  # seconds between two checks that the launcher lives
LARGEST = 1 << 20  # bytes of a request


def main(arguments: list[str] | None = None) -> int:
    """Fork for each request until the launcher ends; never return in a fork."""
    parser = argparse.ArgumentParser()
    for name in ("--control", "--parent"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("--import", action="append", default=[], dest="modules")
    options: Any = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to handle
    control = socket.socket(fileno=options.control)
    control.set_inheritable(False)
    if options.ahead:
        worker.import_ahead()
    measuring = MEASURING if options.ahead else ()
    ready = Ready(_imported((*LIBRARIES, *measuring, *options.modules)), _refused())
    _hash_triton()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of everything that is imported
    control.send(msgspec.json.encode(ready))
    while os.getppid() == options.parent:
        if select.select([control], [], [], ALIVE_S)[0]:
            request, descriptors, _, _ = socket.recv_fds(control, LARGEST, 8)
            if not request:
                break
            _serve(control, msgspec.json.decode(request, type=Fork), descriptors)
        _reap()
    return 0


def _imported(modules: Sequence[str]) -> dict[str, str]:
    """Import *modules*; return the files of the packages imported so far, by name, but for Python's
    own and gpuperf."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    names = {name.partition(".")[0] for name in sys.modules}
    packages = {name: sys.modules.get(name) for name in names - {"gpuperf", "__main__"}}
    return {
        name: getattr(module, "__file__", None) or ""
        for name, module in packages.items()
        if name not in sys.stdlib_module_names
    }


def _hash_triton() -> None:
    """Hash Triton's own files, which takes 0.4 s in each process that loads one of its kernels."""
    for name in TRITON_KEYS:
        key = getattr(sys.modules.get(name), "triton_key", None)
        if key is not None:
            key()  # it keeps its result
            return


def _refused() -> str:
    """Return why a fork of this process could not be a worker; empty if it can."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if (target := str(entry.readlink())).startswith(DEVICES):
                return f"the import of torch opened {target}"
    if threading.active_count() > 1:
        return f"the import of torch started the thread {threading.enumerate()[-1].name}"
    return ""


def _serve(control: socket.socket, request: Fork, descriptors: Sequence[int]) -> None:
    """Fork the guard of a worker, and send its pidfd. The *descriptors* are the guard's socket, the
    worker's ends of two pipes, and the file of its output."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the threads of a BLAS, which ends them before a fork
        pid = os.fork()
    if pid == 0:
        control.close()
        _be_guard(request, descriptors, parent)
    pidfd = os.pidfd_open(pid)
    socket.send_fds(control, [msgspec.json.encode(Forked(pid))], [pidfd])
    for descriptor in (*descriptors, pidfd):
        os.close(descriptor)


def _be_guard(request: Fork, descriptors: Sequence[int], parent: int) -> NoReturn:
    try:
        os.setsid()
        control, requests, replies, output = descriptors
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)

        def begin() -> None:
            _be_worker(request, requests, replies)

        guard(control, parent, request.memory_bytes, (requests, replies), begin)
    except SystemExit:
        pass  # by SIGTERM
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(0)


def _be_worker(request: Fork, requests: int, replies: int) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python does when it starts
        _go_to(request)
        _draw_anew()
        ends = (f"--requests={requests}", f"--replies={replies}", f"--parent={os.getppid()}")
        if request.module:
            code = importlib.import_module(request.module).main(list(ends))
        else:
            code = worker.main([*ends, "--forked"])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def _go_to(request: Fork) -> None:
    """Go to the place of *request*, as `bootstrap` does before torch is imported."""
    os.chdir(request.folder or ".")
    os.environ.update(request.environment)
    before_installed(request.paths)
    if request.kernels:
        cuda = str(Path(request.kernels).parent / "cuda")
        sys.meta_path.insert(0, Finder({KERNELS: request.kernels, f"{KERNELS}.cuda": cuda}))
    importlib.invalidate_caches()


def _draw_anew() -> None:
    """Give the random numbers that a process draws from the system another start in each fork."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)


def _reap() -> None:
    """Reap the guards that have ended; their supervisors watch pidfds of them."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main())
