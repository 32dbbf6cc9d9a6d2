"""Do job files start each host once, and is no value of a user read as code?"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from gpuperf.errors import UsageError
from gpuperf.fleet.manifest import Manifest, kubernetes_job, pair_script, slurm_script
from gpuperf.fleet.shard import Shard, parse_pieces

EVIL = 'a\'b "c" $(touch owned) `touch owned` ; touch owned \\ $HOME'


def manifest(**changes: Any) -> Manifest:
    words = ("gpuperf", "fleet", "unit", "--suite", "screen")
    usual = {"hosts": ("node1", "node2"), "words": words, "folder": "/shared/fleet"}
    return Manifest(**{**usual, **changes})


def run_script(script: str, folder: Path) -> list[str]:
    """Run a Slurm *script* with an srun that runs its command once; return the unit's words."""
    program = folder / "srun"
    program.write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n')
    unit = folder / "gpuperf"
    unit.write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n')
    for each in (program, unit):
        each.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={"PATH": f"{folder}:/usr/bin:/bin", "SLURMD_NODENAME": "node1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split("\0")[:-1]


def test_the_script_of_slurm_runs_one_unit_on_each_named_node(tmp_path: Path) -> None:
    script = slurm_script(manifest(gpus=8, partition="gpu", folder=str(tmp_path / "f")))
    lines = script.splitlines()
    for option in ("--nodes=2", "--nodelist=node1,node2", "--ntasks-per-node=1", "--exclusive"):
        assert f"#SBATCH {option}" in lines
    assert "#SBATCH --gpus-per-node=8" in lines
    words = run_script(script, tmp_path)
    assert words[-4:] == ["--host", "node1", "--out", str(tmp_path / "f")]


def test_no_value_is_code_in_the_script_of_slurm(tmp_path: Path) -> None:
    words = ("gpuperf", "fleet", "unit", "--suite", EVIL)
    script = slurm_script(manifest(words=words, folder=f"{tmp_path}/{EVIL.replace('/', '')}"))
    read = run_script(script, tmp_path)
    assert read[3] == EVIL
    assert read[-1] == f"{tmp_path}/{EVIL}"
    assert not (tmp_path / "owned").exists()


SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.defpath}")


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck, which the extra `test` installs")
@pytest.mark.parametrize("script", [slurm_script, pair_script])
def test_the_scripts_have_no_slip(tmp_path: Path, script: Callable[[Manifest], str]) -> None:
    (tmp_path / "job.sh").write_text(script(manifest()))
    assert SHELLCHECK is not None
    # What is in single quotes is expanded on the node.
    subprocess.run([SHELLCHECK, "--exclude=SC2016", tmp_path / "job.sh"], check=True)


