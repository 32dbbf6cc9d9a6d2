"""Estimate how much shorter a step becomes if the device has less to do in it.

Saved device time shortens a step only while the step waits for the device, so it counts by the
share of the step in which the device was busy (Amdahl). A copy from or to pageable memory counts
in full: the host makes it, and launches nothing meanwhile. A step is never shorter than what
remains for any engine of the device: kernels, copies or communication.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuperf.profile.breakdown import Profile


@dataclass(frozen=True)
class Gain:
    """A finding: what to do, the seconds and the share of a step that it saves, the basis of that
    estimate, and the lines or operators to change."""

    title: str
    gain_s: float
    share: float
    basis: str
    where: tuple[str, ...] = ()


def saved(profile: Profile, device_s: float, copies: bool = False) -> tuple[float, float]:
    """Return the seconds and the share of a step that *device_s* less of kernels, or of *copies*
    that the host makes, save."""
    busy_s = profile.step_s if profile.busy_s is None else profile.busy_s
    engines = dict.fromkeys(("kernels", "copies", "communication"), 0.0)
    for share in profile.operators:
        engine = share.part if share.part in engines else "kernels"
        engines["copies"] += share.copied_s
        engines[engine] += share.seconds - share.copied_s
    if profile.cuda:  # kernels and copies that overlap were drawn in to fit the step
        engines["kernels"] /= min(1.0, profile.scale)
    engines["copies" if copies else "kernels"] -= device_s
    left_s = max(busy_s - device_s, *engines.values(), 0.0)
    counts = busy_s / profile.step_s if profile.cuda and not copies else 1.0
    gain_s = max(0.0, min(device_s * counts, busy_s - min(busy_s, left_s)))
    return gain_s, gain_s / profile.step_s
