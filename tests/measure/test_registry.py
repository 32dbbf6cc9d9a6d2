"""A workload is loaded from every kind of source, and a source without one gives an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuperf import kernels
from gpuperf.errors import CannotMeasure, UnknownName, UsageError, WorkloadError
from gpuperf.measure.registry import load_source
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.supervisor import Supervisor


def workload(name: str = "twice", axes: str = "", variable: str = "MINE") -> str:
    """The text of a workload, as short as one can be."""
    return f'''
from gpuperf import Axis, Bytes, Cost, Implementation, Workload

{variable} = Workload(
    name="{name}", summary="y = 2x", formula="n FLOP",
    axes=({axes or 'Axis("n", 64, main=True), Axis("dtype", "auto", choices=("fp32",))'},),
    inputs=lambda point, make: {{"x": make((point.n,), point.dtype)}},
    reference=lambda inputs, point: inputs["x"].double() * 2,
    cost=lambda point: Cost(bytes=(Bytes(4 * point.n, 4 * point.n),)),
    implementations=(Implementation("torch", lambda i, p, o: lambda: i["x"] * 2),),
)
'''


@pytest.fixture(autouse=True)
def untouched_imports() -> Iterator[None]:
    """What a test imports is forgotten after it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith(("torch", "gpuperf.")):
            del sys.modules[name]


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_our_own_workloads_load_by_walking_their_package() -> None:
    found, broken = load_source("gpuperf.kernels")
    assert {"matmul", "copy"} <= found.keys()
    assert broken == {}
    assert all(name == workload.name for name, workload in found.items())


def test_one_broken_module_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "sound.py", workload("sound"))
    write(tmp_path, "typo.py", "def broken(:\n")
    write(tmp_path, "absent.py", "import a_library_that_nobody_has\n")
    write(tmp_path, "nameless.py", workload("has a blank"))
    monkeypatch.setattr(kernels, "__path__", [*kernels.__path__, str(tmp_path)])
    found, broken = load_source("gpuperf.kernels")
    assert {"matmul", "copy", "sound"} <= found.keys()
    assert broken.keys() == {f"gpuperf.kernels.{n}" for n in ("typo", "absent", "nameless")}
    assert "a_library_that_nobody_has" in broken["gpuperf.kernels.absent"]
    for name in ("sound", "typo", "absent", "nameless"):
        sys.modules.pop(f"gpuperf.kernels.{name}", None)


def test_a_file_is_a_source(tmp_path: Path) -> None:
    found, broken = load_source(write(tmp_path, "mine.py", workload()))
    assert list(found) == ["twice"]
    assert broken == {}


def test_a_path_from_here_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine.py", workload())
    monkeypatch.chdir(tmp_path)
    assert list(load_source("./mine.py")[0]) == ["twice"]
    assert list(load_source("mine.py")[0]) == ["twice"]


def test_a_file_may_import_its_neighbour(tmp_path: Path) -> None:
    write(tmp_path, "registry_neighbour.py", "NAME = 'by_neighbour'\n")
    text = "from registry_neighbour import NAME\n" + workload().replace('"twice"', "NAME")
    assert list(load_source(write(tmp_path, "mine.py", text))[0]) == ["by_neighbour"]


def test_a_neighbour_cannot_stand_in_for_an_installed_library(tmp_path: Path) -> None:
    write(tmp_path, "colorsys.py", "raise RuntimeError('the wrong one')\n")
    text = "import colorsys\ncolorsys.rgb_to_hsv(0, 0, 0)\n" + workload()
    assert list(load_source(write(tmp_path, "mine.py", text))[0]) == ["twice"]


