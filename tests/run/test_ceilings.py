"""Are the roofs that `calibrate` measures those that pencil and paper make of its records?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from synthetic import h200_device, h200_peaks

from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint, Regime
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.peaks import Ceiling, Figure, Peaks
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Caveat, Record, Status
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case, Value
from gpuperf.peaks.measured import measured_ceilings, merge_ceilings
from gpuperf.run.ceilings import calibrate, calibration_plan, matmul_shapes

GPU = h200_device()
CPU = DeviceFacts("cpu", 0, "a CPU", 2, 2**34, 2**33, dtypes=("fp64", "fp32", "bf16"))
CONTRACT = Contract("blocked")
GB = 10**9


def taken(
    op: str,
    cost: Cost,
    times_s: tuple[float, ...] = (1e-3,),
    implementation: str = "torch",
    wall_s: float | None = None,
    regime: Regime = "burst",
    status: Status = "ok",
    **point: Value,
) -> Record:
    """A record of *op* whose samples are *times_s*."""
    times = {"window": Samples(times_s)}
    if wall_s is not None:
        times["wall"] = Samples((wall_s,))
    return Record(
        "r",
        Case(op, implementation, point),
        replace(CONTRACT, regime=regime),
        status,
        cost=cost,
        times=times,
        primary="window",
    )


def moved(read: int, written: int) -> Cost:
    return Cost(bytes=(Bytes(read, written),))


def product(dtype: str, accumulate: str = "fp32", count: int = 10**12) -> Cost:
    return Cost((Flops(count, "matmul", dtype, accumulate),), (Bytes(1, 1),))


def ceilings(*records: Record, device: DeviceFacts = GPU, known: Peaks | None = None) -> Peaks:
    return measured_ceilings(records, device, known)


def rate_of(found: Peaks, flops: Flops) -> float | None:
    ceiling = found.ceiling(flops)
    return ceiling.rate.value if ceiling else None


def test_a_copy_of_2_gb_in_1_ms_is_2e12_byte_a_second() -> None:
    """Bytes read and written count; so do the best sizes."""
    found = ceilings(
        taken("copy", moved(GB, GB)),
        taken("copy", moved(GB, GB), (2e-3,)),
        taken("triad", moved(2 * GB, GB), (2e-3,)),
        taken("read", moved(GB, 0)),
    )
    assert found.figures["copy_bandwidth"].value == 2e12
    assert found.figures["triad_bandwidth"].value == 1.5e12
    assert found.figures["read_bandwidth"].value == 1e12
    assert found.bandwidth is not None
    assert found.bandwidth.value == 2e12


def test_writing_alone_is_no_roof_of_memory() -> None:
    """What it leaves in L2 flatters it."""
    found = ceilings(taken("write", moved(0, 9 * GB)), taken("copy", moved(GB, GB)))
    assert found.figures["write_bandwidth"].value == 9e12
    assert found.bandwidth is not None
    assert found.bandwidth.value == 2e12
    assert ceilings(taken("write", moved(0, GB))).bandwidth is None


def test_the_slow_and_the_fast_tenth_of_the_samples_stand_beside_the_median() -> None:
    times = tuple(1e-3 + i * 1e-5 for i in range(21))
    figure = ceilings(taken("copy", moved(GB, GB), times)).figures["copy_bandwidth"]
    assert figure.value == pytest.approx(2e9 / 1.1e-3)
    assert figure.p10 == pytest.approx(2e9 / 1.18e-3)
    assert figure.p90 == pytest.approx(2e9 / 1.02e-3)


def test_the_launch_latency_is_the_least_of_all_calls_back_to_back() -> None:
    found = ceilings(
        taken("copy", moved(1, 1), wall_s=5e-6),
        taken("copy", moved(1, 1), wall_s=3e-6),
        taken("copy", moved(1, 1), wall_s=4e-6),
    )
    assert found.figures["launch_latency"].value == 3e-6


def test_the_fastest_matmul_is_the_roof_and_a_sustained_one_is_apart() -> None:
    bf16 = Flops(1, "matmul", "bf16", "fp32")
    found = ceilings(
        taken("matmul", product("bf16"), (2e-3,)),
        taken("matmul", product("bf16"), (1.25e-3,)),
        taken("matmul", product("bf16"), (1.5e-3,)),
        taken("matmul", product("bf16"), (1e-3,), regime="sustained"),
    )
    assert rate_of(found, bf16) == 8e14
    regimes = {c.regime: c.rate.value for c in found.compute}
    assert regimes == {"burst": 8e14, "sustained": 1e15}


def test_a_sustained_roof_is_never_a_bursts() -> None:
    found = ceilings(taken("matmul", product("bf16"), regime="sustained"))
    assert rate_of(found, Flops(1, "matmul", "bf16", "fp32")) is None


def test_without_a_data_sheet_fp32_is_the_vector_pipes_and_tf32_the_tensor_pipes() -> None:
    records = [taken("matmul", product(dtype)) for dtype in ("tf32", "fp32", "fp64", "bf16")]
    pipes = {c.dtype: c.pipe for c in ceilings(*records).compute}
    assert pipes == {"tf32": "tensor", "fp32": "vector", "fp64": "vector", "bf16": "tensor"}
    on_cpu = {c.dtype: c.pipe for c in ceilings(*records, device=CPU).compute}
    assert set(on_cpu.values()) == {"vector"}


def test_the_data_sheet_names_the_pipe_of_a_dtype() -> None:
    double = Ceiling("tensor", "fp64", "fp64", Figure(6.7e13, "FLOP/s", "verified", "a sheet"))
    known = replace(h200_peaks(), compute=(double,))
    (found,) = ceilings(taken("matmul", product("fp64", "fp64")), known=known).compute
    assert found.pipe == "tensor"


@pytest.mark.parametrize("status", ["wrong", "impossible", "oom"])
def test_what_failed_is_no_roof(status: Status) -> None:
    found = ceilings(
        taken("matmul", product("bf16"), status=status), taken("copy", moved(GB, GB), status=status)
    )
    assert (found.compute, dict(found.figures)) == ((), {})


def test_a_roof_that_was_not_measured_alone_is_uncertain() -> None:
    busy = (Caveat("contended", "others ran", "end them"),)
    found = ceilings(
        replace(taken("copy", moved(GB, GB)), caveats=busy),
        replace(taken("matmul", product("bf16")), caveats=busy),
        taken("read", moved(GB, 0)),
    )
    assert found.figures["copy_bandwidth"].status == "uncertain"
    assert found.figures["read_bandwidth"].status == "measured"
    assert found.compute[0].rate.status == "uncertain"


def special(function: str, implementation: str, rate: float, axis_only: bool = False) -> Record:
    flops = Flops(round(rate * 1e-3), "special", "fp32", function="" if axis_only else function)
    return taken("special", Cost((flops,)), implementation=implementation, function=function)


@pytest.mark.parametrize("axis_only", [False, True], ids=["schema 9", "older"])
def test_special_functions_have_a_roof_each_accurate_and_fast_apart(axis_only: bool) -> None:
    """As an H200 has them: 4.5, 15.0, 12.5 and 14.8 results a clock and SM."""
    found = ceilings(
        special("sin", "cuda", 1.18e12, axis_only),
        special("sin", "cuda_fast", 3.92e12, axis_only),
        special("exp", "cuda", 3.27e12, axis_only),
        special("exp", "cuda_fast", 3.87e12, axis_only),
    )
    sine, exponential = (Flops(1, "special", "bf16", function=f) for f in ("sin", "exp"))
    assert rate_of(found, sine) == pytest.approx(3.92e12)
    assert rate_of(found, exponential) == pytest.approx(3.87e12)
    slow = found.accurate(sine), found.accurate(exponential)
    assert [c.rate.value for c in slow if c] == pytest.approx([1.18e12, 3.27e12])
    assert found.accurate(Flops(1, "special", "fp32")) is None
    assert [c.label for c in found.compute][:2] == [
        "special fp32 sin (accurate)",
        "special fp32 sin",
    ]


def test_a_function_that_was_not_measured_has_the_best_special_roof() -> None:
    found = ceilings(special("sin", "cuda_fast", 3.92e12), special("exp", "cuda_fast", 3.87e12))
    assert rate_of(found, Flops(1, "special", "fp32", function="tanh")) == pytest.approx(3.92e12)
    assert rate_of(found, Flops(1, "special", "fp64", function="sin")) is None


def test_new_roofs_replace_those_of_their_pipe_dtype_accumulate_and_regime() -> None:
    old = ceilings(
        taken("copy", moved(GB, GB)),
        taken("read", moved(GB, 0)),
        taken("matmul", product("bf16")),
        taken("matmul", product("fp16")),
        taken("matmul", product("bf16"), regime="sustained"),
        taken("matmul", product("fp16", "fp16")),
    )
    new = ceilings(taken("copy", moved(GB, GB), (4e-3,)), taken("matmul", product("bf16"), (4e-3,)))
    merged = merge_ceilings(old, new)
    rates = {(c.dtype, c.accumulate, c.regime): c.rate.value for c in merged.compute}
    assert rates == {
        ("bf16", "fp32", "burst"): 2.5e14,
        ("fp16", "fp32", "burst"): 1e15,
        ("bf16", "fp32", "sustained"): 1e15,
        ("fp16", "fp16", "burst"): 1e15,
    }
    assert len(merged.compute) == 4
    assert merged.figures["copy_bandwidth"].value == 5e11
    assert merged.figures["read_bandwidth"].value == 1e12
    assert merge_ceilings(None, new) is new


def test_roofs_of_each_function_replace_one_of_all_functions() -> None:
    best = Ceiling("special", "fp32", "", Figure(3.9e12, "FLOP/s", "measured", "calibrate"))
    old = replace(ceilings(), compute=(best,))
    merged = merge_ceilings(old, ceilings(special("sin", "cuda_fast", 3e12)))
    assert [c.function for c in merged.compute] == ["sin"]
    kept = merge_ceilings(old, ceilings(taken("matmul", product("bf16"))))
    assert best in kept.compute


def test_memorys_best_is_that_of_the_share_of_reads() -> None:
    """Reading alone is fastest; between two shares that were measured it is interpolated."""
    found = ceilings(
        taken("copy", moved(GB, GB), (2 * GB / 4.294e12,)),
        taken("triad", moved(2 * GB, GB), (3 * GB / 4.4e12,)),
        taken("read", moved(GB, 0), (GB / 4.459e12,)),
        taken("write", moved(0, GB), (GB / 4.57e12,)),
    )
    shares = (0.0, 0.5, 2 / 3, 5 / 6, 1.0)
    wanted = (4.294e12, 4.294e12, 4.4e12, 4.4295e12, 4.459e12)
    assert [found.bandwidth_at(share) for share in shares] == pytest.approx(wanted)
    sheet = h200_peaks()
    assert sheet.bandwidth is not None
    assert sheet.bandwidth_at(0.5) == sheet.bandwidth.value
    assert ceilings().bandwidth_at(1.0) is None


def planned(device: DeviceFacts, *dtypes: str) -> list[tuple[Case, Contract]]:
    return [one for series in calibration_plan(device, dtypes, CONTRACT) for one in series]


def test_the_plan_of_an_nvidia_gpu_is_this_one() -> None:
    plan = planned(GPU, "bf16")
    of = Counter((case.op, case.implementation, contract.cache) for case, contract in plan)
    assert of == {
        ("copy", "torch", "cold"): 3,
        ("copy", "cuda", "cold"): 2,
        ("write", "torch", "cold"): 2,
        ("write", "cuda", "cold"): 2,
        ("triad", "torch", "cold"): 2,
        ("triad", "cuda", "cold"): 2,
        ("read", "torch", "cold"): 1,
        ("read", "cuda", "cold"): 1,
        ("h2d", "torch", "cold"): 1,
        ("d2h", "torch", "cold"): 1,
        ("l2", "cuda", "hot"): 3,
        ("l1", "cuda", "hot"): 1,
        ("fma", "cuda", "cold"): 1,
        ("special", "cuda", "cold"): 2,
        ("special", "cuda_fast", "cold"): 2,
        ("matmul", "torch", "cold"): len(matmul_shapes(GPU.sm_count)),
    }
    functions = [case.point["function"] for case, _ in plan if case.op == "special"]
    assert functions == ["sin", "sin", "exp", "exp"]


def test_a_gpu_of_another_vendor_has_torchs_kernels_alone() -> None:
    plan = planned(replace(GPU, kind="rocm"), "bf16")
    assert {case.implementation for case, _ in plan} == {"torch"}
    assert {case.op for case, _ in plan} == {
        "copy",
        "write",
        "triad",
        "read",
        "h2d",
        "d2h",
        "matmul",
    }


def test_the_plan_of_a_cpu_has_special_functions_and_fp32_for_half_types() -> None:
    plan = planned(CPU, "bf16")
    assert [(case.op, case.point.get("function", case.point["dtype"])) for case, _ in plan] == [
        ("copy", "fp32"),
        ("copy", "fp32"),
        ("special", "sin"),
        ("special", "exp"),
        ("matmul", "bf16"),
        ("matmul", "bf16"),
        ("matmul", "fp32"),
        ("matmul", "fp32"),
    ]
    assert {case.point["dtype"] for case, _ in planned(CPU, "fp64") if case.op == "matmul"} == {
        "fp64"
    }
    assert not [case for case, _ in planned(CPU, "int8") if case.op == "matmul"]


def test_the_load_that_lasts_is_the_fastest_matmul_that_succeeded(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path))
    fast = matmul_shapes(GPU.sm_count)[2]
    loads = []

    def measure(case: Case, contract: Contract) -> Record:
        sizes = tuple(case.point.get(axis) for axis in "mnk")
        if contract.regime == "sustained":
            loads.append(sizes)
        time_s = {fast: 1e-3, matmul_shapes(GPU.sm_count)[4]: 1e-4}.get(sizes, 2e-3)  # type: ignore[call-overload]
        status: Status = "impossible" if time_s == 1e-4 else "ok"
        cost = product("bf16") if case.op == "matmul" else moved(GB, GB)
        record = taken(case.op, cost, (time_s,), case.implementation, status=status)
        return replace(record, case=case, contract=contract)

    opened = Opened(GPU, Fingerprint())
    found = calibrate(measure, opened, None, ("bf16",), CONTRACT, sustained=True)
    assert loads == [fast]
    assert rate_of(found, Flops(1, "matmul", "bf16", "fp32")) == 1e15
