"""Share memory of a CUDA device between processes, by the driver's IPC handles.

The answers' worker allocates, and its allocations live as long as it does, since memory must not be
freed while another process has it open. A seat opens each handle once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from gpuperf.errors import CannotMeasure

HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE, cuda.h
LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
# Memory by its place: a process opens it once, and never what it has allocated itself, since the
# driver would report an invalid context.
_known: dict[str, torch.Tensor] = {}
# Sets that hold a stream while calls are queued: 1.9 ms at the 4.2 TB/s at which an H200 sets.
# Forty of 64 MiB (0.7 ms) had often ended before the first call was queued, as recording slows the
# host. Their records are known by their odd size.
HOLDS, HOLD_BYTES = 16, (512 << 20) - 1
PREFIX = "device:"  # of a place that is memory of the device, followed by its handle in hex


class CannotShare(CannotMeasure):
    """The driver shares no memory between processes here."""


class _Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = [("reserved", ctypes.c_ubyte * HANDLE_BYTES)]


class _Array:
    """Memory of the device as torch takes it over: by CUDA's array interface."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def is_device(place: str) -> bool:
    """Return whether *place* names memory of the device, not a file."""
    return place.startswith(PREFIX)


def allocate(size: int, device: torch.device) -> tuple[torch.Tensor, str]:
    """Return *size* bytes of the device that other processes can open, and their place.

    Raises: CannotShare, torch.OutOfMemoryError.
    """
    driver, address, handle = _driver(device), ctypes.c_uint64(), _Handle()
    result = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    if result == 2:  # CUDA_ERROR_OUT_OF_MEMORY
        raise torch.OutOfMemoryError(f"the device has no room for {size >> 20} MiB of inputs")
    _check(result, "allocate memory for other processes", driver)
    result = driver.cuIpcGetMemHandle(ctypes.byref(handle), address)
    if result:
        driver.cuMemFree_v2(address)
    _check(result, "share memory between processes", driver)
    place = PREFIX + bytes(handle.reserved).hex()
    _known[place] = _tensor(address.value, size, device)
    return _known[place], place


def opened(place: str, size: int, device: torch.device) -> torch.Tensor:
    """Return the memory at *place*, of this process or of another one. Raises: CannotShare."""
    if place not in _known:
        _known[place] = _opened(place, size, device)
    return _known[place]


def _opened(place: str, size: int, device: torch.device) -> torch.Tensor:
    driver, address, handle = _driver(device), ctypes.c_uint64(), _Handle()
    raw = bytes.fromhex(place.removeprefix(PREFIX))
    ctypes.memmove(ctypes.byref(handle), raw, HANDLE_BYTES)
    driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, _Handle, ctypes.c_uint]
    result = driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, LAZY_PEER_ACCESS)
    _check(result, "open memory of another process", driver)
    return _tensor(address.value, size, device)


def synchronizer(device: torch.device) -> Callable[[], int]:
    """Return the driver's own call that waits for all streams: no name in torch can change it."""
    wait: Callable[[], int] = _driver(device).cuCtxSynchronize
    return wait


def marker(device: torch.device) -> Callable[[], int]:
    """Return a function that sets one byte on the default stream, where its record shows when the
    work that was queued there before had ended."""
    driver, address = _driver(device), ctypes.c_uint64()
    _check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1)), "allocate", driver)
    mark = driver.cuMemsetD8Async
    mark.argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p]
    return lambda: int(mark(address.value or 0, 0, 1, None))


def holder(device: torch.device) -> Callable[[], None]:
    """Return a function that keeps the default stream busy, by HOLDS sets of HOLD_BYTES bytes."""
    driver, address = _driver(device), ctypes.c_uint64()
    size = ctypes.c_size_t(HOLD_BYTES)
    _check(driver.cuMemAlloc_v2(ctypes.byref(address), size), "allocate", driver)
    fill = driver.cuMemsetD8Async
    fill.argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p]

    def hold() -> None:
        for _ in range(HOLDS):
            fill(address.value or 0, 0, HOLD_BYTES, None)

    return hold


def _driver(device: torch.device) -> Any:
    """Return the driver's library, with torch's context of *device* current in this thread."""
    torch.cuda.synchronize(device)  # makes the context
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    index = torch.cuda.current_device() if device.index is None else device.index
    # torch selects no context in a thread whose device it is already, nor where CUPTI left none.
    retained = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ctypes.c_int(index))
    _check(retained or driver.cuCtxSetCurrent(context), "select torch's context", driver)
    return driver


def _tensor(address: int | None, size: int, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(_Array(address or 0, size), device=device)


def _check(result: int, what: str, driver: Any) -> None:
    """Raise CannotShare if *result* is an error of the driver."""
    if result:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(ctypes.c_int(result), ctypes.byref(name))
        text = (name.value or b"an unknown error").decode()
        raise CannotShare(f"the driver cannot {what}: {text}")
