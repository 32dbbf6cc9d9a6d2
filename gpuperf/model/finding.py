"""What did `gpuperf doctor` find?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One fact of this machine, whether it stands in the way of good numbers, and what to do."""

    name: str
    verdict: Literal["ok", "note", "bad"]
    value: str
    hint: str = ""