@pytest.mark.parametrize("name", ["a\n#SBATCH --wrap=x", "-x", "a b", "a,b", "x" * 200, "a\0"])
@pytest.mark.parametrize("option", ["name", "partition", "account"])
def test_names_of_slurm_cannot_end_their_line(option: str, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid name"):
        slurm_script(manifest(**{option: name}))


def parsed(text: str) -> Any:
    """The value of the YAML *text*, read as blocks of quoted texts; by PyYAML too, if installed."""
    value, rest = block(text.splitlines(), 0)
    assert rest == []
    if importlib.util.find_spec("yaml"):
        assert importlib.import_module("yaml").safe_load(text) == value
    return value


def block(lines: list[str], indent: int) -> tuple[Any, list[str]]:
    """Read the lines that are indented by *indent*: a list, or a mapping; return the rest too."""
    entries: list[tuple[str, Any]] = []
    while lines and len(lines[0]) - len(lines[0].lstrip()) == indent:
        head, _, text = lines[0].strip().partition(" ")
        lines = lines[1:]
        value = json.loads(text) if text else None
        if not text:
            value, lines = block(lines, indent + 2)
        entries.append((head, value))
    if all(head == "-" for head, _ in entries):
        return [value for _, value in entries], lines
    assert all(
        head.endswith(":") and head[:-1].replace("/", "").replace(".", "").isalnum()
        for head, _ in entries
    )
    return {head[:-1]: value for head, value in entries}, lines


def job(**changes: Any) -> str:
    return kubernetes_job(manifest(image="r/gpuperf:1", volume="shards", **changes))


def test_the_job_of_kubernetes_puts_one_pod_on_each_host() -> None:
    read = parsed(job(gpus=8))
    spec = read["spec"]
    assert (read["kind"], spec["completionMode"], spec["completions"]) == ("Job", "Indexed", 2)
    # One host that fails must not end the others.
    assert (spec["parallelism"], spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (
        2,
        0,
        2,
    )
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert container["command"][-4:] == ["--host", "$(NODE_NAME)", "--out", "/shards"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"][0]["values"] == ["node1", "node2"]
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"


def test_no_value_is_yaml_or_a_variable_in_the_job_of_kubernetes() -> None:
    evil = "x: y\n- {a: b} # $(NODE_NAME) 'q' \"r\" \\ é"
    read = parsed(job(words=("gpuperf", evil)))
    (container,) = read["spec"]["template"]["spec"]["containers"]
    assert container["command"][1] == evil.replace("$(", "$$(")
    image = parsed(kubernetes_job(manifest(image=evil, volume=evil)))
    (container,) = image["spec"]["template"]["spec"]["containers"]
    assert container["image"] == evil


def test_a_job_of_kubernetes_needs_an_image_and_a_volume() -> None:
    for changes in ({"image": "x"}, {"volume": "x"}):
        with pytest.raises(UsageError, match="needs --"):
            kubernetes_job(manifest(**changes))
    with pytest.raises(UsageError, match="is not a valid name"):
        job(name="Upper")


def test_the_command_prints_both(tmp_path: Path) -> None:
    at = CommandLine.at(tmp_path)
    slurm = at.within("fleet", "manifest", "slurm", "--hosts", "n1,n2", "--gpus", "8")
    assert slurm.code == 0
    assert slurm.out.startswith("#!/bin/bash\n#SBATCH --job-name=gpuperf-fleet\n")
    words = shlex.split(slurm.out.split("bash -c ")[1])
    assert "gpuperf fleet unit --suite screen" in words[0]
    pods = at.within(
        *("fleet", "manifest", "kubernetes", "--hosts", "n1,n2"),
        *("--image", "r/gpuperf", "--volume", "shards"),
    )
    assert json.dumps("r/gpuperf") in pods.out
    slip = at.within("fleet", "manifest", "slurn", "--hosts", "n1")
    assert slip.code == 2
    assert "did you mean 'slurm'?" in slip.err


def test_the_script_of_pairs_lets_each_pair_meet_once_and_no_value_is_code(tmp_path: Path) -> None:
    hosts = ("node1", "node2", "node3")
    script = pair_script(manifest(hosts=hosts, gpus=8, folder=EVIL))
    assert script.count("# round ") == script.count("wait ") == 3
    seen = tmp_path / "ssh"
    seen.write_text('#!/bin/bash\nprintf "%s\\0%s\\0" "$4" "$5" >> seen\n')
    seen.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=True)
    words = (tmp_path / "seen").read_text().split("\0")[:-1]
    started = [
        (host, shlex.split(line)) for host, line in zip(words[::2], words[1::2], strict=True)
    ]
    assert len(started) == 6
    for host, line in started:
        assert line[:3] == ["env", f"GPUPERF_HOST={host}", "torchrun"]
        assert "--nproc-per-node=8" in line
        assert line[-1] == EVIL
    firsts = {(line[6].partition("=")[2], host) for host, line in started}
    assert len([pair for pair in firsts if pair[0] != pair[1]]) == 3
    assert not (tmp_path / "owned").exists()
    with pytest.raises(UsageError, match="two hosts"):
        pair_script(manifest(hosts=("node1",)))


def test_a_host_that_fails_makes_the_script_of_pairs_fail_after_all_rounds(tmp_path: Path) -> None:
    """The first job of the first round fails; the others, and the other rounds, run."""
    script = pair_script(manifest(hosts=("node1", "node2", "node3")))
    ssh = tmp_path / "ssh"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for slip, code in (("mkdir first 2>/dev/null && exit 7", 1), ("true", 0)):
        ssh.write_text(f"#!/bin/bash\necho ran >> seen\n{slip}\nexit 0\n")
        ssh.chmod(0o755)
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=False)
        assert done.returncode == code
    assert (tmp_path / "seen").read_text().count("ran") == 12


def test_the_script_of_pairs_really_measures_two_hosts(tmp_path: Path) -> None:
    """ssh and torchrun are replaced by the same on this machine, which has two addresses."""
    suite = tmp_path / "pair.toml"
    case = '[[case]]\nop = "all_reduce"\nbytes = "1k"\nimpl = "gloo"\ndtype = "fp32"\n'
    suite.write_text(f"schema = 1\n[conditions]\nbudget_s = 0.02\n{case}")
    (tmp_path / "ssh").write_text('#!/bin/bash\nexec bash -c "$5"\n')
    launcher = f'#!/bin/bash\nexec {shlex.quote(sys.executable)} -m torch.distributed.run "$@"\n'
    (tmp_path / "torchrun").write_text(launcher)
    for name in ("ssh", "torchrun"):
        (tmp_path / name).chmod(0o755)
    words = (sys.executable, "-P", "-m", "gpuperf", "fleet", "unit", "--suite", str(suite))
    words = (*words, "--devices", "cpu", "--processes", "1")
    hosts, folder = ("127.0.0.1", "127.0.0.2"), str(tmp_path / "shards")
    script = pair_script(manifest(hosts=hosts, words=words, folder=folder))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    command = ["bash", "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    files = list(Path(folder).glob("*.jsonl"))
    assert len(files) == 1, done.stderr
    (shard,) = parse_pieces(files[0].read_bytes(), "a test")
    assert isinstance(shard, Shard), shard
    assert (shard.head.host, shard.head.peer, shard.failures) == (*hosts, {})
