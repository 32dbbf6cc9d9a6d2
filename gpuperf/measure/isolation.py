"""Keep one case from changing how the next one in the same worker is measured.

Settings (environment, working folder, torch's flags, signal handlers) are restored after each case.
Changes that cannot be undone (open descriptors, memory, threads, children, replaced functions) are
reported, and the supervisor starts a fresh worker.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

# A worker may have this many descriptors and bytes more than at its start; a CUDA context alone
# opens some 50 descriptors, and CUDA's libraries load one by one.
MOST_FILES = 128
LEAST_BYTES, MOST_BYTES = 2 << 30, 4 << 30
MOST_SHARE = 1 / 16  # of the host's memory, within these bounds
# A case may leave these bytes of the GPU's memory allocated, or this share of it if that is more.
MOST_DEVICE_BYTES, MOST_DEVICE_SHARE = 256 << 20, 0.01
# Threads that only wait: those of torch's compiler, the one that ends its idle compile workers,
# and that of the progress bars of autotuning.
POOLS = ("ThreadPoolExecutor", "Inductor", "subproc_worker_timer", "tqdm_monitor")
COMPILERS = "torch/_inductor"  # in the command lines of torch's own compile workers
JUDGED = "gpuperf.judge.inside"  # modules whose methods are watched too
CACHES = ("TORCH", "_TORCH", "TRITON", "KINETO")  # variables that name caches, set at first use


@dataclass(frozen=True)
class _Setting:
    """Part of the process's state that can be read and restored."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]

    def value(self) -> Any:
        """Return the present value; None where this system or this torch has none."""
        with contextlib.suppress(OSError, RuntimeError, AttributeError, ValueError):
            return self.read()
        return None

    def restore(self, value: Any) -> bool:
        """Set *value*, unless it is the present one; return whether it is now."""
        with contextlib.suppress(OSError, RuntimeError, AttributeError, ValueError, TypeError):
            if self.value() != value:
                self.write(value)
        return bool(self.value() == value)


class Isolation:
    """State of the worker's process before a case, which is restored and compared after it."""

    def __init__(self, device: torch.device) -> None:
        self._gpu = device if device.type == "cuda" else None
        self._most_bytes = min(max(_host_bytes() * MOST_SHARE, LEAST_BYTES), MOST_BYTES)
        self._files, self._bytes = _files(), _anonymous_bytes()
        self._device_bytes: int | None = None
        self._before: dict[str, Any] = {}
        self._settings: list[tuple[_Setting, Any]] = []

    def begin(self, fresh_timer: bool = False) -> None:
        """Store the state before a case; with *fresh_timer*, a timer just allocated GPU memory."""
        if self._device_bytes is None or fresh_timer:
            self._device_bytes = self._allocated()
        self._settings = [(setting, setting.value()) for setting in SETTINGS]
        self._before = _state()

    def end(self) -> str:
        """Restore the settings, and return a sentence on a change that remains; empty if none."""
        stuck = [setting.name for setting, value in self._settings if not setting.restore(value)]
        signal.setitimer(signal.ITIMER_REAL, 0)
        if stuck:
            return f"it changed the {stuck[0]}"
        return self._grown() or _difference(self._before, _state())

    def _grown(self) -> str:
        files = _files()
        if files is None:
            return "it left no file descriptor free"
        if files > (self._files or 0) + MOST_FILES:
            return f"it left {files} file descriptors open"
        held = _anonymous_bytes() - self._bytes
        if held > self._most_bytes:
            return f"it kept {held / 1e9:.1f} GB of memory"
        return self._grown_device()

    def _grown_device(self) -> str:
        if self._gpu is None:
            return ""
        total = torch.cuda.get_device_properties(self._gpu).total_memory
        held = self._allocated() - (self._device_bytes or 0)
        most = max(MOST_DEVICE_BYTES, MOST_DEVICE_SHARE * total)
        return f"it kept {held / 1e9:.1f} GB of the GPU's memory" if held > most else ""

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated(self._gpu) if self._gpu else 0


