"""Make each change of mutants.toml alone, run the tests it names, report what no test notices.

Run it from the root of a clean checkout: `make mutants`, or `python tests/mutants/run.py [WORD …]`
for those whose file contains a word. A file is put back after each change, whatever happens. The
exit code is 0 where at least nine tenths of the changes that can be noticed were noticed, else 1.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LIMIT_S = 900  # of the tests of one change; an endless loop is noticed by it
WANTED = 0.9  # share of the changes that a test notices


def changed(text: str, line: str, becomes: str, nth: int) -> str | None:
    """*text* with the *nth* line that reads *line* replaced; None where there is no such line."""
    lines = text.splitlines(keepends=True)
    places = [i for i, each in enumerate(lines) if each.strip() == line]
    if len(places) < nth:
        return None
    old = lines[places[nth - 1]]
    lines[places[nth - 1]] = old.replace(line, becomes)
    return "".join(lines)


@functools.cache
def sound(tests: tuple[str, ...]) -> bool:
    """Whether *tests* pass on the unchanged code: a test that always fails notices nothing."""
    return run(tests) == 0


def run(tests: tuple[str, ...]) -> int:
    """The exit code of pytest for *tests*: files under tests/, or `file.py::name` in one."""
    paths = [str(ROOT / "tests" / test) for test in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *paths]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 1
    return done.returncode


def outcome(mutant: dict[str, object]) -> str:
    """`killed`, `survived`, `equivalent` or `gpu`; `stale` where the line is not in the file, or
    the change is no program, or the tests do not pass without it."""
    path = ROOT / str(mutant["file"])
    before = path.read_text(encoding="utf-8")
    nth = int(str(mutant.get("nth", 1)))
    after = changed(before, str(mutant["line"]), str(mutant["becomes"]), nth)
    if after is None or not readable(path, after):
        return "stale"
    if "equivalent" in mutant or "gpu" in mutant:
        return "equivalent" if "equivalent" in mutant else "gpu"
    tests = tuple(mutant["tests"])  # type: ignore[arg-type]
    if not sound(tests):
        return "stale"
    try:
        path.write_text(after, encoding="utf-8")
        return "killed" if run(tests) else "survived"
    finally:
        path.write_text(before, encoding="utf-8")


def readable(path: Path, text: str) -> bool:
    """Whether *text* can be read as what *path* is: a change that cannot shows nothing."""
    try:
        compile(text, str(path), "exec") if path.suffix == ".py" else tomllib.loads(text)
    except (SyntaxError, tomllib.TOMLDecodeError):
        return False
    return True


def main(words: list[str]) -> int:
    """Run the mutants whose file contains one of *words*, or all."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the file is put back
    mutants = tomllib.loads((HERE / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
    counts: dict[str, int] = {}
    for mutant in mutants:
        if words and not any(word in mutant["file"] for word in words):
            continue
        start = time.monotonic()
        result = outcome(mutant)
        counts[result] = counts.get(result, 0) + 1
        spent_s = time.monotonic() - start
        print(f"{result:10s} {spent_s:5.0f} s  {mutant['file']}: {mutant['becomes']}", flush=True)
    killed, survived = counts.get("killed", 0), counts.get("survived", 0)
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    fine = killed >= WANTED * (killed + survived) and not counts.get("stale")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
