"""Counters, or the reason why there are none, reach a case's record and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest
import torch
from command_line import CommandLine, assert_refused
from fake_bench import CONTRACT, FACTS, INCREMENT, make_bench

from gpuperf.errors import CannotMeasure, UnknownName
from gpuperf.measure.counters import case as counting_of
from gpuperf.measure.counters.cupti import NoCounters
from gpuperf.measure.timers.timer import Call
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Cache, Contract, Counting
from gpuperf.model.metrics import KERNEL
from gpuperf.model.record import Caveat, Kernel, Record, TimerFacts
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case, Workload
from gpuperf.run.plan import Conditions, plan_counting
from gpuperf.verb import options

DRAM = {"dram_read_bytes": 3e6, "dram_written_bytes": 1e6, "dram_calls": 120.0}
FORBIDDEN = NoCounters("permission", "cuptiPmSamplingEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")
UNSURE = NoCounters("overflow", "0.3 s gave more samples than there was room")
COUNTING = [counting for counting in get_args(Counting) if counting != "off"]


@dataclass
class FakeCounters:
    """Gives the same counters to every call, or fails in one of its *steps*."""

    fails: Mapping[str, Exception] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    asked: list[tuple[Cache, float]] = field(default_factory=list)
    wanted: tuple[str, ...] = ()

    def calibration(self) -> None:
        self._step("calibration")

    def traffic(
        self, call: Call, policy: Cache, call_s: float, heard: Callable[[], None]
    ) -> dict[str, float]:
        heard()
        self._step("traffic")
        self.asked.append((policy, call_s))
        call()
        return dict(DRAM)

    def kernels(
        self, call: Call, policy: Cache, wanted: Mapping[str, object] = KERNEL
    ) -> tuple[list[dict[str, float]], int]:
        self._step("kernels")
        self.wanted = tuple(wanted)
        call()
        return [{"l2_bytes": 4e6, "cycles": 900.0}, {"l2_bytes": 1e6, "dram_read_bytes": 1.0}], 7

    def cycles(self, call: Call, policy: Cache, gap_s: float) -> dict[str, float]:
        self._step("cycles")
        call()
        return {"extra_cycles": 500.0, "active_cycles": 7500.0}

    def _step(self, name: str) -> None:
        self.log.append(name)
        if name in self.fails:
            raise self.fails[name]


@dataclass
class FakeStopwatch:
    """Every call takes a millisecond, in a GEMM and the sum of its parts."""

    timer: Any = None
    facts: TimerFacts = field(default_factory=TimerFacts)

    def with_hooks(self, *hooks: object) -> FakeStopwatch:
        return self

    def repeat(self, call: Call) -> Call:
        return call

    def release(self) -> None:
        pass

    def candidate_timers(self, contract: Contract) -> tuple[Callable[[Call], float], ...]:
        return (lambda call: 1e-3,) * 2

    def take(self, call: Call, contract: Contract, call_s: float, fits_cache: bool) -> Timing:
        times = {"busy": Samples((1e-3,) * 20, (2e9,) * 20)}
        kernels = (Kernel("gemm"), Kernel("reduce"))
        return Timing(times, "busy", "precision", self.facts, kernels, ("gemm", "reduce"))


def count(
    counting: Counting,
    counters: FakeCounters,
    monkeypatch: pytest.MonkeyPatch,
    contract: Contract = CONTRACT,
    workload: Workload = INCREMENT,
    timed: Callable[[Record], None] = lambda record: None,
    quantity: str = "",
) -> tuple[Record, list[str]]:
    """The record of a case whose card has *counters*, and the phases that it reported."""

    def opened(device: torch.device, l2_bytes: int | None) -> FakeCounters:
        counters.log.append("open")
        if "open" in counters.fails:
            raise counters.fails["open"]
        return counters

    monkeypatch.setattr(counting_of, "open_counters", opened)
    phases: list[str] = []
    watch: Any = FakeStopwatch()
    watch.timer = watch
    made = replace(
        make_bench(),
        stopwatch=watch,
        report=lambda phase, samples: phases.append(phase),
        counting=counting,
        on_timed=timed,
        quantity=quantity,
    )
    case = Case(workload.name, "torch", {"n": 100, "dtype": "fp32"})
    return made.measure(workload, case, contract, "r", seed=5), phases


def doubts(record: Record) -> dict[str, Caveat]:
    return {caveat.kind: caveat for caveat in record.caveats}


@pytest.mark.parametrize("counting", ["auto", "require"])
def test_the_bytes_that_a_call_moved_are_in_its_record(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = FakeCounters()
    record, _ = count(counting, counters, monkeypatch)
    assert (record.status, record.reason) == ("ok", "")
    assert record.counters == DRAM
    assert [kernel.counters for kernel in record.kernels] == [{}, {}]
    assert "no-counters" not in doubts(record)
    assert counters.asked == [("cold", 1e-3)]
    assert "kernels" not in counters.log


def test_the_counters_of_each_kernel_are_in_the_record_and_their_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record, _ = count("kernels", FakeCounters(), monkeypatch, replace(CONTRACT, timer="blocked"))
    assert record.status == "ok"
    cycles = {"active_cycles": 7500.0, "elapsed_cycles": 2_000_500.0}  # 1 ms at 2 GHz
    assert record.counters == {**DRAM, "l2_bytes": 5e6, "kernel_passes": 7, **cycles}
    assert record.kernels == (
        Kernel("gemm", 1, {"l2_bytes": 4e6, "cycles": 900.0}),
        Kernel("reduce", 1, {"l2_bytes": 1e6, "dram_read_bytes": 1.0}),
    )


def test_of_one_quantity_the_others_and_the_cycles_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pass of the counters of a call takes a tenth of a second."""
    contract = replace(CONTRACT, timer="blocked")
    for quantity, wanted in (("l2_bytes", ("l2_bytes",)), ("time_per_step", tuple(KERNEL))):
        counters = FakeCounters()
        record, _ = count("kernels", counters, monkeypatch, contract, quantity=quantity)
        assert record.status == "ok"
        assert counters.wanted == wanted
        assert "cycles" not in counters.log


