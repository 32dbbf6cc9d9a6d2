"""Prepare the code of each side of a gate, base and head.

The sides are two commits of one repository, each in a worktree of its own that a command may set
up, or two interpreters. The worker of both sides is that of this gpuperf, so that only the measured
code differs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuperf.choices import KEPT, PREFERRED
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import read_regular
from gpuperf.model.toml import parse_toml
from gpuperf.run.launcher import Place

Label = Literal["base", "head"]
LABELS: tuple[Label, Label] = ("base", "head")
NEAR = 2  # the deepest level of folders below the top on which a package may be
LARGEST = 1 << 20  # bytes of a pyproject.toml
LONGEST = 300  # characters of another program's message


@dataclass(frozen=True)
class Side:
    """One side: its name, the place where it runs, and its commit where it has one."""

    label: Label
    name: str
    place: Place
    commit: str = ""


def interpreters(base: str, head: str, caches: Path) -> tuple[Side, Side]:
    """Return sides of the same folder under two interpreters. Raises: UsageError."""
    return (_interpreted("base", base, caches), _interpreted("head", head, caches))


def _interpreted(label: Label, python: str, caches: Path) -> Side:
    program = shutil.which(python)
    if program is None:
        raise UsageError(f"{python} of the {label} is not a program", "give the path of a python")
    path = Path(program).absolute()
    place = Place(python=str(path), environment=_caches(caches, label))
    same = path == Path(sys.executable).absolute()
    return Side(label, "this interpreter" if same else python, place)


@dataclass(frozen=True)
class Commits:
    """Two commits of the repository at *top*, with the user's names for them."""

    top: Path
    base: str
    head: str
    base_commit: str
    head_commit: str

    @property
    def trees(self) -> tuple[str, str]:
        """Return the git trees of base and head, which are equal if their files are."""
        base, head = (
            _git(self.top, "rev-parse", f"{commit}^{{tree}}")
            for commit in (self.base_commit, self.head_commit)
        )
        return base, head


def resolve(base: str, head: str, dirty: bool = False) -> Commits:
    """Resolve *base*, a commit, and *head*, a commit or the folder of a worktree.

    The repository is that of the head's folder, else of the working folder. With *dirty* changes to
    tracked files that are not committed are measured too. Raises: UsageError if there is no
    repository or no commit, or, without *dirty*, if there are such changes.
    """
    folder = Path(head).is_dir()
    if folder and not head.startswith((".", "/")) and _is_commit(head):
        raise UsageError(f"{head!r} is a folder and a commit", f"give --head ./{head}, or its hash")
    here = Path(head) if folder else Path()
    hint = "go to a git repository, or compare two interpreters with --base-python"
    top = Path(_git(here, "rev-parse", "--show-toplevel", hint=hint))
    named = "this worktree" if head == "." else head
    return Commits(top, base, named, _commit(top, base), _head_commit(top, head, dirty))


def show(commits: Commits, commit: str, file: str) -> str | None:
    """Return the text of *file* in *commit*; None if the commit lacks it, or if its path lies
    outside of the repository. Raises: UsageError if git fails."""
    path, top = Path(file).resolve(), commits.top.resolve()
    if not path.is_relative_to(top):
        return None
    inside = path.relative_to(top).as_posix()
    if not _git(commits.top, "ls-tree", commit, "--", inside):
        return None
    return _git(commits.top, "show", f"{commit}:{inside}")


@contextlib.contextmanager
def worktrees(
    commits: Commits, folder: Path, setup: str, say: Callable[[str], None]
) -> Iterator[tuple[Side, Side]]:
    """Check out both commits under *folder*, and remove them at the end.

    The shell command *setup* runs in each worktree. A `.venv/bin/python` in a worktree is the
    interpreter of its side. Raises: UsageError; CannotMeasure if the setup fails.
    """
    made: list[Path] = []
    try:
        for label, commit in (("base", commits.base_commit), ("head", commits.head_commit)):
            path = (folder / label).absolute()
            if path.exists():  # left by a gate that was killed
                _remove(commits.top, path)
            made.append(path)
            _git(commits.top, "worktree", "add", "--detach", "--force", str(path), commit)
            if setup:
                say(f"setting up the {label}: {setup}")
                _set_up(path, label, setup, folder / f"setup-{label}.log")
        yield (
            _checked_out("base", commits.base, commits.base_commit, folder),
            _checked_out("head", commits.head, commits.head_commit, folder),
        )
    finally:
        for path in made:
            _remove(commits.top, path)


def _checked_out(label: Label, name: str, commit: str, folder: Path) -> Side:
    root = (folder / label).absolute()
    own = root / ".venv" / "bin" / "python"
    paths = [str(p) for p in (root / "src", root) if p.is_dir()]
    place = Place(
        python=str(own) if own.exists() else sys.executable,
        folder=str(root),
        paths=tuple(paths),
        kernels=str(root / "kernels" / "ops") if is_gpuperf(root) else "",
        environment=_caches(folder / "caches", label, together=not own.exists()),
    )
    return Side(label, f"{name} ({commit[:10]})", place, commit)


def is_gpuperf(root: Path) -> bool:
    """Return whether the worktree at *root* is gpuperf's own: then its kernels are measured."""
    try:
        project = parse_toml(read_regular(root / "pyproject.toml", LARGEST).decode())
    except (OSError, ValueError):
        return False
    table = project.get("project", {})
    return isinstance(table, dict) and table.get("name") == "gpuperf"


