"""Hold a Ctrl-C back while a message is received, and lose neither."""

from __future__ import annotations

import signal

import pytest

from gpuperf.profile.interrupts import Interrupts


def test_a_signal_waits_for_the_end_of_the_block() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = False
    with Interrupts().installed() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.held():
            signal.raise_signal(signal.SIGINT)
            done = True
        assert done
        with interrupts.held():  # the signal came once
            pass
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_signal_does_not_wait() -> None:
    with (
        Interrupts().installed() as interrupts,
        pytest.raises(KeyboardInterrupt),
        interrupts.held(),
    ):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second signal waited too")
