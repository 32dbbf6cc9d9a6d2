"""Imports point only downwards, and heavy libraries are imported where they are needed alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import gpuperf

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
    "library": {"model", "peaks", "measure", "run", "show", "roofline"},
    # It joins what Python code measures with the judge of stored runs.
    "pytest_plugin": {"model", "run", "show", "library", "gate"},
}
# A folder with a `VERB` is a feature. It may import every layer but these three, and the
# features that are listed here.
BELOW = LAYERS.keys() - {"measure", "library", "pytest_plugin"}
BORROWED = {
    "alignment": {"roofline"},
    "baseline": {"gate"},
    "compare": {"roofline"},
    "explain": {"roofline"},
    "gate": {"roofline"},
    "importing": {"profile"},
    "judge": {"gate"},
    "lab": {"roofline"},
    "profile": {"roofline", "explain", "theory"},
    "showing": {"roofline"},
    "waves": {"roofline"},
}
FEATURES = {
    file.parent.name
    for file in PACKAGE.glob("*/__init__.py")
    if "\nVERB = " in file.read_text(encoding="utf-8")
}
# A part of a feature that runs in another process, and what it may import.
APART = {
    "bench/inside": {"model", "run", "library"},
    "judge/inside": {"model", "measure"},
    "profile/inside": {"model", "measure"},
}
# What an experiment may import besides the public API and the ground: formulas and nouns.
EXPERIMENTS = {"theory", "model", "lab_experiments"}
# Library → the places that may import it at all.
HEAVY = {
    "torch": ("measure", "kernels", "jit", "profile/inside", "judge/inside"),
    "triton": ("measure", "kernels", "jit", "profile/inside", "library/triton_api"),
    "pynvml": ("measure", "kernels"),
    "cuda": ("measure", "kernels", "nvrtc"),
    "typer": ("app", "verb", "*/command"),
    "matplotlib": (
        *("show/figure", "*/chart", "roofline/busbw", "roofline/canvas", "history/trend"),
        "waves/heatmap",
    ),
}
# These cost hundreds of milliseconds: inside functions only, wherever they are.
LATE = {"pandas", "scipy", "matplotlib"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py")) + sorted((ROOT / "kernels").rglob("*.py"))


def place(path: Path) -> str:
    """Return `measure/timers/wall` for gpuperf/measure/timers/wall.py, `units` for units.py."""
    if path.is_relative_to(ROOT / "kernels" / "lab"):
        return "kernels/lab"
    if path.is_relative_to(ROOT / "kernels"):
        return "kernels"
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def allowed(room: str, here: str) -> set[str]:
    """Return the rooms besides its own that a module *here* in *room* may import."""
    for part, rooms in APART.items():
        if here.startswith(f"{part}/"):
            return rooms
    return LAYERS[room] if room in LAYERS else BELOW | BORROWED.get(room, set())


@cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Return every absolute module name that *path* imports, and whether at the top of the module.

    Imports that only a type checker sees do not count.
    """
    return tuple(_imports_of(path, ast.parse(path.read_text(encoding="utf-8"))))


def _imports_of(path: Path, tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Walk the statements of *tree*: no import is inside an expression."""
    waiting: list[tuple[ast.AST, bool]] = [(node, True) for node in tree.body]
    for node, at_top in waiting:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, at_top
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = ("gpuperf", *path.relative_to(PACKAGE).parts[:-1])
                kept = parts[: len(parts) - node.level + 1]
                base = ".".join((*kept, base)) if base else ".".join(kept)
            yield base, at_top
            if base == "gpuperf":
                for alias in node.names:
                    yield f"gpuperf.{alias.name}", at_top
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += [(other, False) for other in node.orelse]
        elif not isinstance(node, ast.expr):
            waiting += [(child, False) for child in ast.iter_child_nodes(node)]


def test_imports_point_downwards() -> None:
    upwards = [
        f"{place(path)}: {name}: {reason}"
        for path in sources()
        for name, _ in imports(path)
        if (reason := refusal(place(path), name))
    ]
    assert upwards == []


def refusal(here: str, name: str) -> str:
    """Return why the module *here* must not import *name*, or nothing where it may."""
    room, parts = here.split("/")[0], name.split(".")
    if parts[0] != "gpuperf" or len(parts) == 1 or parts[1] in GROUND | {room}:
        return ""
    if here == "kernels/lab" and parts[1] in EXPERIMENTS:
        return ""
    if parts[1] in ("kernels", "lab_experiments"):
        return "the registry finds workloads; no module imports them"
    if here == f"{room}/__init__" and room in FEATURES:
        return "" if parts[1] == "verb" else "it describes its verb, and imports nothing else"
    if room in LAYERS or room in FEATURES:
        return "" if parts[1] in allowed(room, here) else "not a layer below"
    if room == "kernels":
        public = set(gpuperf.__all__) - LAYERS.keys() - FEATURES
        return "" if parts[1] in public else "a workload needs the public API only"
    return "" if room in ("__init__", "__main__", "app") else "the ground imports no layer"


def test_heavy_libraries_are_imported_in_their_places_alone() -> None:
    misplaced = []
    for path in sources():
        here = place(path)
        for name, at_top in imports(path):
            library = name.split(".")[0]
            homes = HEAVY.get(library, (here,))
            home = any(here == h or here.startswith(f"{h}/") or fnmatch(here, h) for h in homes)
            if not home:
                misplaced.append(f"{name} in {here}")
            if at_top and library in LATE:
                misplaced.append(f"{name} at the top of {here}")
    assert misplaced == []


def test_the_rules_refuse_what_points_upwards() -> None:
    """The lists above are empty because the code is right, not because nothing is refused."""
    for here, name in (
        ("model/case", "gpuperf.roofline.rows"),
        ("gate/ab", "gpuperf.measure.bench"),
        ("gate/__init__", "gpuperf.roofline"),
        ("profile/inside/session", "gpuperf.show.table"),
        ("units", "gpuperf.model.record"),
        ("kernels", "gpuperf.measure"),
        ("app", "gpuperf.kernels.matmul"),
        ("app", "gpuperf.lab_experiments.banks"),
        ("kernels/lab", "gpuperf.run.plan"),
        ("kernels", "gpuperf.theory.mlp"),
    ):
        assert refusal(here, name), (here, name)
    for here, name in (
        ("gate/ab", "gpuperf.model.record"),
        ("gate/__init__", "gpuperf.verb"),
        ("profile/inside/session", "gpuperf.measure.bench"),
        ("kernels", "gpuperf.Workload"),
        ("kernels/lab", "gpuperf.theory.mlp"),
        ("app", "gpuperf.verb.verbs"),
    ):
        assert not refusal(here, name), (here, name)


def test_imports_are_read_at_every_depth() -> None:
    tree = ast.parse(
        "import a\n"
        "if TYPE_CHECKING:\n    import unseen\nelse:\n    import b\n"
        "try:\n    import c\nexcept ImportError:\n    import d\n"
        "def f():\n    with x:\n        from .. import e\n"
        "match x:\n    case 1:\n        from gpuperf import g\n"
    )
    read = dict(_imports_of(PACKAGE / "show" / "deep" / "x.py", tree))
    assert set(read) == {"a", "b", "c", "d", "gpuperf.show", "gpuperf", "gpuperf.g"}
    assert [name for name, at_top in read.items() if at_top] == ["a"]


def test_every_folder_is_a_layer_or_a_feature() -> None:
    rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms == LAYERS.keys() | FEATURES


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
