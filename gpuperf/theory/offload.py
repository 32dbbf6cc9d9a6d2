"""Compare work on the host with work on a device to which the data is copied first."""

from __future__ import annotations


def offload_seconds(device_s: float, copied: float, link: float) -> float:
    """Return the seconds of a call on the device whose data and results, *copied* bytes, cross a
    link of *link* byte/s."""
    return device_s + copied / link


def offload_gain(host_s: float, device_s: float, copied: float, link: float) -> float:
    """Return the speed-up over the host; with an infinite *link* it is that of the kernel alone."""
    return host_s / offload_seconds(device_s, copied, link)


def break_even(copied: float, link: float) -> float:
    """Return the seconds on the host below which no device is faster, however fast its kernel."""
    return offload_seconds(0.0, copied, link)
