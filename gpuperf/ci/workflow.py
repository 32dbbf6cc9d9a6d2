"""What does a repository need for its pull requests to be gated on GitHub?

Two workflows, since no one job may have both the change's code and a token that writes:

- The gate measures on a runner with a GPU. It runs the change's code, so it has a token that only
  reads, which no later step can see, and no secret. Of a fork's pull request it would have no other
  token anyway.
- The report starts when that has ended (`workflow_run`), from the default branch's file, without a
  checkout. What the gate left is data to it: the verdict is judged again from its own evidence, and
  must be of the commit that was pushed. It comments, and sets the commit's status, which is what a
  branch can be protected by: a pull request may change its own workflow, but not that.

A report in a second job of the first workflow would have no token that writes for a fork, and
`pull_request_target` would run the change's code beside one that does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution

import gpuperf

GATE, REPORT = "gpuperf-gate.yml", "gpuperf-report.yml"
FOLDER = ".github/workflows"


def github_workflow(source: str | None = None) -> str:
    """Both files one after the other, each a YAML document under its path."""
    return "---\n".join(workflow_files(source).values())


def workflow_files(source: str | None = None) -> Mapping[str, str]:
    """The files by name, for `.github/workflows`; *source* is what pip installs gpuperf from."""
    source = source_of(gpuperf.__version__) if source is None else source
    wanted = f"${{{{ vars.GPUPERF || '{source}' }}}}" if source else "${{ vars.GPUPERF }}"
    return {
        name: f"# {FOLDER}/{name}\n{text.replace('SOURCE', wanted)}"
        for name, text in {GATE: _GATE, REPORT: _REPORT}.items()
    }


def source_of(version: str) -> str:
    """What pip installs this gpuperf from on another machine: the commit or the archive that it was
    installed from, or *version* of the package index; nothing for a folder of this machine."""
    try:
        told = distribution("gpuperf").read_text("direct_url.json")  # PEP 610
        found = json.loads(told) if told else None
    except (PackageNotFoundError, ValueError):
        return ""
    if found is None:
        return f"gpuperf=={version}"
    url = str(found.get("url", ""))
    if commit := found.get("vcs_info", {}).get("commit_id"):
        url = f"git+{url}@{commit}"
    return url if re.fullmatch(r"(git\+)?https://[\w.+:/@=~#%-]+", url) else ""


_GATE = """\
# Measures a pull request against where it left its branch, on a runner with a GPU.
#
# The runner runs the code of the pull request. Let it be thrown away after each job, and let forks
# wait for an approval (Settings, Actions, General: require approval for all external contributors).
# One job at a time on a GPU: another process there discards what is measured.
#
# The gate needs gpuperf.toml with `suite = "bench.toml"`: a suite that names your workloads.
# The repository variable GPUPERF is what pip installs gpuperf from, where that is set: a version of
# your package index, a wheel's URL, or git+https://HOST/PROJECT@COMMIT.
name: gpuperf gate
on:
  pull_request:

permissions: {}

concurrency:
  group: gpuperf-gate-${{ github.event.pull_request.number }}
  cancel-in-progress: true

