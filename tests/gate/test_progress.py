"""Show a gate's progress: the running case on a terminal, one line for each stage elsewhere."""

from __future__ import annotations

import io

import pytest

from gpuperf.gate.progress import GateProgress


class Stderr(io.StringIO):
    """An stderr that is a terminal, or is not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_the_running_case_and_a_log_the_stage_alone(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Stderr(terminal)
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    with GateProgress() as progress:
        progress.stage("screening", 3)
        progress.begin("copy/torch")
    assert ("screening: copy/torch" in shown.getvalue()) == terminal
    assert (shown.getvalue() == "screening\n") != terminal
