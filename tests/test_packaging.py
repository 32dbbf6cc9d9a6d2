"""What is installed is whole: the package list, the wheel out of the sdist, and the editable."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def packages() -> dict[str, Path]:
    """Every folder with an `__init__.py`, by the name that it is imported under."""
    tops = {
        "gpuperf": "gpuperf",
        "kernels/ops": "gpuperf.kernels",
        "kernels/cuda": "gpuperf.kernels.cuda",
        "kernels/lab": "gpuperf.lab_experiments",
        "configs": "gpuperf.configs",
    }
    found = {}
    for top, name in tops.items():
        for init in (ROOT / top).rglob("__init__.py"):
            inside = init.parent.relative_to(ROOT / top).parts
            found[".".join((name, *inside))] = init.parent
    return found


def test_the_package_list_names_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["setuptools"]["packages"]) == set(packages())


def test_kernels_itself_is_no_package() -> None:
    # An importable top-level `kernels` would shadow Hugging Face's.
    assert not (ROOT / "kernels" / "__init__.py").exists()
    assert not (ROOT / "tests" / "__init__.py").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the sdist, as an index would serve it."""
    folder = tmp_path_factory.mktemp("dist")
    build = (
        "import os, sys; from setuptools import build_meta as b; os.chdir(sys.argv[1]);"
        "print(getattr(b, 'build_' + sys.argv[2])(sys.argv[3]))"
    )

    def run(tree: Path, kind: str) -> Path:
        done = subprocess.run(
            [sys.executable, "-c", build, str(tree), kind, str(folder)],
            capture_output=True,
            text=True,
            check=True,
        )
        return folder / done.stdout.strip().splitlines()[-1]

    clone = folder / "clone"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in listed:
        source, target = ROOT / name, clone / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    sdist = run(clone, "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    return run(next((folder / "unpacked").iterdir()), "wheel")


def test_the_wheel_holds_every_module_and_every_data_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for package, folder in packages().items():
        for file in folder.iterdir():
            if file.suffix in (".py", ".cu", ".yml", ".css", ".js") or file.name == "py.typed":
                assert f"{package.replace('.', '/')}/{file.name}" in names
    devices = {f"gpuperf/configs/devices/{p.name}" for p in (ROOT / "configs/devices").iterdir()}
    assert len(devices) >= 32
    assert devices <= names
    assert not any(name.startswith(("tests/", "kernels/", "configs/")) for name in names)


PROBE = """
import importlib.resources, pkgutil, importlib.util, gpuperf, sys
spec = importlib.util.find_spec("gpuperf.kernels")
names = [m.name for m in pkgutil.iter_modules(spec.submodule_search_locations)]
assert "matmul" in names, names
assert (importlib.resources.files("gpuperf.kernels.cuda") / "timing.cu").is_file()
from gpuperf.peaks.find import builtin_peaks
assert len(builtin_peaks()) >= 32
assert importlib.util.find_spec("kernels") is None
print(gpuperf.__file__)
"""


def test_the_wheel_works_from_another_directory(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    program = f"import sys; sys.path.insert(0, {str(site)!r})\n{PROBE}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site))


def test_what_is_installed_here_works_from_another_directory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROBE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
