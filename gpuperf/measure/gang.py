"""Join a worker to the gang that the supervisor drives as one, and agree with the other ranks.

Ranks that measure together must make the same calls in the same order, so whatever depends on a
clock, a random source or free memory is agreed first: by `first`, `least` or `most`. Outside of a
gang these functions return their argument, and `barrier` does nothing. The host's messages go by
gloo, so that they work while a device is blocked or busy. The ranks may be on several hosts.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import IO

import torch
import torch.distributed as dist

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.contract import DeviceFacts, Fingerprint
from gpuperf.model.protocol import Open

FOREVER = timedelta(days=1)  # the supervisor ends a gang that is silent, long before
MEETING, STACK, LOG = "meeting", "stack.{rank}", "nccl.{rank}"  # files in the gang's folder
SIGNAL = signal.SIGUSR1  # asks a rank to write its stack
# Multicast (NVLS) on shared hosts changes the state of the switch, so a gang leaves it off.
QUIET: Mapping[str, str] = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
LOGGED: Mapping[str, str] = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,TUNING"}
# gloo's interface: the name of a host may lead to no address, and a gang of one host needs none.
INTERFACE, LOOPBACK = "GLOO_SOCKET_IFNAME", ("127.", "[::1]", "localhost")


@dataclass(frozen=True)
class Membership:
    """The place of this process in its gang, and the file that its NCCL writes its log to.

    `host` is the name of its host in a gang of several hosts, whose number is `hosts`.
    """

    rank: int = 0
    world: int = 1
    host: str = ""
    hosts: int = 1
    log: Path | None = None
    stack: IO[str] | None = None


_joined = [Membership()]  # of this process, whose group in torch.distributed is one too


def membership() -> Membership:
    """Return the place of this process in its gang; rank 0 of 1 if it has none."""
    return _joined[0]


def in_gang() -> bool:
    """Return whether this process has joined a gang."""
    return _joined[0].world > 1


def device_name(request: Open) -> str:
    """Return the device of one rank: its GPU by number, or the CPU, which all ranks share.

    Raises: UsageError for a device that several ranks cannot have; CannotMeasure where there are
    fewer GPUs than ranks. Each rank raises the same, so that none waits for another.
    """
    if request.world == 1:
        return request.device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if request.device == "cpu" or (request.device == "auto" and not count):
        return "cpu"
    if re.fullmatch(r"cuda:\d{1,3}", request.device):
        raise UsageError(
            f"--gpus {request.world} and --device {request.device} exclude each other: a gang "
            f"takes the first {request.world} GPUs",
            "leave --device out; CUDA_VISIBLE_DEVICES chooses the GPUs",
        )
    wanted = request.local_world
    if request.device in ("auto", "cuda") and count < wanted:
        usable = f"{count} GPU{'s' if count > 1 else ''}" if count else "no GPU"
        here = f"on {request.host}" if request.host else "here"
        raise CannotMeasure(
            f"--gpus {wanted} is more than there are: torch can use {usable} {here}",
            f"--gpus {count}" if count > 1 else "--device cpu makes a gang of CPU processes",
        )
    return f"cuda:{request.local_rank}" if request.device in ("auto", "cuda") else request.device


def share_threads(request: Open) -> None:
    """Divide the CPU's threads among the ranks, unless the user set their number."""
    if request.world > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // request.local_world))


def join(request: Open, device: torch.device) -> None:
    """Meet the other ranks of the gang in *request*, which waits for them; alone, do nothing.

    Raises: CannotMeasure where torch has no backend for the device.
    """
    if request.world == 1 or in_gang():
        return
    folder = Path(request.folder)
    stack = (folder / STACK.format(rank=request.rank)).open("w", encoding="utf-8")
    faulthandler.register(SIGNAL, file=stack, all_threads=False)
    log = folder / LOG.format(rank=request.rank)
    os.environ.update({**QUIET, **LOGGED, "NCCL_DEBUG_FILE": str(log)})
    if not request.meeting or request.meeting.startswith(LOOPBACK):
        os.environ.setdefault(INTERFACE, "lo")
    cuda = device.type == "cuda"
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=_store(request),
            rank=request.rank,
            world_size=request.world,
            timeout=FOREVER,
            device_id=device if cuda else None,
        )
        if cuda:
            _connect(device)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CannotMeasure(f"torch cannot connect the ranks: {reason}") from error
    _joined[0] = Membership(request.rank, request.world, request.host, request.hosts, log, stack)


def _connect(device: torch.device) -> None:
    """Call NCCL once, so that its errors, its connections and its table of predictions are those of
    the beginning and not of the first case."""
    dist.all_reduce(torch.zeros(1, dtype=torch.float32, device=device))
    torch.cuda.synchronize(device)


def _store(request: Open) -> dist.Store:
    """Return the store in which the ranks meet: a file of one host, or a server of rank 0.

    An `init_method` of the form tcp:// would ask torchrun's own server, where there is one.
    """
    if not request.meeting:
        return dist.FileStore(str(Path(request.folder) / MEETING), request.world)
    address, _, port = request.meeting.rpartition(":")
    return dist.TCPStore(
        address.strip("[]"), int(port), request.world, request.rank == 0, timeout=FOREVER
    )


def with_facts(device: DeviceFacts, fingerprint: Fingerprint) -> tuple[DeviceFacts, Fingerprint]:
    """Return *device*, and its *fingerprint* with the size and the software of this gang, if any:
    records of gangs of two sizes, or on other numbers of hosts, do not compare."""
    if not in_gang():
        return device, fingerprint
    known = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    known.pop("NCCL_DEBUG_FILE", None)  # differs in every run
    if dist.is_nccl_available() and torch.cuda.is_available():
        known["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    hard = {**fingerprint.hard, "world": membership().world}
    hard |= {"hosts": membership().hosts} if membership().hosts > 1 else {}
    return device, replace(fingerprint, hard=hard, soft={**fingerprint.soft, **known})


def barrier() -> None:
    """Wait until every rank's host is here."""
    first(0.0)


def first(value: float) -> float:
    """Return the *value* of rank 0, once every rank has given one."""
    return _reduced(value if membership().rank == 0 else 0.0, dist.ReduceOp.SUM)


def least(value: float) -> float:
    """Return the least *value* of all ranks."""
    return _reduced(value, dist.ReduceOp.MIN)


def most(value: float) -> float:
    """Return the greatest *value* of all ranks."""
    return _reduced(value, dist.ReduceOp.MAX)


def _reduced(value: float, operation: dist.ReduceOp.RedOpType) -> float:
    if not in_gang():
        return value
    one = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(one, operation)
    return float(one.item())
