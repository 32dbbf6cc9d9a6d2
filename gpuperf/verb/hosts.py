"""Make the supervisor of a gang whose ranks torchrun has started, on one host or on several.

Each of its processes runs the same gpuperf command. Rank 0 supervises; the others are agents, which
start the workers that rank 0 asks for, and end when it is done.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence

import typer

from gpuperf.errors import UsageError
from gpuperf.model.text import clean
from gpuperf.run.agent import Post, serve
from gpuperf.run.gang import GangLauncher
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.lobby import Lobby, RemoteLauncher, Rendezvous
from gpuperf.run.supervisor import Supervisor
from gpuperf.run.torchrun import Place, place_of
from gpuperf.verb.progress import say

PORT = "GPUPERF_PORT"  # variable of the port where the hosts meet, if not the one after torchrun's
MOST_PORT = 65535


def launched_place() -> Place | None:
    """Return the place of this process among those that torchrun started; None for one process."""
    return place_of(os.environ)


def this_host() -> str:
    """Return the name of this host: `$GPUPERF_HOST`, or what the machine calls itself."""
    return clean(os.environ.get("GPUPERF_HOST") or platform.node())


def launched_supervisor(
    place: Place, world: int, device: str, deadline_s: float, meanwhile: Callable[[], None]
) -> Supervisor:
    """Return the supervisor of the gang of all processes of the launch, in rank 0.

    Another rank serves until rank 0 is done. Raises: typer.Exit then; UsageError for a *world* that
    is not that of the launch; CannotMeasure where the ranks do not meet.
    """
    if world != place.world:
        raise UsageError(
            f"--gpus {world} and the {place.world} processes that torchrun started exclude each "
            "other",
            "leave --gpus out: each process is a rank",
        )
    meeting = Rendezvous(place.address, _port(place), place.launch)
    launcher = LocalLauncher(bool(os.environ.get("GPUPERF_DEBUG")))
    if place.rank:
        say(f"rank {place.rank} of {place.world} serves rank 0 at {place.address}")
        post = Post(place.rank, this_host(), place.local_rank, place.local_world)
        serve([post], meeting, launcher)
        raise typer.Exit(0)
    ranks = range(1, place.world)
    return supervisor_of_hosts(
        meeting, launcher, 1, ranks, this_host(), device, deadline_s, meanwhile
    )


def supervisor_of_hosts(
    meeting: Rendezvous,
    launcher: LocalLauncher,
    local: int,
    remote: Sequence[int],
    host: str,
    device: str,
    deadline_s: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> Supervisor:
    """Return the supervisor of *local* ranks on this *host*, and of those that agents serve.

    *remote* has the numbers of the agents' ranks. Raises: CannotMeasure for a port that is taken.
    """
    lobby = Lobby(meeting, remote)
    gang = GangLauncher(launcher, local, [RemoteLauncher(lobby, rank) for rank in remote], host)
    return Supervisor(gang, device, deadline_s, meanwhile=meanwhile, at_exit=lobby.close)


def _port(place: Place) -> int:
    """Return the port where the hosts meet. Raises: UsageError for none."""
    given = os.environ.get(PORT, "")
    port = int(given) if given.isascii() and given.isdecimal() and len(given) < 6 else 0
    if given and not 0 < port <= MOST_PORT:
        raise UsageError(f"{PORT} is {clean(given)[:40]!r}, and no port", f"{PORT}=29600")
    port = port or place.port + 1
    if not place.address or not 1 < port <= MOST_PORT:
        raise UsageError(
            "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT lead nowhere",
            "start it by torchrun, or unset RANK and WORLD_SIZE",
        )
    return port
