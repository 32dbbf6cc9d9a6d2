"""Measure the energy of a call under a sustained load, by the counter of NVML.

First the card rests, and its idle power is read. Then each trial begins after a rest to the same
temperature; its calls run back to back, and a thread reads counter and power meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from gpuperf.measure.card import Card
from gpuperf.measure.error_origin import first_line
from gpuperf.measure.telemetry import Meter, NvmlMeter
from gpuperf.measure.timers.timer import Call
from gpuperf.measure.timers.window import Window
from gpuperf.model.energy import (
    DISAGREEING,
    TICKS,
    TRIAL_S,
    TRIALS,
    Edge,
    Energy,
    EnergyTrial,
    Stretch,
    between_edges,
    call_energy,
    refusal,
)
from gpuperf.model.record import Caveat, Record

POLL_S = 2e-3  # between two readings of the counter, which moves about every 100 ms
POWER_EVERY = 10  # readings of the counter for one of the power
BATCH_S, AHEAD = 0.1, 3  # length of a batch of calls, and batches queued while one runs


@dataclass(frozen=True)
class Pace:
    """Seconds of the parts of a measurement: of the rest before the idle power is read, of the
    load before a trial, of a trial at least and at most, and of the longest rest between trials."""

    rest_s: float = 2.0
    warm_s: float = 1.0
    trial_s: float = TRIAL_S
    most_s: float = 3 * TRIAL_S
    cool_s: float = 15.0


class Poller(threading.Thread):
    """A thread that reads counter and power of a *card* while calls run."""

    def __init__(self, card: Card) -> None:
        super().__init__(daemon=True)
        self._card, self._ended = card, threading.Event()
        self.edges: list[Edge] = []
        self.powers: list[tuple[float, float]] = []

    def run(self) -> None:
        last_s, last_j, polls = time.perf_counter(), self._card.energy_j(), 0
        while not self._ended.wait(POLL_S):
            energy_j, now_s = self._card.energy_j(), time.perf_counter()
            if energy_j is not None and energy_j != last_j:
                half_s = (now_s - last_s) / 2
                self.edges.append(Edge(now_s - half_s, energy_j, half_s))
                last_j = energy_j
            last_s = now_s
            if polls % POWER_EVERY == 0 and (power_w := self._card.power_w()) is not None:
                self.powers.append((time.perf_counter(), power_w))
            polls += 1

    def ticks(self, start_s: float) -> int:
        """Return the number of steps of the counter between edges after *start_s*."""
        return sum(edge.time_s >= start_s for edge in list(self.edges)) - 1

    def __enter__(self) -> Poller:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()


class Load(Protocol):
    """A function that runs a call back to back and yields, for each batch, the mean seconds of a
    call and the SM clock, until it is closed."""

    def __call__(self, call: Call, call_s: float) -> Iterable[tuple[float, float | None]]: ...


def stream_load(window: Window) -> Load:
    """Return the load of batches on the stream of *window*."""

    def load(call: Call, call_s: float) -> Iterable[tuple[float, float | None]]:
        calls = max(1, round(BATCH_S / max(call_s, 1e-7)))
        for batch_s, clock_hz in window.stream(call, calls, AHEAD):
            yield batch_s / calls, clock_hz

    return load


@dataclass
class EnergyMeter:
    """Meter of the energy of calls on a *card*; *heard* is called as it goes on."""

    card: Card | None
    load: Load
    pace: Pace = field(default_factory=Pace)
    heard: Callable[[], None] = lambda: None

    def measured(self, record: Record, call: Call, settle: Callable[[], None]) -> Record:
        """Return *record* with the energy of *call*, which is timed in it, or why there is none.

        *settle* waits for the device after a call that failed, and raises if the device is lost.
        """
        assert record.samples is not None
        reason = self._refused()
        try:
            energy = (
                Energy(refused=reason) if reason else self._energy(call, record.samples.median_s)
            )
        except Exception as error:  # the times remain valid
            settle()
            energy = Energy(refused=f"the call failed under the load: {first_line(error)}")
        energy = replace(energy, refused=refusal(energy))
        caveats = (*record.caveats, *energy_caveats(energy))
        return replace(record, energy=energy, caveats=caveats)

    def _refused(self) -> str:
        if self.card is None:
            return "NVML does not read this GPU"
        if self.card.is_slice():
            return "the counter is that of the whole card, which MIG divides"
        if self.card.energy_j() is None:
            return "the card has no counter of its energy"
        if others := self.card.others():
            return f"other processes had a context on the GPU: {others}"
        return ""

    def _energy(self, call: Call, call_s: float) -> Energy:
        assert self.card is not None
        idle = self._idle()
        start_c = self.card.temperature_c()
        trials = []
        for _ in range(TRIALS):
            self._cool(start_c)
            trial = self._trial(call, call_s)
            if trial is not None:
                trials.append(trial)
        energy = Energy(tuple(trials), idle.power_w if idle else None)
        return replace(energy, refused=self._refused())  # another process may have come

    def _rest(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Rest for *seconds*, or until it is *enough*."""
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s and not enough():
            time.sleep(min(BATCH_S, seconds))
            self.heard()

    def _idle(self) -> Stretch | None:
        """Return the stretch of the idle card, after a rest."""
        assert self.card is not None
        self._rest(self.pace.rest_s)
        with Poller(self.card) as poller:
            start_s = time.perf_counter()
            self._rest(self.pace.trial_s)
            end_s = time.perf_counter()
        return between_edges(poller.edges, poller.powers, start_s, end_s)

    def _cool(self, target_c: float | None) -> None:
        """Rest until the card is at most 1 K warmer than *target_c*."""
        card = self.card
        assert card is not None

        def cool() -> bool:
            now_c = card.temperature_c()
            return target_c is None or now_c is None or now_c <= target_c + 1

        self._rest(0.0 if cool() else self.pace.cool_s, cool)

    def _trial(self, call: Call, call_s: float) -> EnergyTrial | None:
        """Return one trial under load; None if the counter moved less than twice."""
        assert self.card is not None
        pace, start_c = self.pace, self.card.temperature_c()
        times: list[float] = []
        clocks: list[float] = []
        with Poller(self.card) as poller:
            start_s = end_s = time.perf_counter() + pace.warm_s
            batches = self.load(call, call_s)
            for time_s, clock_hz in batches:
                self.heard()
                end_s = time.perf_counter()
                if end_s < start_s:
                    continue
                times.append(time_s)
                clocks += [clock_hz] if clock_hz else []
                lasted_s = end_s - start_s
                enough = lasted_s > pace.trial_s and poller.ticks(start_s) > TICKS
                if enough or lasted_s > pace.most_s:
                    break
            if hasattr(batches, "close"):
                batches.close()
        stretch = between_edges(poller.edges, poller.powers, start_s, end_s)
        if stretch is None:
            return None
        clock_hz = sum(clocks) / len(clocks) if clocks else None
        own = (stretch.seconds, stretch.counter_j, stretch.integrated_j, stretch.ticks)
        return EnergyTrial(*own, stretch.edge_s, sum(times) / len(times), clock_hz, start_c)


def energy_caveats(energy: Energy) -> Iterable[Caveat]:
    """Yield the caveats that *energy* has no figure, or that counter and power disagree."""
    if energy.refused:
        yield Caveat(
            "no-energy",
            f"the energy of a call is unknown: {energy.refused}",
            "measure on an idle card of its own, with a driver that counts energy",
        )
    figure = call_energy(energy)
    ratio = figure.counter_over_power if figure else None
    if ratio is not None and abs(ratio - 1) > DISAGREEING:
        yield Caveat(
            "energy-disagrees",
            f"the energy counter shows {ratio:.3f} times the integral of the power",
            "compare such energies on one card and driver only",
        )


def open_energy_meter(
    meter: Meter, window: Window, heard: Callable[[], None] = lambda: None
) -> EnergyMeter:
    """Return the meter of the energy of the card that *meter* reads."""
    card = meter.card() if isinstance(meter, NvmlMeter) else None
    return EnergyMeter(card, stream_load(window), heard=heard)
