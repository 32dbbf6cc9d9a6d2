"""Serve `forks`: import what gpuperf's processes import, and fork one for each request.

In a fork, torch's modules stay out of `sys.modules` until something imports torch, so a program is
traced from its own import on. A worker is a fork of its guard, as it is a child of it otherwise.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import fcntl
import gc
import importlib
import importlib.abc
import importlib.machinery
import io
import os
import pkgutil
import random
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import unittest.mock
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

import forks

from gpuperf.profile.inside.import_hook import AfterImport

Names = tuple[frozenset[str], ...]

HIGH = 300  # the server has no descriptor as high
WALL = "gpuperf.measure.timers.wall"
SMALL_CACHE = 1 << 20  # bytes: to flush the processor's own takes 10 ms a sample
LIBRARIES = (
    "torch",
    "scipy.stats",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "plotext",
    "typer._adapters",
    "triton.language",
)


def main(path: str) -> None:
    """Fork for each request until the tests end; return never in a fork."""
    hidden = _import_all()
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{path}.new")
    server.listen(64)
    Path(f"{path}.new").rename(path)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting: dict[int, socket.socket] = {}
    while True:
        ready = select.select([server, woken, 0], [], [])[0]
        if 0 in ready:
            return
        if woken in ready:
            os.read(woken, 4096)
        if server in ready:
            connection, _ = server.accept()
            with contextlib.suppress(EOFError, OSError):
                pid = _forked(*forks.receive(connection), hidden)
                waiting[pid] = connection
                connection.sendall(b"%d\n" % pid)
        _report_ends(waiting)


def _import_all() -> Names:
    """Import what a process of gpuperf may import, but for what it runs as `__main__`.

    Return the modules to hide: those of torch, and those of torch's compiler, which its profiler
    imports when it starts, for 1.6 s.
    """
    gc.set_threshold(*forks.COLLECT)
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    package = importlib.import_module("gpuperf")
    for module in pkgutil.walk_packages(package.__path__, "gpuperf."):
        if module.name not in forks.MODULES and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in forks.STARTERS:
        sys.modules[name].subprocess = forks  # type: ignore[attr-defined]
    sys.modules[WALL].last_level_cache_bytes = lambda: SMALL_CACHE  # type: ignore[attr-defined]
    torch = torch_modules()
    importlib.import_module("torch._inductor.config")
    for final in weakref.finalize._registry:  # type: ignore[attr-defined]
        final.atexit = False  # torch's libraries, whose end in each fork takes 50 ms
    gc.collect()
    gc.freeze()
    return torch, torch_modules() - torch


def _forked(request: dict[str, Any], descriptors: list[int], hidden: Names) -> int:
    pid = os.fork()
    if pid == 0:
        _become(request, descriptors, hidden)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _report_ends(waiting: dict[int, socket.socket]) -> None:
    """Send the status of each process that has ended to whoever asked for it."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with contextlib.suppress(OSError), waiting.pop(ended[0]) as connection:
                connection.sendall(b"%d\n" % ended[1])


def _become(request: dict[str, Any], descriptors: Sequence[int], hidden: Names) -> NoReturn:
    """Be the process that *request* describes, to its end."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if request["session"]:
            os.setsid()
        if request["hear"]:
            forks.hear()
        _give_numbers(dict(zip(request["descriptors"], descriptors, strict=True)))
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        random.seed()
        _open_streams()
        threads = os.environ.get(forks.THREADS[0])
        if threads:
            sys.modules["torch"].set_num_threads(int(threads))
        for names in hidden:
            Hidden(names)
        parent = f"--parent={os.getppid()}"  # the server forked it, and not the supervisor
        words = [parent if word.startswith("--parent=") else word for word in request["command"]]
        code = _run(words)
    finally:
        os._exit(code)


def _give_numbers(wanted: Mapping[int, int]) -> None:
    """Give each descriptor the number that it has in the new process, and close all others."""
    high = {number: fcntl.fcntl(have, fcntl.F_DUPFD, HIGH) for number, have in wanted.items()}
    os.closerange(0, HIGH)
    for number, have in high.items():
        os.dup2(have, number, inheritable=True)
    os.closerange(HIGH, max(high.values()) + 1)


def _open_streams() -> None:
    """Open stdin, stdout and stderr as Python does in its UTF-8 mode."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        raw = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - open to the end
        errors = "backslashreplace" if number == 2 else "surrogateescape"
        lines = number == 2 or os.isatty(number)
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


class Hidden(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that leave `sys.modules` until the first import of one of them."""

    def __init__(self, names: frozenset[str]) -> None:
        self._modules = {name: sys.modules.pop(name) for name in names}
        self._own = next(iter(names))
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return a spec of a module with a loader of its own, as every spec has."""
        if fullname not in self._modules:
            return None
        loader = copy.copy(self)
        loader._own = fullname
        module = self._modules[fullname]
        places = getattr(module, "__path__", None)
        spec = importlib.machinery.ModuleSpec(
            fullname, loader, origin=module.__file__, is_package=places is not None
        )
        spec.submodule_search_locations = None if places is None else list(places)
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module as it was imported before."""
        module = self._modules[self._own]
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Put the modules back, and call what waits for the import of one of the others."""
        sys.meta_path[:] = [
            f for f in sys.meta_path if getattr(f, "_modules", None) is not self._modules
        ]
        sys.modules.update(self._modules)
        module.__spec__ = self._spec
        for finder in list(sys.meta_path):
            if isinstance(finder, AfterImport) and finder._name in self._modules.keys() - {
                self._own
            }:
                finder.remove()
                finder._then()


def torch_modules() -> frozenset[str]:
    """Return the names of torch's modules that are imported now."""
    return frozenset(name for name in sys.modules if name.partition(".")[0] == "torch")


def _run(command: list[str]) -> int:
    """Run *command* as Python would, to the end of its threads, and return its exit code."""
    options, words = forks.split(command)
    sys.orig_argv = list(command)
    code = 0
    try:
        _run_words(words, bool(options))
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            code = (stop.code or 0) & 0xFF
        else:
            print(stop.code, file=sys.stderr)
            code = 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            code = 120  # Python's own code for this
    return code


def _run_words(words: list[str], safe_path: bool) -> None:
    if words[0] == forks.GUARD:
        sys.argv = words
        sys.argv[2] = str(os.getppid())
        with unittest.mock.patch("os.execvp", _fork_of_guard):
            runpy.run_path(forks.GUARD, run_name="__main__")
        return
    sys.path[:0] = [] if safe_path else ["" if words[0] == "-c" else str(Path.cwd())]
    sys.argv = ["-c", *words[2:]] if words[0] == "-c" else words[1:]
    main_module = sys.modules["__main__"] = ModuleType("__main__")
    if words[0] == forks.BOOTSTRAP:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
    elif words[0] == "-c":
        exec(compile(words[1], "<string>", "exec"), main_module.__dict__)
    else:
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined] # what `python -m` calls


def _fork_of_guard(file: str, command: list[str], execute: Any = os.execvp) -> None:
    """Run the worker *command* in place of `os.execvp`, which resets signals and descriptors."""
    if not forks.forkable(command, os.environ):
        execute(file, command)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python does when it starts
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - which opens one that is listed
        with contextlib.suppress(OSError):
            if int(name) > 2 and not os.get_inheritable(int(name)):
                os.close(int(name))
    os._exit(_run(command))


if __name__ == "__main__":
    main(sys.argv[1])
