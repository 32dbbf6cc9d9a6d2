"""Write job files that run the unit once on each host of a fleet, for Slurm and for Kubernetes, and
a script that runs it on each pair of hosts.

Values from the user are checked or quoted: words of a shell by shlex, texts of YAML as strings of
JSON, and `$(NAME)`, which Kubernetes expands in arguments, by a second dollar sign.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.fleet.pairs import Pair, tournament
from gpuperf.model.text import clean

SYSTEMS = ("slurm", "kubernetes", "pairs")
# Names of partitions, accounts and Kubernetes objects; none can end a line or an option.
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
PORT = 29500  # where torchrun's processes of a pair meet, and at the next one those of gpuperf
MOUNT = "/shards"  # where the pods mount the volume for the shards


@dataclass(frozen=True)
class Manifest:
    """What a job file describes: the hosts, the words of the unit, and where it runs.

    `words` begin with the program; the name of the host and the file of the shard are added to
    them. `gpus` is the number of GPUs of a host; 0 for none.
    """

    hosts: tuple[str, ...]
    words: tuple[str, ...]
    folder: str
    name: str = "gpuperf-fleet"
    gpus: int = 0
    minutes: int = 60
    partition: str = ""
    account: str = ""
    image: str = ""
    volume: str = ""
    namespace: str = ""


def slurm_script(manifest: Manifest) -> str:
    """Return a batch script that runs the unit once on each host, by one task a node.

    An array job would not do: its tasks may share a node. Raises: UsageError for a name that is not
    valid.
    """
    _check(manifest.name, "--name", NAME)
    count = len(manifest.hosts)
    options = [
        f"--job-name={manifest.name}",
        f"--nodes={count}",
        f"--nodelist={','.join(manifest.hosts)}",
        "--ntasks-per-node=1",
        "--exclusive",
        f"--time={manifest.minutes}",
    ]
    options += [f"--gpus-per-node={manifest.gpus}"] if manifest.gpus else []
    for option, value in (("partition", manifest.partition), ("account", manifest.account)):
        if value:
            _check(value, f"--{option}", NAME)
            options.append(f"--{option}={value}")
    folder = shlex.quote(manifest.folder)
    unit = f'{shlex.join(manifest.words)} --host "$SLURMD_NODENAME" --out {folder}'
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {option}" for option in options),
            "set -u",
            f"mkdir -p -- {folder}",
            f"srun --ntasks={count} --ntasks-per-node=1 --kill-on-bad-exit=0 \\",
            f"  bash -c {shlex.quote(unit)}",
            "",
        ]
    )


def pair_script(manifest: Manifest) -> str:
    """Return a script that measures each pair of hosts by a gang of both, over ssh.

    The pairs of a round have no host in common, and run at once. The first host of a pair writes
    the shard. The script ends with 1 if a host did not end with 0, after all rounds. Raises:
    UsageError for a single host.
    """
    if len(manifest.hosts) < 2:
        raise UsageError("pairs need two hosts or more", "--hosts a,b,c,d")
    rounds = tournament(manifest.hosts)
    lines = ["#!/bin/bash", "set -u", "failed=0"]
    for number, pairs in enumerate(rounds, 1):
        lines += [f"# round {number} of {len(rounds)}", "jobs=()"]
        lines += [_of_rank(manifest, pair, rank) for pair in pairs for rank in (0, 1)]
        # A wait without a job would end with 0, whatever the jobs ended with.
        lines.append('for job in "${jobs[@]}"; do wait "$job" || failed=1; done')
    return "\n".join([*lines, 'exit "$failed"', ""])


def _of_rank(manifest: Manifest, pair: Pair, rank: int) -> str:
    """Return the line that starts the ranks of one host of *pair* as a job of the script."""
    launch = [
        *("env", f"GPUPERF_HOST={pair[rank]}", "torchrun", "--nnodes=2", f"--node-rank={rank}"),
        *(f"--nproc-per-node={max(1, manifest.gpus)}", f"--master-addr={pair[0]}"),
        *(f"--master-port={PORT}", "--no-python", *manifest.words, "--out", manifest.folder),
    ]
    remote = shlex.quote(shlex.join(launch))
    return f"ssh -o BatchMode=yes -- {shlex.quote(pair[rank])} {remote} < /dev/null & jobs+=($!)"


def kubernetes_job(manifest: Manifest) -> str:
    """Return an Indexed Job with one pod on each host, which writes its shard to a shared volume.

    Raises: UsageError for a name that is not valid, and without an image or a volume.
    """
    _check(manifest.name, "--name", LABEL)
    if manifest.namespace:
        _check(manifest.namespace, "--namespace", LABEL)
    for value, option in ((manifest.image, "--image"), (manifest.volume, "--volume")):
        if not value:
            raise UsageError(
                f"a job of Kubernetes needs {option}",
                "--image REGISTRY/IMAGE:TAG and --volume CLAIM, a claim that all nodes can write",
            )
    count = len(manifest.hosts)
    metadata: dict[str, Any] = {"name": manifest.name}
    metadata |= {"namespace": manifest.namespace} if manifest.namespace else {}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            # A failed pod ends neither the others nor is it started again (Kubernetes 1.33).
            "backoffLimitPerIndex": 0,
            "maxFailedIndexes": count,
            "activeDeadlineSeconds": 60 * manifest.minutes,
            "template": {
                "metadata": {"labels": {"app": manifest.name}},
                "spec": {
                    "restartPolicy": "Never",
                    "affinity": _affinity(manifest),
                    "containers": [_container(manifest)],
                    "volumes": [
                        {"name": "shards", "persistentVolumeClaim": {"claimName": manifest.volume}}
                    ],
                },
            },
        },
    }
    return "".join(f"{line}\n" for line in _yaml(job))


def _affinity(manifest: Manifest) -> dict[str, Any]:
    """Return the rules that put each pod on another one of the hosts."""
    host = "kubernetes.io/hostname"
    named = {"key": host, "operator": "In", "values": list(manifest.hosts)}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [named]}]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": manifest.name}}, "topologyKey": host}
            ]
        },
    }


def _container(manifest: Manifest) -> dict[str, Any]:
    words = [word.replace("$(", "$$(") for word in manifest.words]
    container: dict[str, Any] = {
        "name": "unit",
        "image": manifest.image,
        "command": [*words, "--host", "$(NODE_NAME)", "--out", MOUNT],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [{"name": "shards", "mountPath": MOUNT}],
    }
    if manifest.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": manifest.gpus}}
    return container


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of *value* as YAML, whose keys are plain words and whose texts are quoted."""
    pairs: Sequence[tuple[str, Any]]
    if isinstance(value, Mapping):
        pairs = [(f"{key}:", item) for key, item in value.items()]
    else:
        pairs = [("-", item) for item in value]
    for head, item in pairs:
        if isinstance(item, Mapping | list):
            yield f"{indent}{head}"
            yield from _yaml(item, f"{indent}  ")
        else:
            yield f"{indent}{head} {json.dumps(item)}"


def _check(value: str, option: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(value):
        raise UsageError(
            f"{option} {clean(value)[:80]!r} is not a valid name",
            "letters, digits and hyphens; for Kubernetes in lower case",
        )