def _state() -> dict[str, Any]:
    """Return the state that cannot be restored, by the sentence that reports its change."""
    return {
        "it replaced functions": _globals(),
        "it closed or replaced stdout or stderr": [_identity(fd) for fd in (1, 2)],
        "it left modes of torch on": _modes(),
        "it left child processes": _children(),
        "it left threads": {t.name for t in threading.enumerate() if not t.name.startswith(POOLS)},
    }


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the sentence on the first state that differs; removed items are no difference."""
    for sentence, now in after.items():
        then = before[sentence]
        if isinstance(now, set) and now - then:
            return f"{sentence}: {', '.join(map(str, sorted(now - then)[:3]))}"
        if isinstance(now, dict):
            replaced = _replaced(then, now)
            if replaced:
                return f"{sentence}: {', '.join(replaced[:3])}"
        elif not isinstance(now, set) and now != then:
            return sentence
    return ""


def _globals() -> dict[str, dict[str, Any]]:
    """Return what the names in `time`, `torch.cuda` and gpuperf's modules stand for, by module."""
    modules = [time, torch.cuda, *(m for n, m in list(sys.modules.items()) if _is_ours(n))]
    functions = {module.__name__: dict(vars(module)) for module in modules if module is not None}
    kinds = [torch.cuda.Event, torch.cuda.Stream]
    for module in modules:
        if module is not None and module.__name__.startswith(JUDGED):
            own = (v for v in vars(module).values() if isinstance(v, type))
            kinds += [kind for kind in own if kind.__module__ == module.__name__]
    return functions | {
        f"{kind.__module__}.{kind.__qualname__}": dict(vars(kind)) for kind in kinds
    }


