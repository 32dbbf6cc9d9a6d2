"""Does a case that breaks physics lose its time, and does no honest one?"""

from dataclasses import replace
from pathlib import Path

import pytest
from measured import RUN_FILES, TESTS, name_of
from synthetic import cpu_run, h200_ceilings, h200_peaks, h200_sweep

from gpuperf.model.contract import Contract
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.peaks import Ceiling, Figure, Peaks
from gpuperf.model.record import Record
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.peaks.find import builtin_peaks
from gpuperf.peaks.physics import check_physics
from gpuperf.roofline.rows import rows
from gpuperf.run.runfile import RunWriter
from gpuperf.run.store import read_run, read_runs, read_summary

H200 = next(peaks for peaks in builtin_peaks() if peaks.id == "h200-sxm")
BLOCKED = Contract("blocked")
GOLDEN = sorted((TESTS / "golden").glob("*.jsonl"))


def taken(
    time_s: float,
    read: int = 0,
    written: int = 0,
    flops: tuple[Flops, ...] = (),
    clock_hz: float | None = None,
    contract: Contract = BLOCKED,
    calls: int = 1,
    **counters: float,
) -> Record:
    """A record whose median is exactly *time_s*."""
    samples = Samples((time_s,) * 3, (clock_hz,) * 3, calls_per_window=calls)
    return Record(
        "r",
        Case("op", "mine", {}),
        contract,
        "ok",
        cost=Cost(flops, (Bytes(read, written),)),
        times={"window": samples},
        primary="window",
        counters=counters,
    )


def status(record: Record, peaks: Peaks | None = H200, ceilings: Peaks | None = None) -> str:
    return check_physics(record, peaks, ceilings).status


GB = 10**9
AT_BANDWIDTH = GB / 4.8e12  # seconds


def test_compulsory_reads_after_a_flush_are_no_faster_than_dram() -> None:
    """1 GB at 4.8 TB/s takes 208.3 µs; 2 % are allowed."""
    assert status(taken(AT_BANDWIDTH / 1.019, read=GB)) == "ok"
    broken = check_physics(taken(AT_BANDWIDTH / 1.021, read=GB), H200, None)
    assert broken.status == "impossible"
    assert "1.02 times the data sheet's 4.80 TB/s" in broken.reason
    assert "cost of the workload" in broken.hint


