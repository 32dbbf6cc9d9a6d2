"""Does each side run its own code, prepared and cleared away, or is the gate refused?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_sides import plan_of
from repositories import git

from gpuperf.choices import KEPT, PREFERRED
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.gate.run import sides_of
from gpuperf.gate.sides import (
    Side,
    interpreters,
    packages_of,
    refuse_foreign,
    resolve,
    show,
    worktrees,
)
from gpuperf.run.launcher import LocalLauncher, Place
from gpuperf.run.supervisor import Supervisor


def prepare(folder: Path, setup: str = "", dirty: bool = False) -> tuple[str, str]:
    said: list[str] = []
    with worktrees(resolve("HEAD~1", ".", dirty), folder, setup, said.append) as sides:
        assert [side.label for side in sides] == ["base", "head"]
        texts = [(Path(s.place.folder) / "mylib/__init__.py").read_text() for s in sides]
    return texts[0], texts[1]


def test_each_side_is_its_own_commit_and_nothing_is_left_behind(
    project: Path, tmp_path: Path
) -> None:
    assert prepare(tmp_path / "gate") == ('NAME = "one"\n', 'NAME = "two"\n')
    assert not (tmp_path / "gate" / "base").exists()
    assert git(project, "worktree", "list").count("\n") == 0


def test_a_dirty_worktree_is_refused_unless_it_is_asked_for(project: Path, tmp_path: Path) -> None:
    (project / "mylib" / "__init__.py").write_text('NAME = "three"\n')
    with pytest.raises(
        UsageError, match=r"1 files of \. are not committed, such as 'mylib/__init__.py'"
    ):
        resolve("HEAD~1", ".")
    assert prepare(tmp_path / "gate", dirty=True)[1] == 'NAME = "three"\n'
    assert git(project, "status", "--porcelain") == "M mylib/__init__.py"


def test_a_commit_that_is_none_is_an_error_with_a_hint(project: Path) -> None:
    with pytest.raises(UsageError, match="there is no commit 'mian'") as error:
        resolve("mian", ".")
    assert "fetch-depth" in error.value.hint
    with pytest.raises(UsageError, match="is not a commit"):
        resolve("--upload-pack=evil", ".")


def test_outside_of_a_repository_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="git rev-parse failed"):
        resolve("HEAD", ".")


def test_a_setup_that_fails_says_what_it_said(project: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="the base ended with exit code 3: no nvcc") as error:
        prepare(tmp_path / "gate", setup="echo no nvcc; exit 3")
    assert error.value.exit_code == 3
    assert (tmp_path / "gate" / "setup-base.log").read_text() == "no nvcc\n"
    assert not (tmp_path / "gate" / "base").exists()


def test_a_setup_runs_in_each_worktree(project: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    prepare(tmp_path / "gate", setup=f'echo "$GPUPERF_SIDE $PWD" >> {seen}')
    lines = seen.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["base", "head"]
    assert lines[0].endswith("/gate/base")


def test_the_worktree_of_a_gate_that_was_killed_is_replaced(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gate"
    git(project, "worktree", "add", "--detach", str(folder / "base"), "HEAD")
    assert prepare(folder)[0] == 'NAME = "one"\n'


def test_hooks_of_the_repository_do_not_run(project: Path, tmp_path: Path) -> None:
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    prepare(tmp_path / "gate")
    assert not (tmp_path / "ran").exists()


def test_a_file_of_a_commit_is_read_and_no_path_outside(project: Path) -> None:
    commits = resolve("HEAD~1", ".")
    assert show(commits, commits.base_commit, "./mylib/__init__.py") == 'NAME = "one"'
    assert show(commits, commits.base_commit, "missing.toml") is None
    assert show(commits, commits.base_commit, "../../etc/passwd") is None
    assert show(commits, commits.base_commit, "/etc/passwd") is None


def test_an_interpreter_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a program"):
        interpreters("/no/python", sys.executable, tmp_path)


def test_the_caches_of_the_sides_are_apart(tmp_path: Path) -> None:
    base, head = interpreters(sys.executable, sys.executable, tmp_path)
    own = dict(head.place.environment)
    assert own.pop(PREFERRED) == base.place.environment[KEPT]
    assert base.place.environment.keys() == own.keys()
    assert not set(base.place.environment.values()) & set(own.values())


def test_worktrees_with_one_interpreter_compile_what_is_the_same_once(
    project: Path, tmp_path: Path
) -> None:
    with worktrees(resolve("HEAD~1", "."), tmp_path / "gate", "", lambda text: None) as sides:
        base, head = (side.place.environment for side in sides)
        assert base["TRITON_CACHE_DIR"] == head["TRITON_CACHE_DIR"]
        assert base["TORCH_EXTENSIONS_DIR"] != head["TORCH_EXTENSIONS_DIR"]
        assert base[KEPT] != head[KEPT]


def test_a_module_in_a_cache_of_the_gate_is_no_copy_of_the_project(project: Path) -> None:
    with worktrees(resolve("HEAD~1", "."), project / "gate", "", lambda text: None) as sides:
        launcher = Path(sides[0].place.environment["TRITON_CACHE_DIR"], "ABC", "cuda_utils.so")
        assert refuse_foreign(sides[0], {"cuda_utils": str(launcher)}, project) == 0


def test_a_worker_at_a_side_loads_that_sides_code_under_this_gpuperf(
    project: Path, tmp_path: Path
) -> None:
    with worktrees(resolve("HEAD~1", "."), tmp_path / "gate", "", lambda text: None) as sides:
        found = {}
        for side in sides:
            with Supervisor(LocalLauncher(place=side.place), "cpu") as supervisor:
                described = supervisor.describe("./double.py").descriptions
                loaded = supervisor.loaded((str(project), side.place.folder), packages_of(side))
            found[side.label] = described[0].summary
            assert refuse_foreign(side, loaded, project) == 2
        assert found == {"base": "one", "head": "two"}


def test_a_side_that_imports_another_copy_is_refused(project: Path, tmp_path: Path) -> None:
    with worktrees(resolve("HEAD~1", "."), tmp_path / "gate", "", lambda text: None) as sides:
        side = sides[0]
        for file in (
            project / "mylib" / "__init__.py",
            tmp_path / "lib/site-packages/mylib/__init__.py",
        ):
            with pytest.raises(CannotMeasure, match="the base imports mylib from"):
                refuse_foreign(side, {"mylib": str(file)}, project)
        compiled = tmp_path / "lib/site-packages/mylib_cuda.so"  # of the same distribution
        with pytest.raises(CannotMeasure, match="the base imports mylib_cuda from"):
            refuse_foreign(side, {"mylib_cuda": str(compiled)}, project)
        namesake = tmp_path / "lib/site-packages/mylib/other.py"  # another package of that name
        assert refuse_foreign(side, {"mylib.other": str(namesake)}, project) == 0


def test_a_place_is_said_in_one_argument_and_needs_nothing_installed() -> None:
    place = Place(python=sys.executable, paths=("/a",), kernels="/k/ops")
    command = place.command("gpuperf.measure.spawned")
    assert command[:2] == [sys.executable, "-P"]
    asked = json.loads(command[3])
    assert asked["packages"]["gpuperf.kernels"] == "/k/ops"
    assert asked["packages"]["gpuperf.kernels.cuda"] == "/k/cuda"
    assert Path(asked["packages"]["gpuperf"]).name == "gpuperf"
    assert Path(command[2]).is_file()


def test_code_of_a_side_comes_before_what_is_installed_and_behind_the_standard_library(
    tmp_path: Path,
) -> None:
    from gpuperf.measure import bootstrap

    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "typer.py").write_text("NAME = 'mine'")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(bootstrap.__file__).parent)!r})\n"
        f"import bootstrap; bootstrap.before_installed([{str(tmp_path)!r}])\n"
        "import json, typer; print(typer.NAME)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.stdout.strip() == "mine"


def test_a_side_says_its_commit(project: Path, tmp_path: Path) -> None:
    with worktrees(resolve("HEAD~1", "."), tmp_path / "gate", "", lambda text: None) as sides:
        base: Side = sides[0]
        assert base.commit == git(project, "rev-parse", "HEAD~1")
        assert base.name == f"HEAD~1 ({base.commit[:10]})"


def test_a_gate_of_two_interpreters_needs_no_repository(tmp_path: Path) -> None:
    plan = plan_of(base_python=sys.executable, head_python="/bin/sh", top=str(tmp_path / "none"))
    with sides_of(plan, tmp_path) as (base, head):
        assert (base.name, head.name) == ("this interpreter", "/bin/sh")
        assert (base.place.python, head.place.python) == (sys.executable, "/bin/sh")
