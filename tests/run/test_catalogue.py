"""Is the catalogue known without a worker, and never stale?"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpuperf import kernels
from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.model.protocol import Described
from gpuperf.model.workload import Axis, Description, ImplementationDescription
from gpuperf.run.cache import fetch, keep
from gpuperf.run.catalogue import builtin_catalogue, find_workload, whole_catalogue

AXES = (Axis("n", 64, main=True), Axis("dtype", "auto", choices=("fp32",)))


def description(name: str, source: str = "gpuperf.kernels") -> Description:
    torch = ImplementationDescription("torch", "by torch", {"tile": (64, 128)})
    return Description(name, f"the {name}", "n FLOP", AXES, (torch,), 1, source)


class Worker:
    """What a worker would say of each source; it counts how often it is asked."""

    def __init__(self, **sources: Described | Exception) -> None:
        self.sources = {"gpuperf.kernels": Described((description("zeta"), description("matmul")))}
        self.sources |= sources  # type: ignore[arg-type]
        self.asked: list[str] = []

    def describe(self, source: str) -> Described:
        self.asked.append(source)
        answer = self.sources[source]
        if isinstance(answer, Exception):
            raise answer
        return answer


def silent(source: str) -> Described:
    raise AssertionError(f"a worker was started to describe {source}")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workload's file in a folder that takes the place of our own kernels'."""
    folder = tmp_path / "ops"
    folder.mkdir()
    spec = find_spec("gpuperf.kernels")
    assert spec is kernels.__spec__
    monkeypatch.setattr(spec, "submodule_search_locations", [str(folder)])
    file = folder / "mine.py"
    file.write_text("VALUE = 1\n")
    return file


def test_the_catalogue_is_in_order_of_name() -> None:
    names = [d.name for d in builtin_catalogue(Worker().describe).descriptions]
    assert names == ["matmul", "zeta"]


def test_a_worker_is_asked_once_and_the_answer_comes_back_whole() -> None:
    worker = Worker()
    first = builtin_catalogue(worker.describe)
    assert worker.asked == ["gpuperf.kernels"]
    assert builtin_catalogue(silent) == first


def test_finding_a_workload_of_ours_needs_no_worker_once_it_is_known() -> None:
    builtin_catalogue(Worker().describe)
    assert find_workload("matmul", silent) == description("matmul")


def test_a_changed_kernel_file_is_described_anew(kernel: Path) -> None:
    builtin_catalogue(Worker().describe)
    assert builtin_catalogue(silent)
    worker = Worker()
    stamps = (kernel.stat().st_atime, kernel.stat().st_mtime)
    kernel.write_text("VALUE = 2\n")
    os.utime(kernel, stamps)  # the contents count, not the clock
    builtin_catalogue(worker.describe)
    assert worker.asked == ["gpuperf.kernels"]


def test_a_touched_kernel_file_is_not_described_anew(kernel: Path) -> None:
    builtin_catalogue(Worker().describe)
    os.utime(kernel, (1e9, 1e9))
    assert builtin_catalogue(silent)


@pytest.mark.parametrize("change", ["new", "renamed", "gone"])
def test_a_kernel_file_that_comes_or_goes_is_noticed(kernel: Path, change: str) -> None:
    builtin_catalogue(Worker().describe)
    if change == "new":
        kernel.with_name("other.py").write_text("")
    elif change == "renamed":
        kernel.rename(kernel.with_name("other.py"))
    else:
        kernel.unlink()
    worker = Worker()
    builtin_catalogue(worker.describe)
    assert worker.asked == ["gpuperf.kernels"]


