"""Which threads a case may leave to the next one in the same worker."""

from __future__ import annotations

import threading

import pytest
import torch

from gpuperf.measure.isolation import Isolation


def test_the_timer_of_idle_compile_workers_is_no_change() -> None:
    """Each torch.compile with workers starts it, so that a change would cost a worker a case."""
    timer = pytest.importorskip("torch._inductor.compile_worker.timer")
    isolation = Isolation(torch.device("cpu"))
    isolation.begin()
    timer.Timer(3600, lambda: None).record_call()
    assert isolation.end() == ""


def test_a_thread_of_the_case_is_a_change() -> None:
    ended = threading.Event()
    isolation = Isolation(torch.device("cpu"))
    isolation.begin()
    threading.Thread(target=ended.wait, name="poll", daemon=True).start()
    try:
        assert isolation.end() == "it left threads: poll"
    finally:
        ended.set()
