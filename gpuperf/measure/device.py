"""Open a device and read its facts."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from gpuperf.errors import CannotMeasure, UnknownName
from gpuperf.measure.driver import l2_set_aside
from gpuperf.model.contract import Contract, DeviceFacts
from gpuperf.model.record import Caveat

# Seconds that one more kernel adds to a timed window beside its own cycles: the gap before it, and
# an empty kernel (H200, docs/measured).
NEXT_KERNEL_S = 1.2e-6


@dataclass(frozen=True)
class Device:
    """An open device: torch's handle, and the facts that were read when it was opened, with the
    bytes of the L2 that were then set aside for lines that persist: on an H200 11 MiB by default
    (None: unknown)."""

    torch: torch.device
    facts: DeviceFacts
    set_aside: int | None = None

    def synchronize(self) -> None:
        """Wait for everything queued. Raises: RuntimeError when the device has failed."""
        if self.torch.type == "cuda":
            torch.cuda.synchronize(self.torch)

    def delayed(self, call: Callable[[], Any], extra_s: float) -> Callable[[], Any]:
        """Return *call* followed by a spin of *extra_s* seconds.

        On a GPU the spin is a kernel, which takes at least as long as an empty kernel.
        """
        if self.torch.type == "cpu":

            def slower() -> Any:
                result = call()
                end = time.perf_counter() + extra_s
                while time.perf_counter() < end:
                    pass
                return result

            return slower
        clock_hz = self.facts.max_sm_clock_hz or 1e9
        cycles = int(max(0.0, extra_s - NEXT_KERNEL_S) * clock_hz)

        def followed() -> Any:
            result = call()
            torch.cuda._sleep(cycles)
            return result

        return followed

    def cache_caveats(self, contract: Contract) -> Iterator[Caveat]:
        """Yield a caveat if the program has set aside more of the L2 since the device was opened: a
        flush by the same process evicts no lines that persist (docs/measured/persisting_l2.txt)."""
        usual, aside = self.set_aside, None
        if contract.cache.startswith("cold") and usual is not None:
            aside = l2_set_aside()
        if aside is not None and usual is not None and aside > usual:
            yield Caveat(
                "l2-set-aside",
                f"the program sets aside {aside / 2**20:.3g} MiB of the L2 for lines that persist, "
                "which a flush by the same process does not evict",
                "leave cudaLimitPersistingL2CacheSize as it is, or measure with --cache hot",
            )

    def free_bytes(self) -> int:
        """Return the bytes that could be allocated now, unused ones in torch's cache included."""
        if self.torch.type == "cpu":
            return _host_free_bytes()
        free, _ = torch.cuda.mem_get_info(self.torch)
        cached = torch.cuda.memory_reserved(self.torch) - torch.cuda.memory_allocated(self.torch)
        return int(free + cached)


def open_device(name: str) -> Device:
    """Open the device *name*: `auto` (the first GPU, else the CPU), `cuda:0`, `cpu`.

    Raises: UnknownName for another name, CannotMeasure where there is no such device.
    """
    if name == "auto":
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return Device(torch.device("cpu"), _cpu_facts())
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    match = re.fullmatch(r"cuda(?::(\d{1,3}))?", name)
    if match is None:
        known = ["auto", "cpu", *(f"cuda:{i}" for i in range(max(1, count)))]
        raise UnknownName("device", name, known)
    index = int(match[1] or 0)
    if index >= count:
        usable = f"{count} GPU{'s' if count > 1 else ''}" if count else "no GPU"
        raise CannotMeasure(
            f"there is no device {name!r}: torch can use {usable} here",
            "run `gpuperf doctor`, or use --device cpu",
        )
    torch.cuda.set_device(index)
    return Device(torch.device("cuda", index), _gpu_facts(index), l2_set_aside())


def _gpu_facts(index: int) -> DeviceFacts:
    properties = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    kind: Literal["rocm", "cuda"] = "rocm" if torch.version.hip else "cuda"
    capability = (
        str(properties.gcnArchName).split(":")[0]
        if kind == "rocm"
        else f"{properties.major}.{properties.minor}"
    )
    return DeviceFacts(
        kind=kind,
        index=index,
        name=properties.name,
        sm_count=properties.multi_processor_count,
        memory_bytes=total,
        free_bytes=free,
        capability=capability,
        l2_bytes=properties.L2_cache_size or None,
        dtypes=_gpu_dtypes(kind, (properties.major, properties.minor), capability),
        mig="MIG" in properties.name,
    )


def _gpu_dtypes(kind: str, version: tuple[int, int], capability: str) -> tuple[str, ...]:
    """Return the dtypes that the hardware computes in.

    Sources: CUDA C Programming Guide, "Arithmetic Instructions" and tensor-core tables by compute
    capability; AMD's CDNA 2-4 ISA guides.
    """
    dtypes = ["fp64", "fp32", "fp16", "int8"]
    if kind == "rocm":
        dtypes.append("bf16")
        if capability in ("gfx942", "gfx950"):
            dtypes.append("fp8")
        if capability == "gfx942":
            dtypes.append("tf32")
        return tuple(dtypes)
    if version < (7, 5):
        dtypes.remove("int8")
    if version >= (8, 0):
        dtypes += ["bf16", "tf32"]
    if version >= (8, 9):
        dtypes.append("fp8")
    return tuple(dtypes)


def _cpu_facts() -> DeviceFacts:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DeviceFacts(
        kind="cpu",
        index=0,
        name=_cpu_name(),
        sm_count=torch.get_num_threads(),
        memory_bytes=memory,
        free_bytes=_host_free_bytes(),
        capability=torch.backends.cpu.get_cpu_capability(),
        dtypes=("fp64", "fp32", "fp16", "bf16", "int8"),
    )


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        if match:
            return match[1].strip()
    return platform.processor() or platform.machine() or "CPU"


def _host_free_bytes() -> int:
    """Return Linux's available bytes, or those that the container's limit leaves, if fewer."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    info = Path("/proc/meminfo")
    if info.exists():
        match = re.search(r"^MemAvailable:\s*(\d+) kB", info.read_text(), re.MULTILINE)
        if match:
            free = int(match[1]) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else min(free, int(limit) - used)
