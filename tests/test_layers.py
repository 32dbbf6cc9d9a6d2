"""Imports point only downwards, and heavy libraries stay in the rooms that need them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gpuperf"

GROUND = {"choices", "errors", "files", "units", "nvrtc", "jit", "marks"}
# What each layer may import of the others; every layer may import itself and the ground.
LAYERS = {
    "model": set(),
    "peaks": {"model"},
    "tiles": {"model"},
    "measure": {"model"},
    "run": {"model", "peaks"},
    "show": {"model", "peaks", "tiles"},
    "verb": {"model", "peaks", "tiles", "run", "show"},
}
# A feature may import every layer but `measure`, and of other features those that are listed here.
BELOW = LAYERS.keys() - {"measure"}
FEATURES = {
    "alignment": {"roofline"},
    "baseline": {"gate"},
    "calibrate": set(),
    "ci": set(),
    "compare": {"roofline"},
    "devices": set(),
    "doctor": set(),
    "explain": {"roofline"},
    "gate": {"roofline"},
    "history": set(),
    "importing": {"profile"},
    "listing": set(),
    "profile": {"roofline", "explain"},
    "roofline": set(),
    "running": set(),
    "showing": set(),
    "timing_check": set(),
    "waves": {"roofline"},
}
# A part of a feature that runs in another process, and what it may import.
APART = {"profile/inside": {"model", "measure"}}
# Library → the places that may import it at all.
HEAVY = {
    "torch": ("measure", "kernels", "jit", "profile/inside"),
    "triton": ("measure", "kernels", "jit", "profile/inside"),
    "pynvml": ("measure", "kernels"),
    "cuda": ("measure", "kernels", "nvrtc"),
    "typer": ("app", "verb", "*/command*"),
    "matplotlib": ("show/figure", "*/chart", "roofline/canvas", "history/trend", "waves/heatmap"),
}
# These cost hundreds of milliseconds: inside functions only, wherever they are.
LATE = {"pandas", "scipy", "matplotlib"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py")) + sorted((ROOT / "kernels").rglob("*.py"))


def place(path: Path) -> str:
    """Return `measure/timers/wall` for gpuperf/measure/timers/wall.py, `units` for units.py."""
    if path.is_relative_to(ROOT / "kernels"):
        return "kernels"
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def allowed(room: str, here: str) -> set[str]:
    """Return the rooms besides its own that a module *here* in *room* may import."""
    for part, rooms in APART.items():
        if here.startswith(f"{part}/"):
            return rooms
    return LAYERS[room] if room in LAYERS else BELOW | FEATURES[room]


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every absolute module name that *path* imports, and whether at the top of the module.

    Imports that only a type checker sees do not count.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    unseen = {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for statement in branch.body
        for node in ast.walk(statement)
    }
    top = set(tree.body)
    for node in ast.walk(tree):
        if node in unseen:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node in top
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = ("gpuperf", *path.relative_to(PACKAGE).parts[:-1])
                kept = parts[: len(parts) - node.level + 1]
                base = ".".join((*kept, base)) if base else ".".join(kept)
            yield base, node in top
            if base == "gpuperf":
                for alias in node.names:
                    yield f"gpuperf.{alias.name}", node in top


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_point_downwards(path: Path) -> None:
    here = place(path)
    room = here.split("/")[0]
    for name, _ in imports(path):
        parts = name.split(".")
        if parts[0] != "gpuperf" or len(parts) == 1 or parts[1] in GROUND | {room}:
            continue
        assert parts[1] != "kernels", "the registry finds workloads; nothing imports them"
        if here == f"{room}/__init__" and room in FEATURES:
            assert parts[1] == "verb", f"{here} describes its verb, and imports nothing else"
        elif room in LAYERS or room in FEATURES:
            assert parts[1] in allowed(room, here), f"{here} must not import {name}"
        elif room == "kernels":
            assert parts[1][0].isupper(), f"a workload needs the public API only, not {name}"
        else:
            above = room in ("__init__", "__main__", "app")
            assert above, f"{room} is the ground: it must not import {name}"


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    for name, at_top in imports(path):
        library = name.split(".")[0]
        if library in HEAVY:
            homes = HEAVY[library]
            here = place(path)
            home = any(here == h or here.startswith(f"{h}/") or fnmatch(here, h) for h in homes)
            assert home, f"{name} in {here}"
        assert not (at_top and library in LATE), f"{name} must be imported inside a function"


def test_every_room_is_known() -> None:
    rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms == LAYERS.keys() | FEATURES.keys()


def test_the_public_names_are_there_and_need_no_torch() -> None:
    import subprocess

    code = (
        "import sys, gpuperf\n"
        "for name in gpuperf.__all__: getattr(gpuperf, name)\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules\n"
        "print(len(gpuperf.__all__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 5