def test_what_was_written_may_stay_in_the_cache() -> None:
    l2 = int(H200.figures["l2"].value)
    assert status(taken(1e-6, written=l2)) == "ok"
    beyond = taken(AT_BANDWIDTH / 1.03, written=l2 + GB)
    assert status(beyond) == "impossible"
    assert status(replace(beyond, cost=Cost(bytes=(Bytes(0, GB),)))) == "ok"
    assert status(taken(AT_BANDWIDTH / 1.01, read=GB // 2, written=l2 + GB // 2)) == "ok"


@pytest.mark.parametrize(
    "contract",
    [
        Contract("blocked", cache="hot"),
        Contract("blocked", cache="rotate"),
        Contract("blocked", regime="sustained"),
    ],
)
def test_without_a_flush_before_each_call_the_cache_may_serve_its_reads(contract: Contract) -> None:
    fast = taken(AT_BANDWIDTH / 3, read=GB, contract=contract, dram_read_bytes=0.0)
    assert status(fast) == "ok"
    assert status(replace(fast, contract=replace(contract, cache="cold"))) == (
        "ok" if contract.regime == "sustained" else "impossible"
    )


def test_of_several_calls_in_a_window_only_the_first_finds_the_cache_flushed() -> None:
    assert status(taken(AT_BANDWIDTH / 3, read=GB, calls=4)) == "ok"


def test_counters_show_whether_a_call_read_its_inputs() -> None:
    slow = taken(1.0, read=GB, dram_read_bytes=0.89 * GB, dram_uncertainty_bytes=0.02 * GB)
    assert status(slow) == "ok"
    sure = {**slow.counters, "dram_uncertainty_bytes": 0.0}
    less = check_physics(replace(slow, counters=sure), H200, None)
    assert less.status == "impossible"
    assert less.reason.startswith("the call did not read its inputs: 890 MB came from DRAM")
    assert status(replace(less, status="ok"), None) == "impossible", "no data sheet is needed"


@pytest.mark.parametrize("read", [GB // 2, 2 * GB])
def test_an_implementation_that_quantized_its_weights_must_read_those_alone(read: int) -> None:
    work = Work(bytes=(Bytes(read, 0), Bytes(0, GB, "link")))
    record = taken(1.0, read=GB, dram_read_bytes=GB / 2)
    assert status(replace(record, work=work)) == ("ok" if read < GB else "impossible")
    record = taken(AT_BANDWIDTH / 1.9, read=GB)
    assert status(replace(record, work=work)) == ("ok" if read < GB else "impossible")


def test_flops_are_bounded_by_the_sms_at_the_observed_clock() -> None:
    """132 × 4096 × 1.602 GHz = 866.2 TFLOP/s."""
    flops = (Flops(866_175_369_216_000, "matmul", "bf16", "fp32"),)
    assert status(taken(1 / 1.019, flops=flops, clock_hz=1.602e9)) == "ok"
    broken = check_physics(taken(1 / 1.021, flops=flops, clock_hz=1.602e9), H200, None)
    assert broken.status == "impossible"
    assert "1.02 times what 132 SMs do at the observed clock of 1602 MHz" in broken.reason


def test_an_uncertain_figure_of_a_data_sheet_may_be_too_low_by_half() -> None:
    bandwidth = replace(H200.figures["memory_bandwidth"], status="uncertain")
    unsure = replace(H200, figures={**H200.figures, "memory_bandwidth": bandwidth})
    assert status(taken(AT_BANDWIDTH / 1.49, read=GB), unsure) == "ok"
    assert status(taken(AT_BANDWIDTH / 1.51, read=GB), unsure) == "impossible"


def roofs(rate: float = 1e12, bandwidth: float = 2e10, sure: str = "measured") -> Peaks:
    """Measured roofs of a CPU: of fp32 in FLOP/s, of memory in byte/s."""
    best = Figure(rate, "FLOP/s", sure, "here")  # type: ignore[arg-type]
    copy = Figure(bandwidth, "byte/s", sure, "here")  # type: ignore[arg-type]
    ceilings = cpu_run().header.ceilings
    assert ceilings is not None
    return replace(
        ceilings, compute=(Ceiling("vector", "fp32", "", best),), figures={"memory_bandwidth": copy}
    )


def test_without_a_data_sheet_half_more_than_a_measured_roof_is_the_most() -> None:
    flops = (Flops(10**12, "matmul", "fp32", "fp32"),)
    assert status(taken(1 / 1.49, flops=flops), None, roofs()) == "ok"
    broken = check_physics(taken(1 / 1.51, flops=flops), None, roofs())
    assert broken.status == "impossible"
    assert "1.51 times the measured roof of vector fp32" in broken.reason
    assert "gpuperf calibrate" in broken.hint
    assert status(taken(1 / 1.49, read=2 * 10**10), None, roofs()) == "ok"
    assert status(taken(1 / 1.51, read=2 * 10**10), None, roofs()) == "impossible"
    assert status(taken(1 / 1.51, written=2 * 10**10), None, roofs()) == "ok", "of no known cache"


def test_a_roof_that_was_measured_beside_other_work_judges_nothing() -> None:
    flops = (Flops(10**12, "matmul", "fp32", "fp32"),)
    doubtful = roofs(sure="uncertain")
    assert status(taken(1e-3, read=10**12, flops=flops), None, doubtful) == "ok"


def test_a_roof_of_another_dtype_or_of_special_functions_judges_nothing() -> None:
    half = (Flops(10**12, "elementwise", "bf16"),)
    assert status(taken(0.1, flops=half), None, roofs()) == "ok"
    special = roofs()
    best = Ceiling("special", "fp32", "", Figure(1e9, "FLOP/s", "measured", "here"))
    special = replace(special, compute=(*special.compute, best))
    sine = (Flops(10**12, "special", "fp32"),)
    assert status(taken(0.1, flops=sine), None, special) == "ok"


def test_a_data_sheet_that_knows_the_flops_goes_before_a_measured_roof() -> None:
    flops = (Flops(10**12, "matmul", "bf16", "fp32"),)
    low = replace(h200_ceilings(), compute=())
    tensor = Ceiling("tensor", "bf16", "fp32", Figure(1e14, "FLOP/s", "measured", "here"))
    assert status(taken(2e-3, flops=flops), H200, replace(low, compute=(tensor,))) == "ok"
    assert status(taken(2e-3, flops=flops), None, replace(low, compute=(tensor,))) == "impossible"


def test_operators_of_a_profile_keep_their_status() -> None:
    record = replace(taken(AT_BANDWIDTH / 9, read=GB), kind="operator")
    assert check_physics(record, H200, None) is record


def test_what_failed_keeps_its_status() -> None:
    record = replace(taken(AT_BANDWIDTH / 9, read=GB), status="wrong")
    assert check_physics(record, H200, None) is record


@pytest.mark.parametrize("path", [*RUN_FILES, *GOLDEN], ids=name_of)
def test_no_honest_record_is_impossible(path: Path) -> None:
    """Every run that was ever kept, whatever its schema."""
    for run in read_runs(path):
        judged_now = [check_physics(r, run.header.peaks, run.header.ceilings) for r in run.records]
        wanted = {"impossible"} if path.stem == "run_schema_9" else set()
        found = [r for r in judged_now if r.status == "impossible"]
        assert {r.status for r in found} <= wanted, [(r.case.id, r.reason) for r in found]


def test_an_older_run_file_is_judged_when_it_is_read(tmp_path: Path) -> None:
    run = h200_sweep((1024, 2048))
    honest, cheat = run.records
    assert cheat.cost is not None
    cheat = replace(cheat, times={"window": Samples((1e-6,) * 5, (1.7e9,) * 5)}, schema=8)
    top = replace(run.header, schema=8, peaks=h200_peaks())
    path = tmp_path / "old.jsonl"
    with RunWriter(path) as writer:
        writer.header(top)
        writer.record(replace(honest, schema=8))
        writer.record(cheat)
    assert [r.status for r in read_run(path).records] == ["ok", "impossible"]
    assert [r.status for r in read_summary(path).records] == ["ok", "impossible"]
    assert read_summary(path).records[1].median_s is None


def test_an_impossible_record_has_no_time_in_any_row() -> None:
    run = h200_sweep((1024, 2048))
    fast = replace(run.records[1], times={"window": Samples((1e-6,) * 5, (1.7e9,) * 5)})
    broken = check_physics(fast, run.header.peaks, run.header.ceilings)
    assert broken.status == "impossible"
    row = rows(replace(run, records=(run.records[0], broken)))[1]
    assert (row["time_s"], row["times"], row["flop_per_s"]) == (None, {}, None)
    assert row["reason"] == broken.reason