def _replaced(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the full names of the functions and classes that another value stands for now."""
    return [
        f"{module}.{name}"
        for module, values in before.items()
        for name, value in values.items()
        if after.get(module, {}).get(name, value) is not value
        and isinstance(value, FunctionType | BuiltinFunctionType | type)
    ]


def watched_functions() -> dict[str, dict[str, Any]]:
    """Return the functions of clocks and of gpuperf, which code under test must not replace."""
    return _globals()


def replaced_functions(before: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the names of functions that were replaced since *before*; empty if there are none."""
    return ", ".join(_replaced(before, _globals())[:3])


def _is_ours(name: str) -> bool:
    return name.startswith("gpuperf.") and not name.startswith("gpuperf.kernels")


def _modes() -> tuple[bool, int, int]:
    return (
        torch.is_inference_mode_enabled(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
    )


def _children() -> set[int]:
    """Return the pids of this process's children, zombies included, without torch's compilers."""
    children = set()
    with contextlib.suppress(OSError):  # there is no /proc
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                children |= {int(pid) for pid in (thread / "children").read_text().split()}
    return {pid for pid in children if COMPILERS not in _command(pid)}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _files() -> int | None:
    """Return the number of open descriptors; None where no further one can be opened."""
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        return None


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _anonymous_bytes() -> int:
    """Return the bytes of this process in memory that no file backs; 0 where there is no /proc."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def _host_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _write_environment(values: dict[str, str]) -> None:
    """Restore the variables *values*; new ones that name caches stay, as they are set only once."""
    for name in os.environ.keys() - values.keys():
        if not name.startswith(CACHES):
            del os.environ[name]
    os.environ.update(values)


def _read_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(CACHES)}


def _read_handlers() -> dict[int, Any]:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {number: handler for number, handler in handlers.items() if handler is not None}


def _write_handlers(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _read_limits() -> dict[int, tuple[int, int]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {number: resource.getrlimit(number) for n in names for number in [getattr(resource, n)]}


def _write_limits(limits: dict[int, tuple[int, int]]) -> None:
    for number, limit in limits.items():
        if resource.getrlimit(number) != limit:
            resource.setrlimit(number, limit)


def _read_collector() -> tuple[Any, ...]:
    return gc.isenabled(), gc.get_threshold()


def _write_collector(value: tuple[Any, ...]) -> None:
    (gc.enable if value[0] else gc.disable)()
    gc.set_threshold(*value[1])


def _write_default_device(device: torch.device) -> None:
    # Any device but None, also the CPU, would leave a mode on.
    torch.set_default_device(None if device.type == "cpu" else device)


def _write_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _flags() -> Iterator[_Setting]:
    """Yield torch's switches: attributes of modules, and pairs of functions."""
    places: dict[str, tuple[Any, tuple[str, ...]]] = {
        "cuDNN": (torch.backends.cudnn, ("enabled", "benchmark", "deterministic", "allow_tf32")),
        "matmuls": (
            torch.backends.cuda.matmul,
            (
                "allow_tf32",
                "allow_fp16_reduced_precision_reduction",
                "allow_bf16_reduced_precision_reduction",
            ),
        ),
    }
    for where, (module, names) in places.items():
        for name in names:
            yield _Setting(
                f"{name} of {where}",
                functools.partial(getattr, module, name),
                functools.partial(setattr, module, name),
            )
    for kind in ("flash", "mem_efficient", "math", "cudnn"):
        read = getattr(torch.backends.cuda, f"{kind}_sdp_enabled", None)
        write = getattr(torch.backends.cuda, f"enable_{kind}_sdp", None)
        if read and write:
            yield _Setting(f"{kind} attention of torch", read, write)
    for device in ("cpu", "cuda"):
        yield _Setting(
            f"autocast of torch on {device}",
            functools.partial(torch.is_autocast_enabled, device),
            functools.partial(torch.set_autocast_enabled, device),
        )


def _read_stream() -> Any:
    return torch.cuda.current_stream() if torch.cuda.is_initialized() else None


def _read_device() -> int:
    return torch.cuda.current_device() if torch.cuda.is_initialized() else -1


SETTINGS = (
    _Setting("working folder", os.getcwd, os.chdir),
    _Setting("umask", _read_umask, os.umask),
    _Setting("environment", _read_environment, _write_environment),
    _Setting("signal handlers", _read_handlers, _write_handlers),
    _Setting("resource limits", _read_limits, _write_limits),
    _Setting("processors", lambda: os.sched_getaffinity(0), lambda v: os.sched_setaffinity(0, v)),
    _Setting("priority", lambda: os.nice(0), lambda v: os.nice(v - os.nice(0))),
    _Setting("garbage collector", _read_collector, _write_collector),
    _Setting("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    _Setting("switch interval", sys.getswitchinterval, sys.setswitchinterval),
    _Setting("trace function", sys.gettrace, sys.settrace),
    _Setting("profile function", sys.getprofile, sys.setprofile),
    _Setting("stdout of Python", lambda: sys.stdout, lambda v: setattr(sys, "stdout", v)),
    _Setting("stderr of Python", lambda: sys.stderr, lambda v: setattr(sys, "stderr", v)),
    _Setting("default device of torch", torch.get_default_device, _write_default_device),
    _Setting("default dtype of torch", torch.get_default_dtype, torch.set_default_dtype),
    _Setting("gradients of torch", torch.is_grad_enabled, torch.set_grad_enabled),
    _Setting("threads of torch", torch.get_num_threads, torch.set_num_threads),
    _Setting(
        "determinism of torch",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _write_deterministic,
    ),
    _Setting(
        "matmul precision of torch",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    *_flags(),
    _Setting("current device", _read_device, lambda v: torch.cuda.set_device(v)),
    _Setting("current stream", _read_stream, lambda v: torch.cuda.set_stream(v)),
)


@contextlib.contextmanager
def restored_tf32() -> Iterator[None]:
    """Restore on exit whether matmuls and convolutions may round fp32 to TF32.

    An implementation may allow TF32 in a case of dtype tf32; if it stayed on, the fp32 results of
    the next case in this process would be wrong.
    """
    before = [(s, s.value()) for s in SETTINGS if s.name.startswith("allow_tf32")]
    try:
        yield
    finally:
        for setting, value in before:
            setting.restore(value)
