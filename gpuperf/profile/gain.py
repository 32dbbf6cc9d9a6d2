"""How much shorter does a step become, if the device has less to do in it?

Time of the device that is saved shortens the step only where the device is what the step waits for,
so it counts by the share of the step in which the device was busy (Amdahl). And a step is never
shorter than what is left of any engine of the device: kernels, copies or communication.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuperf.profile.breakdown import Profile


@dataclass(frozen=True)
class Gain:
    """What to do, the seconds of a step that it would save, their share, what that rests on, and
    the lines or operators that it is about."""

    title: str
    gain_s: float
    share: float
    basis: str
    where: tuple[str, ...] = ()


def saved(profile: Profile, device_s: float, copies: bool = False) -> tuple[float, float]:
    """Seconds and share of the step for *device_s* less of kernels, or of *copies*."""
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
    counts = busy_s / profile.step_s if profile.cuda else 1.0
    gain_s = max(0.0, min(device_s * counts, busy_s - min(busy_s, left_s)))
    return gain_s, gain_s / profile.step_s