def test_two_workloads_in_one_file_both_load(tmp_path: Path) -> None:
    text = workload("first", variable="A") + workload("second", variable="B")
    assert list(load_source(write(tmp_path, "mine.py", text))[0]) == ["first", "second"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package beside the user, with a module of two workloads; found from the folder above."""
    text = workload("first", variable="A") + workload("second", variable="B") + "\nOTHER = 7\n"
    write(tmp_path, "registry_pkg/__init__.py", "")
    write(tmp_path, "registry_pkg/mod.py", text)
    monkeypatch.chdir(tmp_path)
    return "registry_pkg.mod"


def test_a_module_is_a_source(package: str) -> None:
    assert list(load_source(package)[0]) == ["first", "second"]


@pytest.mark.parametrize("name", ["B", "second"])
def test_one_of_a_module_is_named_by_its_variable_or_by_its_own_name(
    package: str, name: str
) -> None:
    assert list(load_source(f"{package}:{name}")[0]) == ["second"]


@pytest.mark.parametrize("name", ["secund", "OTHER"])
def test_a_name_that_is_no_workload_of_the_module_is_unknown(package: str, name: str) -> None:
    with pytest.raises(UnknownName, match=f"no workload '{name}'"):
        load_source(f"{package}:{name}")


def test_a_module_that_is_not_there_is_said_so() -> None:
    with pytest.raises(WorkloadError, match="No module named 'no_such_package'"):
        load_source("no_such_package.mod")


def test_a_file_that_is_not_there_is_the_callers_slip(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file '.*absent\.py'"):
        load_source(str(tmp_path / "absent.py"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ndef broken(:\n", r"mine\.py does not load: invalid syntax \(mine\.py line 2\)"),
        ("x = 1\n\n1 / 0\n", r"ZeroDivisionError: division by zero \(mine\.py line 3\)"),
        ("raise SystemExit(3)\n", r"SystemExit: 3 \(mine\.py line 1\)"),
        ("import registry_sick\n", r"expected ':' \(registry_sick\.py line 1\)"),
        ("x = 1\x00\n", "null bytes"),
        ("x = 1\n", r"mine\.py holds no Workload"),
        ("", r"mine\.py holds no Workload"),
    ],
    ids=["syntax", "exception", "exit", "neighbour", "null byte", "no workload", "empty"],
)
def test_a_file_that_does_not_load_is_reported_with_the_line(
    tmp_path: Path, text: str, message: str
) -> None:
    write(tmp_path, "registry_sick.py", "def f()\n")
    with pytest.raises(WorkloadError, match=message) as raised:
        load_source(write(tmp_path, "mine.py", text))
    assert raised.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            workload(axes='Axis("n", 1), Axis("n", 2), Axis("dtype", "auto", choices=("fp32",))'),
            "'twice' names an axis or an implementation twice",
        ),
        (workload(axes='Axis("n", 1)'), "'twice' has no axis 'dtype'"),
        (workload(axes='Axis("dtype", "auto")'), "an axis 'dtype' of words, and no choices"),
        (workload(axes='Axis("n", 1.5), Axis("dtype", "auto", choices=("fp32",))'), "described"),
        (workload("two words"), "the name 'two words', which is not letters"),
        (
            workload().replace(
                '(Implementation("torch", lambda i, p, o: lambda: i["x"] * 2),)', "()"
            ),
            "'twice' has no implementation",
        ),
        (workload(variable="A") + workload(variable="B"), "has two workloads named 'twice'"),
        (
            workload().replace('o: lambda: i["x"] * 2),)', 'o: lambda: i["x"] * 2))'),
            "'twice' has implementations that is not a tuple, but an Implementation",
        ),
        (
            workload().replace('choices=("fp32",)', 'choices=("fp32")'),
            "choices of the axis 'dtype' that is not a tuple, but a str",
        ),
        (
            workload().replace('Implementation("torch"', 'Implementation("F.torch"'),
            "'twice' has the implementation 'F.torch', which is not letters",
        ),
        (
            workload().replace('lambda i, p, o: lambda: i["x"] * 2', "None"),
            "an implementation 'torch' whose build is not a function",
        ),
    ],
    ids=[
        "axis twice",
        "no dtype",
        "no choices",
        "half an axis",
        "blank",
        "none",
        "name twice",
        "no comma",
        "no comma in choices",
        "a dot",
        "no build",
    ],
)
def test_a_malformed_workload_is_refused_with_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message) as raised:
        load_source(write(tmp_path, "mine.py", text))
    assert raised.value.hint
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (workload(axes='Axis("n", 1)'), 'add Axis("dtype", "auto", choices=("fp32", "bf16"))'),
        (workload().replace('"torch"', '"F.torch"'), "write 'F_torch'"),
        (workload().replace('o: lambda: i["x"] * 2),)', 'o: lambda: i["x"] * 2))'), "(one,)"),
        ("import no_such_library\n", "PYTHONPATH"),
    ],
    ids=["no dtype", "a dot", "no comma", "not installed"],
)
def test_the_hint_of_a_malformed_workload_says_what_to_write(
    tmp_path: Path, text: str, hint: str
) -> None:
    with pytest.raises(WorkloadError) as raised:
        load_source(write(tmp_path, "mine.py", text))
    assert hint in raised.value.hint


def test_a_file_may_import_the_package_of_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "registry_repo/__init__.py", "NAME = 'by_package'\n")
    text = "from registry_repo import NAME\n" + workload().replace('"twice"', "NAME")
    write(tmp_path, "bench/mine.py", text)
    monkeypatch.chdir(tmp_path)
    assert list(load_source("bench/mine.py")[0]) == ["by_package"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of site-packages whose one distribution brings workloads."""
    write(tmp_path, "registry_brought.py", workload("brought", variable="BROUGHT") + "\nN = 1\n")
    write(tmp_path, "bringer-1.0.dist-info/METADATA", "Name: bringer\nVersion: 1.0\n")
    entries = "brought = registry_brought:BROUGHT\nnumber = registry_brought:N\nlost = no_such_mod"
    write(tmp_path, "bringer-1.0.dist-info/entry_points.txt", f"[gpuperf.workloads]\n{entries}\n")
    return tmp_path


def test_an_entry_point_is_a_source(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed))
    assert list(load_source("entry:brought")[0]) == ["brought"]
    with pytest.raises(UnknownName, match="'brougth'; did you mean 'brought'"):
        load_source("entry:brougth")
    with pytest.raises(WorkloadError, match="entry:number is not a Workload: its type is int"):
        load_source("entry:number")
    with pytest.raises(WorkloadError, match=r"point lost of bringer does not load.*no_such_mod"):
        load_source("entry:lost")


def test_a_worker_loads_entry_points(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    with Supervisor(LocalLauncher(), "cpu") as supervisor:
        (brought,) = supervisor.describe("entry:brought").descriptions
        assert (brought.name, brought.source) == ("brought", "entry:brought")


def test_a_worker_outlives_bad_files_but_for_an_exit(tmp_path: Path) -> None:
    with Supervisor(LocalLauncher(), "cpu") as supervisor:
        with pytest.raises(WorkloadError, match=r"\(typo\.py line 1\)"):
            supervisor.describe(write(tmp_path, "typo.py", "def broken(:\n"))
        with pytest.raises(UsageError, match="no file"):
            supervisor.describe(str(tmp_path / "absent.py"))
        leaver = write(tmp_path, "leaver.py", "import os\nprint('bye')\nos._exit(5)\n")
        with pytest.raises(CannotMeasure, match=r"the worker died by exit code 5.*leaver\.py"):
            supervisor.describe(leaver)
        assert supervisor.describe(write(tmp_path, "mine.py", workload())).descriptions
