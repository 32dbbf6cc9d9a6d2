"""Find the peaks of a device: in the user's file, else in a built-in file."""

from __future__ import annotations

import functools
import importlib.resources
from pathlib import Path

from gpuperf.errors import UnknownName, UsageError
from gpuperf.files import read_regular
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.peaks import Peaks, matches
from gpuperf.peaks.file import LARGEST_FILE, parse_peaks


@functools.cache
def builtin_peaks() -> tuple[Peaks, ...]:
    """Return the peaks of all built-in devices, sorted by id."""
    folder = importlib.resources.files("gpuperf.configs") / "devices"
    files = [f for f in folder.iterdir() if f.name.endswith(".toml")]
    peaks = [parse_peaks(f.read_text(encoding="utf-8"), f.name) for f in files]
    return tuple(sorted(peaks, key=lambda one: one.id))


def find_device(name: str) -> Peaks:
    """Return the built-in peaks whose id is *name*, or the only ones with *name* in their id.

    Raises: UnknownName.
    """
    known = {peaks.id: peaks for peaks in builtin_peaks()}
    near = [key for key in known if name.strip().lower() in key]
    if name not in known and len(near) != 1:
        raise UnknownName("device", name, near or known, "`gpuperf devices` lists them")
    return known[name if name in known else near[0]]


def load_peaks(path: Path) -> Peaks:
    """Return the peaks in the user's file *path*. Raises: UsageError if it cannot be read."""
    try:
        data = read_regular(path, LARGEST_FILE)
    except FileNotFoundError:
        raise UsageError(
            f"there is no peaks file {str(path)!r}",
            "`gpuperf devices` lists the devices that need no file",
        ) from None
    except OSError as error:
        raise UsageError(
            f"the peaks file {str(path)!r} cannot be read: {error.strerror}",
            "give a TOML file with the peaks of one device",
        ) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(
            f"the peaks file {str(path)!r} is not UTF-8 text", "save it as UTF-8"
        ) from None
    return parse_peaks(text, str(path))


def resolve_peaks(name: str, sm_count: int, user: Peaks | None = None) -> tuple[Peaks | None, str]:
    """Return the peaks of the device *name* with *sm_count* SMs, and the doubt about that choice.

    The doubt is empty if a file has this name and SM count. The user's file is taken in any case;
    if it is for another device, the doubt says so.
    """
    if user is not None and matches(user, name, sm_count):
        return user, ""
    if user is not None:
        return user, (
            f"the peaks given are for {user.name!r} with {user.sm_count} SMs, and the device is "
            f"{name.strip()!r} with {sm_count}"
        )
    fitting = [peaks for peaks in builtin_peaks() if matches(peaks, name, sm_count)]
    if fitting:
        return fitting[0], ""
    return None, _unknown(name.strip(), sm_count)


def _unknown(name: str, sm_count: int) -> str:
    reason = f"no peaks are known for {name!r} with {sm_count} SMs"
    namesakes = [p.sm_count for p in builtin_peaks() if matches(p, name, p.sm_count)]
    return (
        f"{reason}: the device of this name that is known has {namesakes[0]}"
        if namesakes
        else reason
    )


def find_peaks(device: DeviceFacts, user: Peaks | None = None) -> tuple[Peaks | None, str]:
    """Return `resolve_peaks` for an opened device. A CPU has peaks only in a user's file."""
    if device.kind == "cpu" and user is None:
        return None, "gpuperf has no data sheets of CPUs"
    return resolve_peaks(device.name, device.sm_count, user)
