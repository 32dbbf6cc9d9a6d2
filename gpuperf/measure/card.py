"""Read the energy, the power and the temperature of one GPU through NVML.

Constants: nvml.h, driver 580. The field of the instantaneous power is 186, since
`nvmlDeviceGetPowerUsage` is a mean over a second on most cards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT


class Card:
    """The readings of one GPU that an energy needs; None where the card has no such reading."""

    def __init__(self, nvml: Any, handle: Any, others: Callable[[], int | None]) -> None:
        self._nvml, self._handle, self.others = nvml, handle, others

    def _ask(self, function: str, *args: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle, *args)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def energy_j(self) -> float | None:
        """Return the joules since the driver was loaded."""
        energy = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if energy is None else energy * 1e-3

    def power_w(self) -> float | None:
        """Return the instantaneous power, or else the mean of the last second."""
        fields = self._ask("nvmlDeviceGetFieldValues", [INSTANT])
        if fields and not fields[0].nvmlReturn and fields[0].value.uiVal:
            return float(fields[0].value.uiVal) * 1e-3
        power = self._ask("nvmlDeviceGetPowerUsage")
        return None if power is None else power * 1e-3

    def temperature_c(self) -> float | None:
        """Return the temperature of the GPU."""
        celsius = self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU)
        return None if celsius is None else float(celsius)

    def is_slice(self) -> bool:
        """Return whether MIG divides the card, whose counter is that of all slices."""
        mode = self._ask("nvmlDeviceGetMigMode")
        return bool(mode and mode[0])
