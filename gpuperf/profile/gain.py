"""Estimate how much shorter a step becomes if the device has less to do in it.

Saved device time shortens a step only while the step waits for the device, so it counts by the
share of the step in which the device was busy (Amdahl). A copy from or to pageable memory counts
in full: the host makes it, and launches nothing meanwhile. A step never gets shorter than the time
that its kernels, its copies or its communication still take.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuperf.profile.breakdown import Profile


@dataclass(frozen=True)
class Gain:
    """A finding: what to do (`title`), the seconds and the share of a step that this saves, the
    `basis` of that estimate, and the lines of the program or the operators to change (`where`)."""

    title: str
    gain_s: float
    share: float
    basis: str
    where: tuple[str, ...] = ()


def saved(profile: Profile, device_s: float, copies: bool = False) -> tuple[float, float]:
    """Return by how many seconds, and by what share, a step gets shorter if its kernels take
    *device_s* seconds less, or, with *copies*, its pageable copies do."""
    busy_s = profile.step_s if profile.busy_s is None else profile.busy_s
    engines = dict.fromkeys(("kernels", "copies", "communication"), 0.0)
    for share in profile.operators:
        engine = share.part if share.part in engines else "kernels"
        engines["copies"] += share.copied_s
        engines[engine] += share.seconds - share.copied_s
    if profile.cuda:  # times of kernels that overlap copies were scaled down to fit the step
        engines["kernels"] /= min(1.0, profile.scales.kernels)
    engines["copies" if copies else "kernels"] -= device_s
    left_s = max(busy_s - device_s, *engines.values(), 0.0)
    counts = busy_s / profile.step_s if profile.cuda and not copies else 1.0
    gain_s = max(0.0, min(device_s * counts, busy_s - min(busy_s, left_s)))
    return gain_s, gain_s / profile.step_s
