"""Write the values of an experiment: places, measurements, predictions and fitted parameters."""

from __future__ import annotations

from gpuperf.lab.study import LabPoint, Study
from gpuperf.model.experiment import READING, ExperimentDescription, Fitted, Prediction
from gpuperf.units import format_bytes, format_flop_rate, format_number, format_rate, format_time

UNKNOWN = "–"
DIGITS, X_DIGITS = 4, 5
EXACT = 2**53  # whole numbers of floating point below it
HEADS = {
    "time_per_step": "time a step",
    "cycles_per_step": "cycles a step",
    "bytes_per_s": "bandwidth",
    "flop_per_s": "throughput",
    "time_ratio": "time / baseline's",
    "speedup": "speed-up",
    "cycle_ratio": "cycles / baseline's",
    "cycle_speedup": "speed-up in cycles",
    "dram_bytes": "DRAM bytes a step",
    "dram_read_bytes": "DRAM bytes read a step",
    "dram_written_bytes": "DRAM bytes written a step",
    "l2_bytes": "L2 bytes a step",
    "sm_read_bytes": "bytes read by SMs a step",
    "l1_bytes": "L1 bytes a step",
    "call_bytes": "memory of a call",
}
SECONDS = ("latency of ", "seconds of ")  # the same, of parameters in seconds
OF_Y = ("level", "plateau")  # how the names of parameters in the unit of y begin


def quantity(value: float, unit: str) -> str:
    """Write *value* with its unit: `4.02 cycles`, `3.1 µs`, `1.98` for a ratio."""
    if unit == "s":
        return format_time(value, DIGITS)
    if unit == "byte":
        return format_bytes(value)
    if unit == "byte/s":
        return format_rate(value)
    if unit == "FLOP/s":
        return format_flop_rate(value)
    number = f"{float(format_number(value, DIGITS)):,.10g}"
    return f"{number} cycle{'s' * (number != '1')}" if unit == "cycles" else number


def head_of(experiment: ExperimentDescription) -> str:
    """Return the name of y on a chart and in a table."""
    return HEADS.get(experiment.y, experiment.y.removeprefix(READING).replace("_", " "))


def series_name(name: str, study: Study) -> str:
    """Return the name of a line: `measured` if there is one, else `offset=8` or `cuda`."""
    if len(study.series) == 1:
        return "measured"
    axis = study.experiment.series
    return name if axis == "implementation" else f"{axis}={name}"


def x_text(prediction: Prediction) -> str:
    """Write the x of a point: `1081344`, `40.265`, `tiled`."""
    label = prediction.label or format_number(prediction.x, X_DIGITS)
    if prediction.label and not prediction.label.isdecimal() and prediction.x:
        whole = prediction.x.is_integer() and abs(prediction.x) < EXACT
        return str(int(prediction.x)) if whole else f"{prediction.x:.{X_DIGITS}g}"
    return label


def interval(low: float, high: float, unit: str) -> str:
    """Write the ends of an interval, in brackets, after a value that has the unit *unit*."""
    shown = "" if unit == "cycles" else unit
    return f"({quantity(low, shown)} to {quantity(high, shown)})"


def place_text(point: LabPoint, study: Study) -> str:
    """Write the place of a point: `stride=16`, with the series where there are several."""
    prediction, experiment = point.prediction, study.experiment
    place = f"{experiment.x}={x_text(prediction)}"
    several = len({p.prediction.series for p in study.points}) > 1
    return f"{place} ({prediction.series})" if several and prediction.series else place


def measured_text(point: LabPoint, study: Study) -> str:
    """Write what was measured, with its interval; or why nothing was."""
    measured, unit = point.measured, study.experiment.unit
    if measured is None:
        return point.reason or UNKNOWN
    return f"{quantity(measured.value, unit)} {interval(measured.low, measured.high, unit)}"


def expected_text(point: LabPoint, study: Study) -> str:
    """Write what is predicted, with its band."""
    expected, unit = point.expected, study.experiment.unit
    if expected is None:
        return UNKNOWN
    return f"{quantity(expected.value, unit)} {interval(expected.low, expected.high, unit)}"


def fitted_text(fitted: Fitted, experiment: ExperimentDescription) -> str:
    """Write a fitted parameter: `the slope is 1.004 (0.998 to 1.01), predicted 1 ± 3 %`."""
    law = experiment.law
    level = law.form == "plateaus" and fitted.name in law.names
    unit = experiment.unit if level or fitted.name.startswith(OF_Y) else ""
    unit = "s" if fitted.name.startswith(SECONDS) else unit
    value, expected = quantity(fitted.value, unit), quantity(fitted.expected, unit)
    whose = f" of {fitted.series}" if fitted.series else ""
    between = f" {interval(fitted.low, fitted.high, unit)}" if fitted.low != fitted.high else ""
    band = f"{float(format_number(fitted.band * 100, 2)):g}"
    name = fitted.name if fitted.name[-1:].isdigit() else f"the {fitted.name}"
    return f"{name}{whose} is {value}{between}, predicted {expected} ± {band} %"
