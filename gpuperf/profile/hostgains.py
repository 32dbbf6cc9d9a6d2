"""Estimate what a step gains if the device waits less for launches, the host, data or copies.

The work of the device stays the same, so no gain exceeds its idle time. A faster copy shortens a
step at most to the time of the device's other work.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuperf.model.record import Header
from gpuperf.profile.breakdown import Profile
from gpuperf.profile.gain import Gain, saved
from gpuperf.units import format_bytes, format_time

MOST_WHERE = 4  # places of a finding
# Bytes a second of 16 PCIe lanes one way, by generation: PCI-SIG's transfer rates (8, 16, 32 and
# 64 GT/s a lane) with their encoding.
LANES_BYTES_PER_S = {"3.0": 15.75e9, "4.0": 31.5e9, "5.0": 63.0e9, "6.0": 121.0e9}
REACHED = 0.8  # share of that rate which a copy from pinned memory reaches, about
UNKNOWN = "3.0"  # for a device of unknown PCIe version: the slowest link, with the smallest gain


def _launches(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of launching faster: the seconds in which the device waits for launches."""
    idle_s = profile.parts["idle: launch or host"]
    program = profile.region.program
    if profile.cuda and idle_s > 0 and "busy" in profile.region.times:
        kernels = program.launched.get("kernel", 0.0) if program else 0.0
        yield Gain(
            "launch less: CUDA graphs, torch.compile(mode='reduce-overhead'), larger batches",
            idle_s,
            idle_s / profile.step_s,
            f"the GPU is idle {idle_s / profile.step_s * 100:.1f} % of the step while the host, "
            f"without waiting for it, launches {kernels:,g} kernels too slowly",
        )


def _waits(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of removing the lines at which the host waits for the device."""
    program = profile.region.program
    gain_s = profile.parts["idle: waiting"]
    if program is None or not gain_s:
        return
    lines = [wait for wait in program.waits if wait.idle_s]
    lines.sort(key=lambda wait: -wait.idle_s)
    yield Gain(
        "do not wait for the device in the loop",
        gain_s,
        gain_s / profile.step_s,
        f"the host waits for the device {sum(w.count for w in lines):.4g} times a step, and the "
        "device then idles until the host has launched more, at most as long as the host waited",
        tuple(f"{w.where or 'unknown line'} ({w.what})" for w in lines[:MOST_WHERE]),
    )


def _data(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of faster loading: the idle seconds while the loop waits for a DataLoader."""
    program, gain_s = profile.region.program, profile.parts["idle: data"]
    if program is None or not gain_s:
        return
    device = "the device idles" if profile.cuda else "nothing else runs"
    yield Gain(
        "load data faster: DataLoader with more num_workers, prefetch_factor, persistent_workers",
        gain_s,
        gain_s / profile.step_s,
        f"the loop waits {format_time(program.data_s)} a step for its DataLoader, and {device} "
        f"for {format_time(gain_s)} of that",
        (program.data_where,) if program.data_where else (),
    )


def _pageable(profile: Profile, header: Header) -> Iterator[Gain]:
    """Yield the gain of pinned memory for copies, at the rate of the device's PCIe link."""
    program = profile.region.program
    moved = program.moved if program else {}
    version = header.peaks.pcie if header.peaks else ""
    known = version in LANES_BYTES_PER_S
    rate = REACHED * LANES_BYTES_PER_S[version if known else UNKNOWN]
    link = f"PCIe {version}" if known else f"PCIe {UNKNOWN}, as the device's is unknown"
    for name, size in moved.items():
        seconds = program.occupied.get(name, 0.0) if program else 0.0
        seconds *= profile.scales.pageable
        if "pageable" in name and seconds:
            gain_s, share = saved(profile, max(0.0, seconds - size / rate), copies=True)
            yield Gain(
                "copy from pinned memory: pin_memory=True, and non_blocking=True",
                gain_s,
                share,
                f"{format_bytes(size)} a step from pageable memory at "
                f"{format_bytes(size / seconds)}/s, pinned at {format_bytes(rate)}/s ({link})",
                _copied_at(profile),
            )


def _copied_at(profile: Profile) -> tuple[str, ...]:
    """Return the lines of the program that copy from or to pageable memory."""
    program = profile.region.program
    waits = program.waits if program else ()
    return tuple(w.where for w in waits if "pageable" in w.what and w.where)[:MOST_WHERE]


HOST_MAKERS = (_launches, _waits, _data, _pageable)