def _caches(folder: Path, label: Label, together: bool = False) -> dict[str, str]:
    """Return environment variables that give the side its own caches of compiled code and tuned
    choices; the head prefers the choices of the base if they are as fast.

    Sides with one interpreter may have caches *together* whose keys are hashes of all that was
    compiled: what the head has not changed is compiled once.
    """
    at, base = folder.absolute() / label, folder.absolute() / "base"
    shared = folder.absolute() if together else at
    preferred = {PREFERRED: str(base / "choices")} if label == "head" else {}
    return {
        **preferred,
        KEPT: str(at / "choices"),
        "TRITON_CACHE_DIR": str(shared / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(shared / "inductor"),
        "TORCH_EXTENSIONS_DIR": str(at / "extensions"),
        "CUDA_CACHE_PATH": str(shared / "cuda"),
    }


def _head_commit(top: Path, head: str, dirty: bool) -> str:
    """Return the commit of *head*, a commit or a folder; if *dirty*, a new commit on no branch with
    the uncommitted changes of that folder."""
    if not Path(head).is_dir():
        return _commit(top, head)
    changed = _git(top, "status", "--porcelain", "--untracked-files=no").splitlines()
    if changed and not dirty:
        message = f"{len(changed)} files of {head} are not committed, such as {changed[0][3:]!r}"
        raise UsageError(message, "commit them, or measure tracked files as they are with --dirty")
    stashed = _git(top, "stash", "create") if changed else ""
    return stashed or _commit(top, "HEAD")


def _is_commit(name: str) -> bool:
    with contextlib.suppress(UsageError):
        return bool(_commit(Path(), name))
    return False


def _commit(top: Path, name: str) -> str:
    hint = "name a branch, a tag or a commit; in CI fetch it first (fetch-depth: 0)"
    if name.startswith("-"):
        raise UsageError(f"{name!r} is not a commit", hint)
    message = f"there is no commit {name!r} in {top.name}"
    words = ("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return _git(top, *words, hint=hint, message=message)


def _git(folder: Path, *words: str, hint: str = "", message: str = "") -> str:
    """Return the output of git, or raise UsageError with *message*, else with git's own."""
    command = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}", "install git") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["without a message"])[-1][:LONGEST]
        raise UsageError(message or f"git {words[0]} failed: {last}", hint)
    return done.stdout.rstrip()


def _remove(top: Path, path: Path) -> None:
    with contextlib.suppress(UsageError):
        _git(top, "worktree", "remove", "--force", str(path))
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(UsageError):
        _git(top, "worktree", "prune")


def _set_up(path: Path, label: str, setup: str, log: Path) -> None:
    """Run the shell command *setup* in the folder *path*, with its output in *log*.

    Raises: CannotMeasure if it fails.
    """
    with log.open("wb") as file:
        process = subprocess.Popen(
            setup,
            shell=True,
            cwd=path,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "GPUPERF_SIDE": label},
            start_new_session=True,
        )
        try:
            code = process.wait()
        finally:  # programs that it started would disturb the measurement
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = f": {lines[-1][:LONGEST]}" if lines else ""
        raise CannotMeasure(
            f"the setup of the {label} ended with exit code {code}{last}",
            f"see its output in {log}",
        )


def packages_of(side: Side) -> tuple[str, ...]:
    """Return the packages near the top of a worktree: `mylib`, `src/mylib`, `python/mylib`."""
    listed = _git(Path(side.place.folder), "ls-files", "*__init__.py").splitlines()
    folders = [Path(file).parent for file in listed]
    return tuple({f.name for f in folders if f.name and len(f.parts) <= NEAR} - {"gpuperf"})


def refuse_foreign(side: Side, loaded: Mapping[str, str], repository: Path) -> int:
    """Return how many of the modules *loaded* (name: file) come from the worktree of *side*.

    Raises: CannotMeasure if a module that the worktree has was loaded from elsewhere: the other
    side, or an installed package, would be measured in its place. Modules that a compiler wrote
    into a cache of the side are not checked: they have the names of neither side.
    """
    root = Path(side.place.folder).resolve()
    named = packages_of(side)
    own = {name for name, file in loaded.items() if Path(file).is_relative_to(root)}
    caches = [Path(folder).resolve() for folder in side.place.environment.values()]
    for name, file in loaded.items():
        if any(Path(file).is_relative_to(cache) for cache in caches):
            continue
        # A module whose file the worktree has not was installed beside one of its packages.
        alone = name.split(".")[0] in named and not _also_in(root, name, file)
        if name not in own and (_inside(file, repository) or not alone):
            raise CannotMeasure(
                f"the {side.label} imports {name} from …/{'/'.join(Path(file).parts[-4:-1])}, and "
                "not from its worktree",
                "install it there: --setup 'python -m venv .venv && .venv/bin/pip install .'",
            )
    return len(own)


def _inside(file: str, repository: Path) -> bool:
    """Return whether *file* lies in the repository, but not in a package installed there."""
    path = Path(file)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return not installed and path.is_relative_to(repository.resolve())


def _also_in(root: Path, name: str, file: str) -> bool:
    """Return whether the worktree *root* has the *file* of module *name*, at or below its top."""
    parts = Path(file).parts
    package = name.split(".")[0]
    if package not in parts:
        return False
    tail = Path(*parts[len(parts) - 1 - parts[::-1].index(package) :])
    return any((folder / tail).exists() for folder in (root, *root.iterdir()))
