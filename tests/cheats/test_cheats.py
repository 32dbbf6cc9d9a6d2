"""Every cheat that one process can detect is refused."""

from __future__ import annotations

import functools
import time
from dataclasses import replace

import pytest
from cheats import PRODUCT, Build, Cheat
from dropping import CHEATS
from fake_bench import CONTRACT, make_bench
from gpuperf.kernels.matmul import MATMUL
from uncaught import UNCAUGHT

from gpuperf.measure import verify
from gpuperf.model.record import Record
from gpuperf.model.workload import Case, Implementation, Value

WORKLOADS = {c.workload.name: c.workload for c in CHEATS}
CAUGHT = [pytest.param(c, id=c.name) for c in CHEATS]


def measured(cheat: Cheat) -> Record:
    """The record of *cheat*, by the real bench on the CPU."""
    mine = (Implementation(cheat.name, cheat.build),)
    workload = replace(cheat.workload, implementations=mine, standard=())
    case = Case(workload.name, cheat.name, cheat.point)
    contract = replace(CONTRACT, min_samples=10)
    return make_bench().measure(workload, case, contract, "r", seed=0)


@pytest.mark.parametrize("cheat", CAUGHT)
def test_a_cheat_is_refused(cheat: Cheat) -> None:
    record = measured(cheat)
    assert record.status == "wrong", (record.status, record.reason, record.check)
    assert cheat.reason in record.reason
    assert record.times == {}


@functools.cache
def honest(workload: str, point: frozenset[tuple[str, Value]]) -> Record:
    """The record of torch's own implementation, measured once for all cheats on the same point."""
    name = "eager" if workload in ("attention", "sincos") else "torch"
    case = Case(workload, name, dict(point))
    return make_bench().measure(WORKLOADS[workload], case, CONTRACT, "r", seed=0)


@pytest.mark.parametrize("cheat", CAUGHT)
def test_the_honest_implementation_is_not_refused_there(cheat: Cheat) -> None:
    """Else a cheat would be refused for its place and not for what it does."""
    record = honest(cheat.workload.name, frozenset(cheat.point.items()))
    assert (record.status, record.reason) == ("ok", "")


@pytest.mark.parametrize("build", UNCAUGHT, ids=lambda build: build.__name__)
def test_a_cheat_on_the_process_itself_is_not_caught_in_one_process(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one of these is refused some day, the README of this folder has to say so."""
    monkeypatch.setattr(verify, "compare", verify.compare)
    monkeypatch.setattr(time, "perf_counter", time.perf_counter)
    assert measured(Cheat(build, MATMUL, PRODUCT, "")).status == "ok"
