"""Write the two workflows that gate pull requests on GitHub.

There are two, since no job may both run the change's code and have a token that writes:

- `gpuperf-gate.yml` measures on a runner with a GPU. It runs the change's code, so it has a token
  that only reads, which no later step can see, and no secret. A pull request from a fork would get
  no other token anyway.
- `gpuperf-report.yml` starts when the first has ended (`workflow_run`), from the file of the
  default branch, without a checkout. It takes what the gate left as data: the verdict is judged
  again from its own evidence, and must belong to the commit that was pushed. It comments, and sets
  the commit's status, by which a branch can be protected: a pull request may change its own
  workflow, but not that.

A report in a second job of the first workflow would have no token that writes for a fork, and
`pull_request_target` would run the change's code beside one that does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files

import gpuperf

NAMES = ("gpuperf-gate.yml", "gpuperf-report.yml")


def github_workflow(source: str | None = None) -> str:
    """Return both workflow files as one text of two YAML documents, each below its path.

    pip installs gpuperf from *source* (None: from where this gpuperf was installed).
    """
    return "---\n".join(workflow_files(source).values())


def workflow_files(source: str | None = None) -> Mapping[str, str]:
    """Return the files for `.github/workflows` by name; pip installs gpuperf from *source*."""
    source = source_of(gpuperf.__version__) if source is None else source
    value = f"${{{{ vars.GPUPERF || '{source}' }}}}" if source else "${{ vars.GPUPERF }}"
    texts = {name: files("gpuperf.ci").joinpath(name).read_text("utf-8") for name in NAMES}
    return {
        name: f"# .github/workflows/{name}\n{text.replace('SOURCE', value)}"
        for name, text in texts.items()
    }


def source_of(version: str) -> str:
    """Return the argument for pip that installs this gpuperf on another machine: the commit or
    archive from which it was installed, or *version* in the package index; empty if it was
    installed from a local folder."""
    try:
        origin = distribution("gpuperf").read_text("direct_url.json")  # PEP 610
        facts = json.loads(origin) if origin else None
    except (PackageNotFoundError, ValueError):
        return ""
    if facts is None:
        return f"gpuperf=={version}"
    url = str(facts.get("url", ""))
    if commit := facts.get("vcs_info", {}).get("commit_id"):
        url = f"git+{url}@{commit}"
    return url if re.fullmatch(r"(git\+)?https://[\w.+:/@=~#%-]+", url) else ""