@pytest.mark.parametrize(
    "contract", [CONTRACT, replace(CONTRACT, timer="blocked", regime="sustained")]
)
def test_a_time_that_is_of_no_window_has_no_cycles(
    contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = FakeCounters()
    record, _ = count("kernels", counters, monkeypatch, contract)
    assert record.status == "ok"
    assert "cycles" not in counters.log
    assert "l2_bytes" in record.counters


def test_the_counters_are_tried_before_anything_is_allocated_and_read_after_the_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counters = FakeCounters()
    _, phases = count("auto", counters, monkeypatch)
    assert [p for p in phases if p != "time"] == [
        "counters",
        "inputs",
        "check",
        "warm-up",
        "check",
        "counters",
    ]
    assert counters.log == ["open", "calibration", "open", "traffic"]


def test_without_counting_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = FakeCounters(fails={"open": FORBIDDEN})
    record, phases = count("off", counters, monkeypatch)
    assert (record.status, record.counters, counters.log) == ("ok", {}, [])
    assert "no-counters" not in doubts(record)
    assert "counters" not in phases


@pytest.mark.parametrize("step", ["open", "calibration", "traffic"])
def test_under_auto_the_lack_of_counters_is_a_doubt_with_a_hint(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = FakeCounters(fails={step: FORBIDDEN})
    record, _ = count("auto", counters, monkeypatch)
    assert (record.status, record.reason, record.counters) == ("ok", "", {})
    doubt = doubts(record)["no-counters"]
    assert doubt.message == f"some hardware counters could not be read: {FORBIDDEN}"
    assert doubt.hint == FORBIDDEN.hint
    assert "NVreg_RestrictProfilingToAdminUsers" in doubt.hint
    assert counters.asked == []


@pytest.mark.parametrize("counting", ["require", "kernels"])
@pytest.mark.parametrize("step", ["open", "calibration", "traffic"])
def test_what_is_required_and_lacking_leaves_the_times(
    counting: Counting, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the command that fails, when all is measured and printed."""
    record, _ = count(counting, FakeCounters(fails={step: UNSURE}), monkeypatch)
    assert record.status == "ok"
    assert doubts(record)["no-counters"].hint == UNSURE.hint
    assert record.samples is not None
    assert record.samples.median_s == 1e-3
    # What the kernels say needs no bytes of DRAM.
    counted = counting == "kernels" and step != "open"
    assert record.counters == ({"l2_bytes": 5e6, "kernel_passes": 7} if counted else {})


def test_what_both_collectors_lack_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = {"traffic": UNSURE, "kernels": FORBIDDEN}
    record, _ = count("kernels", FakeCounters(fails=fails), monkeypatch)
    assert [c.kind for c in record.caveats].count("no-counters") == 1


def test_kernels_that_move_other_bytes_alone_than_in_the_call_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def doubted(read: float) -> bool:
        fake = FakeCounters()
        found = [{"dram_read_bytes": read, "dram_written_bytes": DRAM["dram_written_bytes"]}]
        monkeypatch.setattr(fake, "kernels", lambda call, policy, wanted: (found, 7))
        return "replayed" in doubts(count("kernels", fake, monkeypatch)[0])

    whole = DRAM["dram_read_bytes"]
    assert not doubted(1.04 * whole)
    assert doubted(1.06 * whole)
    assert doubted(0.94 * whole)


def test_bytes_that_are_known_to_less_than_a_hundredth_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for unsure, doubtful in ((0.03e6, False), (0.05e6, True)):
        fake = FakeCounters()
        counts = {**DRAM, "dram_uncertainty_bytes": unsure}
        monkeypatch.setattr(fake, "traffic", lambda *asked, counts=counts: counts)
        record, _ = count("auto", fake, monkeypatch)
        assert ("imprecise-bytes" in doubts(record)) == doubtful


def test_kernels_that_cannot_be_counted_leave_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    record, _ = count("kernels", FakeCounters(fails={"kernels": UNSURE}), monkeypatch)
    assert record.status == "ok"
    assert doubts(record)["no-counters"].hint == UNSURE.hint
    assert record.counters == DRAM


def test_an_unexpected_fault_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for step in ("open", "calibration", "traffic"):
        record, _ = count("auto", FakeCounters(fails={step: OSError("odd")}), monkeypatch)
        assert record.status == "ok"
        assert "odd" in doubts(record)["no-counters"].message


def test_the_record_is_reported_before_its_counters_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed: list[Record] = []
    record, _ = count("auto", FakeCounters(), monkeypatch, timed=timed.append)
    (early,) = timed
    assert (early.status, early.counters) == ("ok", {})
    assert early == replace(record, counters={})
    count("off", FakeCounters(), monkeypatch, timed=timed.append)
    assert len(timed) == 1


def test_kernels_that_do_not_match_get_a_caveat(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = FakeCounters()
    three = [{"l2_bytes": 1.0}] * 3
    monkeypatch.setattr(counters, "kernels", lambda call, policy, wanted: (three, 7))
    record, _ = count("kernels", counters, monkeypatch)
    assert record.counters["l2_bytes"] == 3
    assert "unmatched-kernels" in doubts(record)


@pytest.mark.parametrize("counting", COUNTING)
@pytest.mark.parametrize("cache", get_args(Cache))
def test_the_bytes_are_counted_under_the_caches_state_of_the_times(
    counting: Counting, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = FakeCounters()
    count(counting, counters, monkeypatch, replace(CONTRACT, cache=cache))
    assert counters.asked == [(cache, 1e-3)]


def test_a_sustained_load_finds_what_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = FakeCounters()
    count("auto", counters, monkeypatch, replace(CONTRACT, regime="sustained", cache="cold"))
    assert counters.asked == [("hot", 1e-3)]


def test_a_result_that_is_wrong_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = FakeCounters()
    wrong = replace(INCREMENT, reference=lambda inputs, point: inputs["x"].double() + 2)
    record, _ = count("require", counters, monkeypatch, workload=wrong)
    assert record.status == "wrong"
    assert counters.asked == []


# What is asked for

GPU = replace(FACTS, kind="cuda", name="NVIDIA H200")


@pytest.mark.parametrize("asked", get_args(Counting))
def test_an_nvidia_gpu_counts_what_is_asked_for(asked: Counting) -> None:
    assert plan_counting(GPU, asked) == asked


def test_others_count_nothing() -> None:
    for device in (FACTS, replace(FACTS, kind="rocm")):
        assert [plan_counting(device, asked) for asked in ("auto", "off")] == ["off"] * 2


@pytest.mark.parametrize("asked", ["require", "kernels"])
def test_what_no_other_device_has_cannot_be_required_of_it(asked: Counting) -> None:
    for device in (FACTS, replace(FACTS, kind="rocm", name="AMD MI300X")):
        with pytest.raises(CannotMeasure, match=f"no hardware counters of {device.name}") as caught:
            plan_counting(device, asked)
        assert caught.value.hint == "leave --counters out"


def asked_for(text: str) -> Counting:
    """What the command line makes of `--counters` *text*."""
    return options.Options(counters=text).conditions.counting


@pytest.mark.parametrize("name", get_args(Counting))
def test_every_way_of_counting_has_its_name(name: str) -> None:
    assert asked_for(name) == name
    assert Conditions().counting == "auto"


@pytest.mark.parametrize(
    ("text", "guess"),
    [("requires", "require"), ("kernel", "kernels"), ("OFF", "off"), ("bogus", ""), ("", "")],
)
def test_the_nearest_name_is_suggested(text: str, guess: str) -> None:
    with pytest.raises(UnknownName) as caught:
        asked_for(text)
    hint = f"; did you mean {guess!r}?" if guess else ""
    assert str(caught.value) == f"no counters {text!r}{hint}"
    assert caught.value.hint == "known: auto, kernels, ncu, off, require"


@pytest.fixture(scope="module")
def gpuperf_at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine.at(tmp_path_factory.mktemp("counting"))


def test_the_nearest_way_of_counting_is_suggested(gpuperf_at: CommandLine) -> None:
    ended = gpuperf_at.within("roofline", "matmul", "--counters", "requires", "--device", "cpu")
    assert_refused(
        ended, 2, "no counters 'requires'; did you mean 'require'", "auto, kernels, ncu, off"
    )


def test_counters_cannot_be_required_of_a_cpu(gpuperf_at: CommandLine) -> None:
    words = ("roofline", "copy", "--counters", "require", "--device", "cpu", "--out", "required")
    ended = gpuperf_at.within(*words, "--peaks", "peaks.toml")
    assert_refused(ended, 3, "gpuperf reads no hardware counters of", "leave --counters out")
    assert not list((gpuperf_at.folder / "required").glob("*.jsonl"))
