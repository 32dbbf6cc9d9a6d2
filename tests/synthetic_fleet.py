"""Shards that no host measured: a fleet of H200s whose times scatter by half a percent."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpuperf.fleet.collection import EXPECTED, Collection, collect
from gpuperf.fleet.shard import Device, Expected, Head, Row, encode_line, encode_shard, parse_pieces
from gpuperf.model.contract import Contract

TESTS = ("copy/torch", "matmul/torch", "h2d/torch")
SIZES = (1024, 4096, 16384)
HARD = {"product": "NVIDIA H200", "sm_count": 132, "max_sm_clock_hz": 1.98e9, "power_limit_w": 700}
SOFT = {"driver": "580.95.05", "torch": "2.13.0", "python": "3.11.7"}
NAMES = tuple(f"node{i:02d}" for i in range(24))


def head(host: str, devices: int = 1, **changes: Any) -> Head:
    """The head of a shard of *devices* H200s, with *changes* to its fields."""
    processes = changes.get("processes", 5)
    hard, soft = changes.pop("hard", HARD), changes.pop("soft", SOFT)
    plain = Head(
        host=host,
        hostname=host,
        machine=f"machine of {host}",
        suite="screen",
        suite_hash="a" * 64,
        contract=Contract("blocked"),
        devices=tuple(Device(i, hard, soft) for i in range(devices)),
        processes=processes,
        planned=devices * processes * len(TESTS) * len(SIZES),
        gpuperf="0.1.0",
    )
    return msgspec.structs.replace(plain, **changes)


def rows(
    of: Head, slow: Mapping[Any, float] = {}, noise: float = 0.005, seed: int = 0
) -> list[Row]:
    """The rows of a shard. *slow* has slowdowns by test, by (device, test), or for "all"."""
    draw = random.Random(f"{seed} {of.host} {of.peer}")
    made = []
    for device in (each.index for each in of.devices):
        for process in range(of.processes):
            for test in TESTS:
                for size in SIZES:
                    slower = slow.get(test, 0) + slow.get((device, test), 0) + slow.get("all", 0)
                    time_s = size * 1e-8 * (1 + slower) * math.exp(draw.gauss(0, noise))
                    case = f"{test}[n={size}]"
                    made.append(Row(case, device, process, "ok", time_s, 1.9e9))
    return made


def shard(host: str, slow: Mapping[Any, float] = {}, noise: float = 0.005, **changes: Any) -> bytes:
    """The shard of *host* as its file has it."""
    of = head(host, **changes)
    return encode_shard(of, rows(of, slow, noise))


def collected(texts: Sequence[bytes], hosts: Sequence[str] = NAMES) -> Collection:
    """The collection of the shards *texts*, of which *hosts* are expected."""
    pieces = [piece for text in texts for piece in parse_pieces(text, "a test")]
    return collect([*pieces, Expected(tuple(hosts))])


def written(folder: Path, texts: Mapping[str, bytes], hosts: Sequence[str] = NAMES) -> Path:
    """Write *texts*, each as the shard of a host, and the expected *hosts* to *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for host, text in texts.items():
        (folder / f"{host}.jsonl").write_bytes(text)
    (folder / EXPECTED).write_bytes(encode_line(Expected(tuple(hosts))))
    return folder