@pytest.mark.parametrize("fact", ["gpuperf.__version__", "sys.version"])
def test_another_gpuperf_or_interpreter_describes_anew(
    fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builtin_catalogue(Worker().describe)
    monkeypatch.setattr(fact, "another")
    worker = Worker()
    builtin_catalogue(worker.describe)
    assert worker.asked == ["gpuperf.kernels"]


def test_a_catalogue_with_a_broken_file_is_not_kept_but_the_rest_of_it_serves() -> None:
    broken = {"gpuperf.kernels.typo": "SyntaxError: invalid syntax"}
    for _ in range(2):
        half = Described((description("matmul"),), broken)
        worker = Worker(**{"gpuperf.kernels": half})
        catalogue = builtin_catalogue(worker.describe)
        assert worker.asked == ["gpuperf.kernels"]
        assert catalogue.broken == broken
        assert catalogue.get("matmul") == description("matmul")
        assert catalogue.get("typo") is None


@pytest.mark.parametrize("rubbish", ["", "{", "[1, 2]", "\x00\xff"])
def test_a_spoilt_cache_is_no_cache(own_cache: Path, rubbish: str) -> None:
    builtin_catalogue(Worker().describe)
    (file,) = (own_cache / "catalogue").iterdir()
    file.write_text(rubbish)
    worker = Worker()
    assert builtin_catalogue(worker.describe).get("matmul")
    assert worker.asked == ["gpuperf.kernels"]
    assert builtin_catalogue(silent), "and it is mended"


def test_a_pipe_in_place_of_a_kept_file_is_not_waited_for(own_cache: Path) -> None:
    builtin_catalogue(Worker().describe)
    (file,) = (own_cache / "catalogue").iterdir()
    file.unlink()
    os.mkfifo(file)
    worker = Worker()
    assert builtin_catalogue(worker.describe).get("matmul")
    assert worker.asked == ["gpuperf.kernels"]


@pytest.mark.parametrize("umask", [0, 0o077])
def test_no_other_user_may_write_the_cache_whatever_the_umask(own_cache: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        keep("steps", "key", [1])
    finally:
        os.umask(before)
    made = (own_cache, own_cache / "steps", own_cache / "steps" / "key.json")
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700, 0o700, 0o600]
    assert fetch("steps", "key", list[int]) == [1]


def test_a_cache_that_others_could_write_is_closed_and_emptied(own_cache: Path) -> None:
    keep("steps", "key", [1])
    (own_cache / "steps").chmod(0o777)
    assert fetch("steps", "key", list[int]) is None
    assert stat.S_IMODE((own_cache / "steps").stat().st_mode) == 0o700
    keep("steps", "key", [2])
    assert fetch("steps", "key", list[int]) == [2]


def test_a_cache_of_another_user_is_neither_read_nor_written(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("steps", "key", [1])
    monkeypatch.setattr(os, "geteuid", lambda: own_cache.stat().st_uid + 1)
    assert fetch("steps", "key", list[int]) is None
    keep("steps", "other", [2])
    assert [path.name for path in (own_cache / "steps").iterdir()] == ["key.json"]


def test_a_cache_that_cannot_be_written_is_no_error(own_cache: Path) -> None:
    own_cache.write_text("a file where the folder should be")
    for _ in range(2):
        assert builtin_catalogue(Worker().describe).get("matmul")


@pytest.mark.parametrize(
    "op", ["./mine.py", "some/where/mine.py", "mine.py", "pkg.mod", "pkg.mod:NAME"]
)
def test_a_file_or_module_with_one_workload_needs_no_name(op: str) -> None:
    worker = Worker(**{op: Described((description("twice", op),))})
    assert find_workload(op, worker.describe) == description("twice", op)
    assert worker.asked == [op], "our own workloads are not asked for"


def test_one_of_several_in_a_file_is_named_after_a_colon() -> None:
    both = Described((description("first"), description("second")))
    worker = Worker(**{"./mine.py": both})
    assert find_workload("./mine.py:second", worker.describe).name == "second"
    with pytest.raises(UnknownName, match="no workload 'secnd'; did you mean 'second'"):
        find_workload("./mine.py:secnd", worker.describe)
    with pytest.raises(UsageError, match=r"\./mine\.py has 2 workloads") as raised:
        find_workload("./mine.py", worker.describe)
    assert raised.value.hint == "name one: ./mine.py:first"


def test_an_unknown_workload_is_told_the_nearest() -> None:
    with pytest.raises(UnknownName) as raised:
        find_workload("matmull", Worker().describe)
    assert str(raised.value) == "no workload 'matmull'; did you mean 'matmul'?"
    assert "gpuperf list" in raised.value.hint


@pytest.mark.parametrize("op", ["", "qqqqqqq", "matmul ", "MATMUL"])
def test_a_name_is_never_guessed_at(op: str) -> None:
    with pytest.raises(UnknownName):
        find_workload(op, Worker().describe)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a distribution with these entry points."""

    def place(lines: str) -> None:
        info = tmp_path / "site" / "bringer-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Name: bringer\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[gpuperf.workloads]\n{lines}\n")
        monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])

    return place


def test_an_entry_point_is_found_by_the_name_of_its_workload(
    install: Callable[[str], None],
) -> None:
    install("theirs = some.mod:THING")
    worker = Worker(**{"entry:theirs": Described((description("saxpy", "entry:theirs"),))})
    assert find_workload("saxpy", worker.describe).source == "entry:theirs"
    with pytest.raises(UnknownName, match="did you mean 'saxpy'"):
        find_workload("sxpy", worker.describe)


def test_a_broken_entry_point_hides_neither_ours_nor_the_others(
    install: Callable[[str], None],
) -> None:
    install("bad = some.mod:BAD\ngood = some.mod:GOOD")
    worker = Worker(
        **{
            "entry:bad": CannotMeasure("the worker died by exit code 5 while loading entry:bad"),
            "entry:good": Described((description("saxpy", "entry:good"),)),
        }
    )
    catalogue = whole_catalogue(worker.describe)
    assert [d.name for d in catalogue.descriptions] == ["matmul", "saxpy", "zeta"]
    assert catalogue.broken.keys() == {"entry:bad"}
    assert "exit code 5" in catalogue.broken["entry:bad"]
