"""Make the command that judges inside a container."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from gpuperf.errors import CannotMeasure

ENGINES = ("podman", "docker")
IMAGE = "python:3.12-slim"  # gpuperf must be installed in it: an image of your own is better


def container_command(submission: Path, against: Path, words: Sequence[str]) -> str:
    """Return the command that runs `gpuperf` *words* in a container without a network.

    The folders of both files are mounted read-only. Raises: CannotMeasure without an engine.
    """
    engine = next((name for name in ENGINES if shutil.which(name)), None)
    if engine is None:
        raise CannotMeasure(
            "neither podman nor docker is installed", "use --isolation sandbox, or install one"
        )
    folders = sorted({str(path.absolute().parent) for path in (submission, against)})
    mounts = [part for folder in folders for part in ("--volume", f"{folder}:{folder}:ro")]
    inside = [word for word in words if word not in ("--isolation", "container")]
    inside = [word for word in inside if word != "--isolation=container"]
    command = [
        engine,
        "run",
        "--rm",
        "--network=none",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--pids-limit=1024",
        *mounts,
        f"--workdir={Path.cwd()}",
        IMAGE,
        "gpuperf",
        *inside,
    ]
    return shlex.join(command)
