"""Apply Little's law to memory: bytes in flight = latency · bandwidth."""

from __future__ import annotations


def bytes_in_flight(latency_s: float, bandwidth: float) -> float:
    """Return the bytes in flight that saturate *bandwidth* (byte/s)."""
    return latency_s * bandwidth


def attained(in_flight: float, latency_s: float, bandwidth: float) -> float:
    """Return the bandwidth in byte/s with *in_flight* bytes: min(x / latency, bandwidth)."""
    return min(in_flight / latency_s, bandwidth)


def queued(in_flight: float, latency_s: float, bandwidth: float) -> float:
    """Return the least bandwidth in byte/s with *in_flight* bytes: each load waits for all others.

    It is the lower asymptotic bound of a closed queueing network (P. J. Denning and J. P. Buzen,
    The Operational Analysis of Queueing Network Models, 1978); `attained` is the upper one.
    """
    return in_flight / (latency_s + in_flight / bandwidth)


def threads_needed(latency_s: float, bandwidth: float, sms: int, size: int) -> float:
    """Return the threads of an SM that saturate *bandwidth*, each with one load of *size* bytes in
    flight."""
    return bytes_in_flight(latency_s, bandwidth) / sms / size
