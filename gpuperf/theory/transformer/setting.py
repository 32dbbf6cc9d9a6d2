"""Turn the parameters of the theory of inference into a model on a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuperf.theory.theory import Chip, Parameter
from gpuperf.theory.transformer.find import find_model
from gpuperf.theory.transformer.measured import MeasuredTimes, read_points
from gpuperf.theory.transformer.model import Model
from gpuperf.theory.transformer.step import (
    AUTO,
    KV,
    MEMORY_SHARE,
    WEIGHTS,
    Formats,
    Roofs,
    Steps,
    check_groups,
    formats_of,
    gpus_that_fit,
    roofs_of,
    weight_bytes,
)
from gpuperf.units import format_bytes

FUSION = ("fused", "unfused")
# Parameters of every theory about a model on a device.
PARAMETERS = (
    Parameter("model", "llama-3-8b", "a model by name, or the path of a config.json", kind="text"),
    Parameter("weights", AUTO, "format of the layers' weights", choices=(AUTO, *WEIGHTS)),
    Parameter("group", "128", "int4 weights that share a scale", most=2**16),
    Parameter("kv", AUTO, "format of the KV cache", choices=(AUTO, *KV)),
    Parameter("elementwise", "fused", "kernels of norms and sums", choices=FUSION),
    Parameter("fixed_us", "0", "µs of a pass besides kernels", least=0, most=1e6, kind="number"),
    Parameter("measured", "", "run files of `linear` and `decode`", kind="text", swept=True),
)


@dataclass(frozen=True)
class Setting:
    """A model in its formats, the times of its passes, and the bytes of a device's memory (None if
    unknown)."""

    steps: Steps
    capacity: float | None

    @property
    def model(self) -> Model:
        """The model of the passes."""
        return self.steps.model

    @property
    def formats(self) -> Formats:
        """The formats of weights and cache."""
        return self.steps.formats

    @property
    def roofs(self) -> Roofs:
        """The roofs of the device."""
        return self.steps.roofs

    def gpus(self, tokens: int) -> int | None:
        """Return the devices that have memory for the weights and the KV of *tokens* tokens."""
        if self.capacity is None:
            return None
        return gpus_that_fit(self.model, self.formats, self.capacity, tokens)


def setting_of(at: Any, chip: Chip, name: str | None = None) -> Setting:
    """Return the setting of the parameters *at* on *chip*, for the model *name* if it is given.

    Raises: UsageError for an unknown model, for formats that do not fit it, and for a device that
    lacks a figure.
    """
    model = find_model(at.model if name is None else name)
    formats = formats_of(chip, at.weights, at.kv, at.group)
    check_groups(model, formats)
    roofs = roofs_of(chip, formats, at.fixed_us * 1e-6)
    paths = tuple(path for path in at.measured if path)
    measured = MeasuredTimes(read_points(paths), roofs, formats) if paths else None
    steps = Steps(model, formats, roofs, at.elementwise == "unfused", measured)
    return Setting(steps, chip.figure("memory_capacity"))


def remarks(setting: Setting, chip: Chip) -> Iterator[str]:
    """Yield what is doubtful about *setting*: the model's own doubts, and a lack of memory."""
    yield from setting.model.doubts
    needed = setting.gpus(0)
    if setting.capacity is not None and needed is not None and needed > 1:
        weights = format_bytes(weight_bytes(setting.model, setting.formats))
        share = format_bytes(MEMORY_SHARE * setting.capacity)
        yield (
            f"the weights ({weights}) do not fit one {chip.peaks.name} ({share} for weights and "
            f"cache): {needed} would hold them; times are those of one with enough memory"
        )
    measured = setting.steps.measured
    if isinstance(measured, MeasuredTimes):
        yield from measured.remarks(chip.peaks)
