"""Make the columns and notes of the energy of a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gpuperf.model.energy import CallEnergy, call_energy
from gpuperf.model.record import Record
from gpuperf.show.table import Column, Note
from gpuperf.units import format_interval, format_number, format_si

if TYPE_CHECKING:
    from gpuperf.roofline.rows import Entry

NOTHING = "–"
ENERGIES = (
    "energy_j",
    "energy_low_j",
    "energy_high_j",
    "energy_net_j",
    "energy_per_flop_j",
    "energy_per_byte_j",
    "flop_per_j",
    "flop_per_j_net",
    "power_mean_w",
    "power_idle_w",
    "energy_counter_over_power",
)


def energy_row(record: Record) -> dict[str, Any]:
    """Return the figures of the energy of a call, each None where it is unknown."""
    energy, cost = call_energy(record.energy), record.cost
    if energy is None:
        return dict.fromkeys(ENERGIES)
    flops, moved = (cost.flop_count, cost.dram_bytes) if cost else (0, 0)
    net = energy.net_j
    values = (
        energy.gross_j,
        energy.gross_j - energy.half_j,
        energy.gross_j + energy.half_j,
        net,
        energy.gross_j / flops if flops else None,
        energy.gross_j / moved if moved else None,
        flops / energy.gross_j if flops else None,
        flops / net if flops and net and net > 0 else None,
        energy.power_w,
        energy.idle_w,
        energy.counter_over_power,
    )
    return dict(zip(ENERGIES, values, strict=True))


def energy_columns(entries: Sequence[Entry]) -> Iterable[Column]:
    """Yield the columns of the energy of a call, where any record has one."""
    energies = [call_energy(e.record.energy) if e.time else None for e in entries]
    if not any(energies):
        return
    yield Column("energy", "a call, gross", tuple(_gross(e) for e in energies))
    nets = (e.net_j if e else None for e in energies)
    yield Column("energy", "net of idle", tuple(_joules(net) for net in nets), 7)
    rows = [energy_row(e.record) for e in entries]
    for unit, name, keep in (("TFLOP/s/W", "flop_per_j", 8), ("net TF/s/W", "flop_per_j_net", 4)):
        rates = (row[name] for row in rows)
        cells = tuple(NOTHING if rate is None else format_number(rate * 1e-12) for rate in rates)
        yield Column("efficiency", unit, cells, keep)
    powers = (e.power_w if e else None for e in energies)
    yield Column("power", "W", tuple(NOTHING if p is None else f"{p:.0f}" for p in powers), 4)


def _gross(energy: CallEnergy | None) -> str:
    if energy is None:
        return NOTHING
    low, high = energy.gross_j - energy.half_j, energy.gross_j + energy.half_j
    return f"{_joules(energy.gross_j)} {format_interval(energy.gross_j, low, high)}"


def _joules(value: float | None) -> str:
    return NOTHING if value is None else format_si(value, "J")


def energy_notes(entries: Sequence[Entry]) -> Iterable[Note]:
    """Yield how the energies were measured."""
    known = [(e.record, own) for e in entries if (own := call_energy(e.record.energy))]
    if not known:
        return
    trials = [trial for record, _ in known if record.energy for trial in record.energy.trials]
    least_s, ticks = min(t.seconds for t in trials), min(t.ticks for t in trials)
    idle = sorted(own.idle_w for _, own in known if own.idle_w is not None)
    ratios = sorted(f.counter_over_power for _, f in known if f.counter_over_power is not None)
    parts = [
        f"counter of the card, {len(trials) // len(known)} trials of {least_s:.1f} s or more "
        f"between its edges ({ticks} or more), 95 % interval over trials"
    ]
    parts += [f"idle {_range(idle)} W"] if idle else []
    parts += [f"counter over integrated power {_range(ratios, 3)}"] if ratios else []
    yield "Energy", "; ".join(parts)


def _range(values: Sequence[float], digits: int = 0) -> str:
    low, high = f"{values[0]:.{digits}f}", f"{values[-1]:.{digits}f}"
    return low if low == high else f"{low} to {high}"
