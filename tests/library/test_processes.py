"""`gpuperf.compare` over several processes, on a CPU."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
import torch

import gpuperf
from gpuperf.errors import UsageError
from gpuperf.library import processes
from gpuperf.library.processes import target_of
from gpuperf.measure import callables, pipe
from gpuperf.run.forking import WAY

MINE = """
import os
import torch

X = torch.ones(64)


def often():
    return [X * 2 for _ in range(50)][-1]


def make():
    y = X.clone()
    return lambda: y * 2


def wrong():
    return X * 3


def dies():
    os.abort()
"""


def test_each_process_rebuilds_the_callables_and_measures_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAY, "forked")
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    names = {"once": "make()", "often": "often", "wrong": "wrong", "dies": "dies"}
    calls = {name: f"{file}:{target}" for name, target in names.items()}
    found = gpuperf.compare(calls, processes=2, device="cpu", budget_s=0.04, cache="hot")
    assert [found[name].record.status for name in found] == ["ok", "ok", "wrong", "crashed"]
    often = found.speedups["often"]
    assert often.processes == 2
    assert often.value < 0.5
    assert "speed-ups in 2 fresh processes, over once" in str(found)
    run = gpuperf.read_run(found.save(tmp_path / "both"))
    assert (run.header.processes, run.header.started) == (2, "forked")
    assert sorted((r.case.implementation, r.pass_index) for r in run.records) == [
        (name, index) for name in sorted(names) for index in range(2)
    ]
    assert run.records[0].case.source == calls["once"]


def test_the_own_places_of_a_program_are_none_of_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Path(pytest.__file__).parent  # as setuptools adds its `_vendor`
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path, str(installed)])
    own = processes._own_paths()
    assert own[0] == str(tmp_path)
    assert str(installed) not in own


def here() -> None: ...


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: 1, "it is a lambda"),
        (functools.partial(here), "it is a partial"),
        (print, "it is a builtin_function_or_method"),
        ("mine.py", "'mine.py' names no function"),
    ],
)
def test_what_another_process_cannot_rebuild_is_refused(call: object, sentence: str) -> None:
    with pytest.raises(UsageError, match=f"^'fused'.*{sentence}") as error:
        gpuperf.compare({"fused": call}, processes=2)  # type: ignore[dict-item]
    assert "file.py:function" in error.value.hint


def test_a_function_of_a_module_is_rebuilt_by_its_name() -> None:
    def inner() -> None: ...

    assert target_of("here", here) == f"{__name__}:here"
    assert target_of("make", "a.py:make()") == "a.py:make()"
    with pytest.raises(UsageError, match="it is made inside test_a_function_of_a_module"):
        target_of("inner", inner)


def test_a_function_whose_name_stands_for_another_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = here
    monkeypatch.setitem(globals(), "here", lambda: None)
    with pytest.raises(UsageError, match=f"here of {__name__} is another object"):
        target_of("first", first)


def test_slips_of_a_comparison_over_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="processes=0 is not from 1"):
        gpuperf.compare({"a": here}, processes=0)
    with pytest.raises(UsageError, match="'a' is a name"):
        gpuperf.compare({"a": "mine.py:f"}, device="cpu")
    monkeypatch.setattr(pipe, "IN_WORKER", True)
    with pytest.raises(UsageError, match="while a worker loads it"):
        gpuperf.compare({"a": here}, processes=2, device="cpu")


def test_cuda_is_the_current_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callables, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    named = [callables.device_name(name) for name in (None, "cuda", "cuda:0", "cpu")]
    assert named == ["cuda:1", "cuda:1", "cuda:0", "cpu"]
