"""Judge torch.compile of each level-1 problem of KernelBench against the problem itself.

`python docs/measured/kernelbench.py KernelBench/level1 kernelbench.jsonl --minutes 8` judges the
problems in a folder that you fetched from github.com/ScalingIntelligence/KernelBench, and appends a
line for each to the file. It starts no problem after that many minutes; run it again until all are
judged. Several may run at once into one file, each with a GPU in $CUDA_VISIBLE_DEVICES: each takes
the next problem that no other has. It prints a line for each problem, then how many have each
status, why problems were not judged, and the median seconds of a problem. `--device cpu` tries it
on a CPU.
"""

import argparse
import collections
import fcntl
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import torch

from gpuperf.errors import GpuperfError
from gpuperf.judge.clerk import Clerk
from gpuperf.judge.reading import read_task
from gpuperf.judge.rule import judge_case
from gpuperf.judge.run import serving
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import Submission

COMPILED = """

def ModelNew(*arguments):
    model = Model(*arguments)
    model.compile(dynamic=False)
    return model
"""


def number(problem: Path) -> int:
    """Return the number that the name of a problem begins with; 0 without one."""
    first = problem.stem.split("_")[0]
    return int(first) if first.isdigit() else 0


def judge(problem: Path, folder: str, settings: Settings, server: Any) -> dict[str, Any]:
    """Return the status, reason and speed-up of the compiled *problem*, written to *folder*."""
    submitted = Path(folder) / f"submitted_{problem.name}"
    submitted.write_text(problem.read_text(encoding="utf-8") + COMPILED, encoding="utf-8")
    return judge_file(problem, submitted, settings, server)


def judge_file(problem: Path, submitted: Path, settings: Settings, server: Any) -> dict[str, Any]:
    """Return the status, reason and speed-up of the submission in the file *submitted*."""
    try:
        task = read_task(problem, "kernelbench", 1)
        with Clerk(task, task.cases[0], settings, server) as clerk:
            evidence = clerk.judge(Submission(str(submitted), name=submitted.name))
    except GpuperfError as error:
        return {"status": "not judged", "reason": f"{type(error).__name__}: {error}"}
    judged = judge_case(evidence)
    row: dict[str, Any] = {"status": judged.status, "reason": judged.reason}
    if judged.score:
        score = judged.score
        row |= {"speedup": score.speedup, "low": score.low, "high": score.high}
        row["time_s"] = score.time_s
    facts = [fact for fact in judged.facts if fact.result in ("unavailable", "failed")]
    return row | {fact.name: f"{fact.result}: {fact.text}" for fact in facts}


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of earlier sittings."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def take(taken: IO[str], index: int) -> bool:
    """Lock the byte *index* of the file *taken* until it is closed; return whether no other process
    holds it."""
    try:
        fcntl.lockf(taken, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, index)
    except (BlockingIOError, PermissionError):
        return False
    return True


def judge_all(problems: list[Path], out: Path, minutes: float, settings: Settings) -> None:
    """Judge the *problems* that *out* lacks, and print a line for each."""
    ends = time.monotonic() + 60 * minutes
    with (
        serving(settings) as server,
        tempfile.TemporaryDirectory() as folder,
        out.with_suffix(".lock").open("w") as taken,
    ):
        for index, problem in enumerate(problems):
            began = time.monotonic()
            if began > ends or not take(taken, index):
                continue
            if problem.stem in {row["problem"] for row in rows_of(out)}:
                continue
            row = {"problem": problem.stem, **judge(problem, folder, settings, server)}
            row["took_s"] = round(time.monotonic() - began, 2)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            speedup = f"{row['speedup']:.2f}x" if "speedup" in row else ""
            line = f"{row['status']:12} {row['took_s']:6.1f} s {speedup:7} {problem.stem[:44]:44}"
            print(line, row["reason"][:150], flush=True)


def summarize(rows: list[dict[str, Any]], problems: int) -> None:
    """Print how many problems have each status, why some were not judged, and the median time."""
    print(f"{len(rows)} of {problems} problems")
    for status, count in collections.Counter(row["status"] for row in rows).most_common():
        print(f"{count:4} {status}")
    reasons = [row["reason"][:110] for row in rows if row["status"] == "not judged"]
    for reason, count in collections.Counter(reasons).most_common():
        print(f"{count:4} not judged: {reason}")
    if rows:
        print(f"median {statistics.median(row['took_s'] for row in rows):.1f} s a problem")


def main() -> None:
    """Judge for some minutes, and print the summary of all sittings."""
    parser = argparse.ArgumentParser(description="Judge torch.compile of KernelBench's problems.")
    parser.add_argument("folder", type=Path, help="folder of problems, such as KernelBench/level1")
    parser.add_argument("out", type=Path, help="file to append a line for each problem to")
    parser.add_argument("--minutes", type=float, default=8.0, help="start no problem after these")
    parser.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    given = parser.parse_args()
    if given.device != "cpu" and not torch.cuda.is_available():
        raise SystemExit("kernelbench.py needs a GPU; --device cpu tries it without one.")
    problems = sorted(given.folder.glob("*.py"), key=number)
    if not problems:
        raise SystemExit(f"{given.folder} has no *.py; fetch KernelBench and name its level1.")
    settings = Settings(processes=1, deadline_s=90.0, started="forked", device=given.device)
    judge_all(problems, given.out, given.minutes, settings)
    summarize(rows_of(given.out), len(problems))


if __name__ == "__main__":
    main()
