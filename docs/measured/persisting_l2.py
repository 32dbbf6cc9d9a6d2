"""Measure whether lines that a program keeps in the L2 survive what other processes do.

`python docs/measured/persisting_l2.py` on an NVIDIA GPU. A child process sets aside L2 for lines
that persist (CU_LIMIT_PERSISTING_L2_CACHE_SIZE), and reads a buffer under an access policy window
of its stream, again and again. Before each read this process or the child reads at least
three times the size of the L2. This process counts the bytes that the read takes from DRAM.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import statistics
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch

from gpuperf.judge.inside.device_memory import synchronizer
from gpuperf.judge.inside.witness import Witness
from gpuperf.measure.device import open_device

SIZE = 16 << 20  # bytes of the buffer
READS = 8  # of each way, each counted by itself
L2_BYTES = 128 << 20  # at least those of any L2


class Way(NamedTuple):
    """What happens before a read: whether the lines of the child's buffer persist, which process
    reads much else, and so evicts lines, and which one makes persisting lines normal ones again.
    `child` is the process that reads the buffer, `other` the one that measures; `nobody` says that
    no process does it."""

    persists: bool
    evicts: str = "nobody"
    resets: str = "nobody"


WAYS = (
    Way(persists=False),
    Way(persists=True),
    Way(persists=False, evicts="child"),
    Way(persists=True, evicts="child"),
    Way(persists=True, evicts="child", resets="child"),
    Way(persists=False, evicts="other"),
    Way(persists=True, evicts="other"),
    Way(persists=True, evicts="other", resets="other"),
)
LIMIT = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
ATTRIBUTE = 1  # CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW
PERSISTING = 2  # CU_ACCESS_PROPERTY_PERSISTING


class Window(ctypes.Structure):
    """CUaccessPolicyWindow, padded to the size of CUstreamAttrValue."""

    _fields_ = [
        ("base", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("padding", ctypes.c_ubyte * 36),
    ]


def reader(pipe: Connection, persist: bool) -> None:
    """Read the buffer whenever *pipe* says so, read much else, or reset persisting lines."""
    driver, others = ctypes.CDLL("libcuda.so.1"), torch.zeros(3 * L2_BYTES // 4, device="cuda")
    buffer, stream = torch.ones(SIZE // 4, device="cuda"), torch.cuda.Stream()
    synchronizer(buffer.device)()
    if persist:
        assert not driver.cuCtxSetLimit(LIMIT, ctypes.c_size_t(SIZE))
        window = Window(buffer.data_ptr(), SIZE, 1.0, PERSISTING, 0)
        handle = ctypes.c_void_p(stream.cuda_stream)
        assert not driver.cuStreamSetAttribute(handle, ATTRIBUTE, ctypes.byref(window))
    while (word := pipe.recv()) != "end":
        if word == "reset":
            pipe.send(driver.cuCtxResetPersistingL2Cache())
            continue
        if word == "evict":
            pipe.send(int(others.sum().item()))
            continue
        if word == "limit":
            size = ctypes.c_size_t()
            assert not driver.cuCtxGetLimit(ctypes.byref(size), LIMIT)
            pipe.send(size.value)
            continue
        with torch.cuda.stream(stream):
            buffer.sum()
        stream.synchronize()
        pipe.send(0)


def main() -> None:
    """Print a line for each way."""
    device = open_device("cuda:0")
    l2_bytes = device.facts.l2_bytes or L2_BYTES
    witness = Witness(device.torch, l2_bytes)
    others = torch.zeros(3 * L2_BYTES // 4, device="cuda")
    driver = ctypes.CDLL("libcuda.so.1")
    context = multiprocessing.get_context("spawn")
    print(f"{device.facts.name}, L2 {l2_bytes >> 20} MiB, buffer {SIZE >> 20} MiB")
    for persist, evicts, resets in WAYS:
        pipe, end = context.Pipe()
        child = context.Process(target=reader, args=(end, persist), daemon=True)
        child.start()

        def ask(word: str, pipe: Connection = pipe) -> int:
            pipe.send(word)
            return int(pipe.recv())

        for _ in range(3):
            ask("read")
        shares = []
        for _ in range(READS):
            if resets == "child":
                assert not ask("reset")
            elif resets == "other":
                assert not driver.cuCtxResetPersistingL2Cache()
            if evicts == "child":
                ask("evict")
            elif evicts == "other":
                others.sum().item()
            witness.begin()
            ask("read")
            seen = witness.end(0.001)
            assert not seen.missing, seen.missing
            shares.append(seen.read / SIZE)
        limit = ask("limit")
        pipe.send("end")
        child.join()
        print(
            f"set aside {limit >> 20:2d} MiB, evicted by {evicts:7}, reset by {resets:7}: "
            f"{statistics.median(shares) * 100:6.1f} % of the buffer read from DRAM "
            f"({min(shares) * 100:.0f} to {max(shares) * 100:.0f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