jobs:
  measure:
    # The labels of your runner; as JSON, for linters do not know labels of your own.
    runs-on: ${{ fromJSON('["self-hosted", "linux", "gpu"]') }}
    timeout-minutes: 60
    permissions:
      contents: read
    defaults:
      run:
        shell: bash
    steps:
      - name: Check out the change, with the history that its base is in
        uses: actions/checkout@v4
        with:
          ref: ${{ github.event.pull_request.head.sha }}
          fetch-depth: 0
          persist-credentials: false

      - name: Install gpuperf, apart from what is measured
        env:
          GPUPERF: SOURCE
        run: |
          set -euo pipefail
          : "${GPUPERF:?set the repository variable GPUPERF to what pip installs gpuperf from}"
          python3 -m venv "$RUNNER_TEMP/gpuperf"
          "$RUNNER_TEMP/gpuperf/bin/pip" install --quiet "$GPUPERF"

      - name: Gate
        env:
          BRANCH_SHA: ${{ github.event.pull_request.base.sha }}
          HEAD_SHA: ${{ github.event.pull_request.head.sha }}
          # What makes a checkout of your project ready to be measured; it runs once on each side.
          SETUP: python3 -m venv .venv && .venv/bin/pip install --quiet --editable .
        run: |
          set -euo pipefail
          base=$(git merge-base "$BRANCH_SHA" "$HEAD_SHA")
          "$RUNNER_TEMP/gpuperf/bin/gpuperf" gate ab --base "$base" --head "$HEAD_SHA" \\
            --setup "$SETUP" --device cuda:0 --out gpuperf-gate

      - name: Keep the verdict and the runs, red or green
        if: always()
        uses: actions/upload-artifact@v4
        with:
          name: gpuperf-gate
          path: |
            gpuperf-gate/*/*.json
            gpuperf-gate/*/*.jsonl
            gpuperf-gate/*/*.md
            gpuperf-gate/*/*.xml
            gpuperf-gate/*/*.png
          if-no-files-found: error
"""

_REPORT = """\
# Judges what a gate measured, tells the pull request, and sets the commit's status `gpuperf gate`:
# require that status for the branch. This file counts as the default branch has it.
name: gpuperf report
on:
  workflow_run:
    workflows: [gpuperf gate]
    types: [completed]

permissions: {}

jobs:
  report:
    if: github.event.workflow_run.event == 'pull_request'
    runs-on: ubuntu-latest
    timeout-minutes: 15
    permissions:
      actions: read # the artifact of the gate's run
      pull-requests: write # the comment
      statuses: write # the commit's status
    defaults:
      run:
        shell: bash
    env:
      HEAD_SHA: ${{ github.event.workflow_run.head_sha }}
      GATE_URL: ${{ github.event.workflow_run.html_url }}
    steps:
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"

      - name: Install gpuperf without torch, which a verdict needs not
        env:
          GPUPERF: SOURCE
        run: |
          set -euo pipefail
          : "${GPUPERF:?set the repository variable GPUPERF to what pip installs gpuperf from}"
          pip install --quiet --no-deps "$GPUPERF"
          pip install --quiet typer rich scipy msgspec

      - name: Fetch what the gate left
        continue-on-error: true # what is missing is red below
        uses: actions/download-artifact@v4
        with:
          name: gpuperf-gate
          path: gate
          run-id: ${{ github.event.workflow_run.id }}
          github-token: ${{ github.token }}

      - name: Judge it again
        id: judge
        run: |
          set -euo pipefail
          code=3
          told="there is no verdict"
          mkdir -p gate
          find gate -name verdict.json -type f > verdicts
          if [ "$(wc -l < verdicts)" -eq 1 ]; then
            verdict=$(cat verdicts)
            commit=$(python -c 'import json; print(json.load(open(0))["head"]["commit"])' \\
              < "$verdict") || commit=""
            if [ "$commit" != "$HEAD_SHA" ]; then
              told="the verdict is not of this commit"
            else
              told="the verdict was refused"
              code=0
              gpuperf gate check "$verdict" --format md > summary.md || code=$?
              gpuperf gate check "$verdict" --format comment > comment.md || true
            fi
          fi
          if [ ! -s summary.md ] || [ ! -s comment.md ]; then
            if [ "$code" -eq 0 ]; then code=2; fi
            printf '%s\\n### ⚠️ gpuperf gate: %s\\n\\n[What it said](%s)\\n' \\
              '<!-- gpuperf gate -->' "$told" "$GATE_URL" | tee summary.md > comment.md
          fi
          cat summary.md >> "$GITHUB_STEP_SUMMARY"
          echo "code=$code" >> "$GITHUB_OUTPUT"

      - name: Set the commit's status
        env:
          GH_TOKEN: ${{ github.token }}
          REPOSITORY: ${{ github.repository }}
          CODE: ${{ steps.judge.outputs.code }}
          URL: ${{ github.server_url }}/${{ github.repository }}/actions/runs/${{ github.run_id }}
        run: |
          set -euo pipefail
          case "$CODE" in
            0) state=success told="passed" ;;
            1) state=failure told="a case is slower" ;;
            3) state=error told="not comparable, or no verdict" ;;
            4) state=error told="inconclusive, contaminated or incomplete" ;;
            *) state=error told="the verdict was refused" ;;
          esac
          gh api --silent --method POST "repos/$REPOSITORY/statuses/$HEAD_SHA" \\
            -f state="$state" -f context="gpuperf gate" -f description="$told" -f target_url="$URL"

      - name: Comment on the pull request, in place of an earlier comment
        env:
          GH_TOKEN: ${{ github.token }}
          REPOSITORY: ${{ github.repository }}
          # Whoever opened the pull request chose these names: they go through the environment.
          HEAD_OWNER: ${{ github.event.workflow_run.head_repository.owner.login }}
          HEAD_BRANCH: ${{ github.event.workflow_run.head_branch }}
        run: |
          set -euo pipefail
          number=$(gh api --method GET "repos/$REPOSITORY/pulls" -f state=open \\
            -f head="$HEAD_OWNER:$HEAD_BRANCH" \\
            --jq 'map(select(.head.sha == env.HEAD_SHA)) | .[0].number // ""')
          if [ -z "$number" ]; then
            echo "no open pull request is at $HEAD_SHA any more"
            exit 0
          fi
          earlier=$(gh api --paginate "repos/$REPOSITORY/issues/$number/comments" --jq '.[]
            | select(.user.type == "Bot" and (.body | startswith("<!-- gpuperf gate -->"))) | .id')
          if [ -n "$earlier" ]; then
            gh api --silent --method PATCH -F body=@comment.md \\
              "repos/$REPOSITORY/issues/comments/${earlier%%$'\\n'*}"
          else
            gh api --silent --method POST -F body=@comment.md \\
              "repos/$REPOSITORY/issues/$number/comments"
          fi

      - name: Pass where the gate passed
        env:
          CODE: ${{ steps.judge.outputs.code }}
        run: exit "$CODE"
"""
