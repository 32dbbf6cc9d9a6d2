"""Run the unit on every host of a fleet by an engine, and keep the shards that come back."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuperf.errors import UnknownName, UsageError
from gpuperf.files import read_regular, write_atomically
from gpuperf.fleet.collection import EXPECTED, SUFFIX, read_collection
from gpuperf.fleet.engines.engine import Answer, Engine, Job
from gpuperf.fleet.shard import Broken, Expected, Shard, encode_line, parse_pieces
from gpuperf.model.text import clean, shorten
from gpuperf.run.suite import LARGEST_FILE, hash_of_suite, load_suite, suites

ENGINES = ("local", "ssh", "ray", "submitit")
LONGEST = 300  # characters of the reason of a host


@dataclass(frozen=True)
class FleetRun:
    """What the hosts of a fleet measure: a suite, the words of `gpuperf` on the hosts, and further
    options of the unit."""

    suite: str
    hosts: tuple[str, ...]
    program: tuple[str, ...]
    options: tuple[str, ...]
    fleet: str = ""

    @property
    def asked(self) -> tuple[str, ...]:
        """The words of a command line that ask the same of each host."""
        return ("--suite", self.suite, *self.options)

    @property
    def suite_hash(self) -> str:
        """A hash of the suite. Raises: UsageError for one that is none."""
        return hash_of_suite(load_suite(self.suite))

    def words(self, host: str) -> list[str]:
        """Return the command of *host*, which writes its shard to stdout."""
        suite = self.suite if self.suite in suites() else "-"
        named = ["--host", host, "--fleet", self.fleet, "--shard", "-"]
        return [*self.program, "fleet", "unit", "--suite", suite, *named, *self.options]

    def stdin(self) -> bytes:
        """Return the suite, if it is a file; built-in ones are on each host."""
        if self.suite in suites():
            return b""
        return read_regular(self.suite, LARGEST_FILE)


@dataclass(frozen=True)
class HostResult:
    """What became of one host: the number of its rows, or the reason why it has no whole shard."""

    host: str
    rows: int = 0
    reason: str = ""
    code: int = 0


def new_fleet_id() -> str:
    """Return an id of the time and six letters, as run files have."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def program_of(text: str | None, by_python: bool) -> tuple[str, ...]:
    """Return the words of `gpuperf` on the hosts.

    Without *text*, an engine that runs Python on its hosts uses that interpreter, which an empty
    word stands for. Raises: UsageError.
    """
    if text is None:
        return ("", "-P", "-m", "gpuperf") if by_python else ("gpuperf",)
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--program cannot be split into words: {error}", "quote it") from None
    if not words:
        raise UsageError("--program is empty", "--program /opt/venv/bin/gpuperf")
    return words


def engine_of(name: str, folder: Path) -> Engine:
    """Return the engine *name*, whose own files go to *folder*.

    Raises: UnknownName; CannotMeasure where it is not installed."""
    if name == "local":
        from gpuperf.fleet.engines.local import LocalEngine

        return LocalEngine()
    if name == "ssh":
        from gpuperf.fleet.engines.ssh import SshEngine

        return SshEngine()
    if name == "ray":
        from gpuperf.fleet.engines.ray_nodes import RayEngine

        return RayEngine()
    if name == "submitit":
        from gpuperf.fleet.engines.submitit_jobs import SubmititEngine

        return SubmititEngine(folder / "submitit")
    raise UnknownName("engine", name, ENGINES)


def begin_fleet(run: FleetRun, folder: Path) -> FleetRun:
    """Write the hosts of *run* to *folder*, so that a lost shard is noticed, and what they are
    asked; return *run* with a new id.

    Raises: UsageError where *folder* already has shards or cannot be written, or without a suite.
    """
    if folder.is_dir() and any(folder.glob(f"*{SUFFIX}")):
        raise UsageError(
            f"{folder} already has shards",
            "choose another --out, or measure the hosts that it lacks with --resume",
        )
    run = replace(run, fleet=new_fleet_id())
    expected = Expected(tuple(sorted(run.hosts)), run.fleet, run.asked, run.suite_hash)
    _write(folder / EXPECTED, encode_line(expected))
    return run


def rest_of_fleet(run: FleetRun, folder: Path) -> FleetRun:
    """Return *run* with the id of the fleet run in *folder*, and its hosts without a whole shard.

    Raises: UsageError for a folder without a fleet run, with a complete one, or with one that asked
    something else of its hosts.
    """
    asked_now = run.asked[2:], run.suite_hash  # without the name of the suite
    collection = read_collection([folder])
    if collection.expected is None:
        raise UsageError(f"{folder} has no fleet run", "leave out --resume to begin one")
    unsound = {broken.host for broken in collection.broken}
    whole = {shard.head.host for shard in collection.shards} - unsound
    hosts = tuple(host for host in collection.expected.hosts if host not in whole)
    if not hosts:
        raise UsageError(f"{folder} has a whole shard of each host", "gpuperf fleet judge")
    then = collection.expected
    if then.asked and (then.asked[2:], then.suite_hash) != asked_now:
        other = "another suite of this name" if then.asked == run.asked else "other options"
        hint = shorten(clean(shlex.join(then.asked)), LONGEST)
        raise UsageError(f"the fleet run in {folder} had {other}", f"it was begun with {hint}")
    return replace(run, fleet=then.fleet, hosts=hosts)


def run_fleet(
    run: FleetRun, engine: Engine, folder: Path, deadline_s: float, at_once: int
) -> Iterator[HostResult]:
    """Run the unit on each host, write the shards to *folder*, and yield each host's result.

    Raises: UsageError where *folder* cannot be written.
    """
    job = Job(run.hosts, run.words, run.stdin(), deadline_s, at_once)
    for answer in engine.run(job):
        yield _kept(answer, run, folder)


def _kept(answer: Answer, run: FleetRun, folder: Path) -> HostResult:
    """Write the shard of *answer*, whole or not, and return what is wrong with it."""
    if answer.stdout.strip():
        _write(folder / f"{answer.host}{SUFFIX}", answer.stdout)
    rows, reason = _inspect(answer, run)
    if reason and not answer.reason and answer.code:
        reason = f"{reason}; exit code {answer.code}: {_last_line(answer.stderr)}"
    reason = answer.reason or reason
    return HostResult(answer.host, rows, shorten(clean(reason), LONGEST), answer.code)


def _inspect(answer: Answer, run: FleetRun) -> tuple[int, str]:
    """Return the rows of the shard in *answer*, and why it is not the whole shard of its host."""
    if not answer.stdout.strip():
        return 0, "it wrote no shard"
    pieces = parse_pieces(answer.stdout, "its answer")
    whole = [piece for piece in pieces if isinstance(piece, Shard)]
    broken = [piece.reason for piece in pieces if isinstance(piece, Broken)]
    if broken or len(whole) != 1:
        return 0, broken[0] if broken else f"it wrote {len(pieces)} shards"
    head = whole[0].head
    if head.host != answer.host or head.fleet != run.fleet:
        return 0, f"it reports the name of {head.host}" if head.host != answer.host else "is stale"
    return whole[0].rows, ""


def _last_line(text: str) -> str:
    lines: Sequence[str] = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("gpuperf: ")]
    return (errors or lines or ["no message"])[-1]


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", "choose another --out"
        ) from None
