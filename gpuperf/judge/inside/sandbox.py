"""Restrict this process before it imports a submission.

`process` limits the size of files and forbids new privileges. `sandbox` adds Landlock, by which
nothing but a scratch folder can be written and no process outside can be traced or signalled, and a
network namespace of its own. None of this withstands an attack on the kernel or a driver.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuperf.judge.evidence import Restrictions

# linux/prctl.h, asm-generic/unistd.h, linux/landlock.h and linux/sched.h.
PR_SET_NO_NEW_PRIVS = 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
GET_VERSION, RULE_PATH_BENEATH = 1, 1
READING = 0b1101  # execute, read file, read folder
ALL_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16}  # access rights to files
NETWORK_ABI, SCOPE_ABI = 4, 6
BOTH_SCOPES, BOTH_TCP = 0b11, 0b11  # abstract sockets and signals; bind and connect
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

LARGEST_FILE = 1 << 30  # bytes
MOST_PROCESSES = 512  # of this user


def restrict(level: str, scratch: str, memory: str) -> Restrictions:
    """Restrict this process to *level*; the folders *scratch* and *memory* stay writable."""
    tempfile.tempdir = scratch
    steps: list[tuple[str, Callable[[], str]]] = [
        ("files of at most 1 GiB", _limit_files),
        ("no new privileges", _forbid_privileges),
    ]
    if level == "sandbox":
        steps += [
            ("no network", _leave_network),
            (f"at most {MOST_PROCESSES} processes", _limit_processes),
            ("Landlock: writes to a scratch folder alone", lambda: _landlock((scratch, memory))),
        ]
    in_force, unavailable = [], []
    for name, step in steps:
        refused = step()
        if refused:
            unavailable.append(f"{name}: {refused}")
        else:
            in_force.append(name)
    return Restrictions(level, tuple(in_force), tuple(unavailable))


def _limit_files() -> str:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = LARGEST_FILE if hard == resource.RLIM_INFINITY else min(hard, LARGEST_FILE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return ""


def _limit_processes() -> str:
    if os.geteuid() == 0:
        return "the limit does not hold for root"
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = MOST_PROCESSES if hard == resource.RLIM_INFINITY else min(hard, MOST_PROCESSES)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    return ""


def _forbid_privileges() -> str:
    return "" if _libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 else _last_error()


def _leave_network() -> str:
    """Enter a network namespace without a device, by a new user namespace if that is needed."""
    libc = _libc()
    if libc.unshare(NEW_NETWORK) == 0:
        return ""
    return "" if libc.unshare(NEW_USER | NEW_NETWORK) == 0 else _last_error()


def _landlock(folders: Sequence[str]) -> str:
    """Forbid writes outside *folders* and devices, signals, tracing and TCP, by Landlock."""
    libc = _libc()
    abi = libc.syscall(CREATE_RULESET, None, 0, GET_VERSION)
    if abi < 1:
        return _last_error()
    rights = (1 << ALL_OF_ABI[min(abi, max(ALL_OF_ABI))]) - 1
    network = BOTH_TCP if abi >= NETWORK_ABI else 0
    scopes = BOTH_SCOPES if abi >= SCOPE_ABI else 0
    fields = [rights, network, scopes][: 1 + (abi >= NETWORK_ABI) + (abi >= SCOPE_ABI)]
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = libc.syscall(CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return _last_error()
    gpus = [str(path) for path in Path("/dev").glob("nvidia*")]
    allowed = [("/", READING), *((name, rights) for name in (*folders, *DEVICES, *gpus))]
    for path, some in allowed:
        _allow(libc, ruleset, path, some & rights)
    refused = _last_error() if libc.syscall(RESTRICT_SELF, ruleset, 0) else ""
    os.close(ruleset)
    return refused


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Allow *rights* beneath *path*, if it exists."""
    if not Path(path).exists():
        return
    of_files = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not Path(path).is_dir():
        rights &= of_files
    rule = struct.pack("=Qi", rights, handle)
    libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0)
    os.close(handle)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _last_error() -> str:
    return os.strerror(ctypes.get_errno())
