"""Read from the environment which rank of a distributed program this process is.

torchrun sets these variables for each process that it starts (torch.distributed.elastic's
"Environment Variables"), and so do the launchers that imitate it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

# What the processes of one launch share, and no other launch at the same time has.
SHARED = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "WORLD_SIZE",
)


@dataclass(frozen=True)
class Place:
    """The *rank* of a process among the *world* processes of a launch, which *launch* names.

    On its host it is process *local_rank* of *local_world*. The first host is at *address*, where
    the launcher uses *port*; both are empty where the environment does not have them.
    """

    rank: int
    world: int
    launch: str
    local_rank: int = 0
    local_world: int = 1
    address: str = ""
    port: int = 0


def place_of(environment: Mapping[str, str]) -> Place | None:
    """Return the place of this process; None for a program of one process."""
    try:
        rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None
    if world < 2 or not 0 <= rank < world:
        return None
    shared = "\n".join(environment.get(name, "") for name in SHARED)
    return Place(
        rank,
        world,
        blake2b(shared.encode(), digest_size=6).hexdigest(),
        _number(environment, "LOCAL_RANK", 0),
        _number(environment, "LOCAL_WORLD_SIZE", 1),
        environment.get("MASTER_ADDR", ""),
        _number(environment, "MASTER_PORT", 0),
    )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else default
