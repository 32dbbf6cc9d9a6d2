"""`--energy` needs a sustained load, and asks for one where no regime is named."""

from __future__ import annotations

import pytest

from gpuperf.errors import UnknownName, UsageError
from gpuperf.verb.options import Options
from gpuperf.verb.parse import choose_regimes


def test_energy_alone_asks_for_a_sustained_load() -> None:
    assert choose_regimes(None, energy=True) == ("sustained",)
    assert choose_regimes("burst,sustained", energy=True) == ("burst", "sustained")
    assert choose_regimes(None, energy=False) == ()
    assert choose_regimes("burst", energy=False) == ("burst",)
    asked = Options(energy=True).conditions
    assert (asked.energy, asked.regimes) == (True, ("sustained",))


def test_energy_and_bursts_alone_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--energy needs a sustained load") as caught:
        choose_regimes("burst", energy=True)
    assert "burst,sustained" in caught.value.hint
    with pytest.raises(UnknownName):
        choose_regimes("bursts", energy=True)
