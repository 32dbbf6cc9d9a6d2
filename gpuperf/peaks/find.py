"""Which peaks belong to a device: the user's file, then ours, then unknown, with the reason."""

from __future__ import annotations

import functools
import importlib.resources
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.files import read_regular
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.peaks import Peaks, matches
from gpuperf.peaks.file import LARGEST_FILE, parse_peaks


@functools.cache
def builtin_peaks() -> tuple[Peaks, ...]:
    """Every device that gpuperf knows, by id; read once."""
    folder = importlib.resources.files("gpuperf.configs") / "devices"
    files = [f for f in folder.iterdir() if f.name.endswith(".toml")]
    return tuple(
        sorted(
            (parse_peaks(f.read_text(encoding="utf-8"), f.name) for f in files),
            key=lambda peaks: peaks.id,
        )
    )


def load_peaks(path: Path) -> Peaks:
    """The peaks in the user's file at *path*. Raises: UsageError when it cannot be read."""
    try:
        data = read_regular(path, LARGEST_FILE)
    except FileNotFoundError:
        raise UsageError(
            f"there is no peaks file {str(path)!r}",
            "the devices known without one: gpuperf devices",
        ) from None
    except OSError as error:
        raise UsageError(
            f"the peaks file {str(path)!r} cannot be read: {error.strerror}",
            "a peaks file is one TOML file a device",
        ) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(
            f"the peaks file {str(path)!r} is not UTF-8 text", "it is TOML, saved as UTF-8"
        ) from None
    return parse_peaks(text, str(path))


def resolve_peaks(name: str, sm_count: int, user: Peaks | None = None) -> tuple[Peaks | None, str]:
    """The peaks of the device *name* with *sm_count* SMs, and what is doubtful about that choice.

    The reason is empty when one of our files, or the user's, fits. The user's file is taken even
    when it does not fit: the reason then is a warning.
    """
    if user is not None:
        return user, "" if matches(user, name, sm_count) else _misfit(user, name, sm_count)
    fitting = [peaks for peaks in builtin_peaks() if matches(peaks, name, sm_count)]
    if fitting:
        return fitting[0], ""
    return None, _unknown(name.strip(), sm_count)


def _misfit(user: Peaks, name: str, sm_count: int) -> str:
    return (
        f"the peaks given are for {user.name!r} with {user.sm_count} SMs, and the device is "
        f"{name.strip()!r} with {sm_count}"
    )


def _unknown(name: str, sm_count: int) -> str:
    reason = f"no peaks are known for {name!r} with {sm_count} SMs"
    namesakes = [p.sm_count for p in builtin_peaks() if matches(p, name, p.sm_count)]
    if namesakes:
        return f"{reason}: the device of this name that is known has {namesakes[0]}"
    return reason


def find_peaks(device: DeviceFacts, user: Peaks | None = None) -> tuple[Peaks | None, str]:
    """`resolve_peaks` for an opened device. A CPU has a data sheet only in the user's file."""
    if device.kind == "cpu" and user is None:
        return None, "no data sheets of CPUs are kept; measured roofs serve"
    return resolve_peaks(device.name, device.sm_count, user)
