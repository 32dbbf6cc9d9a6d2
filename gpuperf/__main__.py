"""Run the command line, and before that begin the worker of a verb that measures.

A worker imports torch for seconds, so it starts before typer and the verb's modules are imported. A
worker that turns out unneeded, as after a bad option, is ended silently.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from gpuperf.verb.registry import verbs
from gpuperf.verb.words import HELP

# Options with which a verb starts no worker, or one of another environment, or forks.
OTHER_WORKERS = {"--threads", "--processes", "--hosts", "--dry-run", "--debug", *HELP}


def main() -> None:
    """Run the command line and exit with its code."""
    if not starts_worker(sys.argv[1:]):
        _run()
        return
    from gpuperf.run import starting  # here, as other verbs start no process

    with contextlib.suppress(OSError):  # the launcher tries again, and reports it
        starting.begin()
    try:
        _run()
    finally:
        starting.end()


def starts_worker(words: Sequence[str]) -> bool:
    """Return whether the command line *words* starts a worker that differs in nothing from
    `LocalLauncher()`, as far as its options say."""
    verb = verbs().get(words[0]) if words else None
    if verb is None or not verb.measures or verb.group or os.environ.get("GPUPERF_DEBUG"):
        return False
    if None in (sys.stdin, sys.stdout, sys.stderr):
        return False  # a pipe to the worker would take the number of a closed stream
    return not OTHER_WORKERS & {word.partition("=")[0] for word in words}


def _run() -> None:
    from gpuperf.app import main  # here, as it imports typer

    main()


if __name__ == "__main__":
    main()
