"""Each chip has metrics for what it counts, and quantities are sums of them."""

from __future__ import annotations

import math

import pytest
from fake_cupti import CHIPS, SAMPLING, SHARED, known

from gpuperf.measure.counters.cupti import PM_SAMPLING, RANGE_PROFILER
from gpuperf.model.metrics import BYTES, KERNEL, choose, combine, derive


@pytest.mark.parametrize("chip", SAMPLING)
def test_a_chip_that_samples_tells_the_bytes_of_dram_by_its_own_names(chip: str) -> None:
    chosen = choose(BYTES, known(chip, PM_SAMPLING) or ())
    if chip in SHARED:
        assert chosen == {}
        return
    op = "op_" if chip in {"GB202", "GB203", "GB205", "GB206", "GB207"} else ""
    assert chosen == {
        "dram_read_bytes": (f"dram__bytes_{op}read.sum",),
        "dram_written_bytes": (f"dram__bytes_{op}write.sum",),
    }


@pytest.mark.parametrize("chip", [c for c in CHIPS if known(c, RANGE_PROFILER) is not None])
def test_a_chip_tells_of_a_kernel_what_its_hardware_has(chip: str) -> None:
    chosen = choose(KERNEL, known(chip, RANGE_PROFILER) or ())
    always = {"l2_bytes", "l1_bytes", "cycles", "time_ns", "fp32_fma", "fp64_add"}
    assert always <= chosen.keys()
    assert chosen["cycles"] == ("sm__cycles_elapsed.max",)
    assert (BYTES.keys() <= chosen.keys()) == (chip not in SHARED)
    tensor = {name.removeprefix("tensor_") for name in chosen if name.startswith("tensor_")}
    since = {"TU": {"fp16", "int8"}, "GV": {"fp16"}, "GA": {"fp16", "bf16", "tf32", "int8"}}
    if chip in {"TU116", "TU117"}:
        assert tensor == set()
    else:
        assert since.get(chip[:2], {"fp16", "bf16", "tf32", "int8", "fp8"}) <= tensor
        assert ("fp8" in tensor) == (chip[:2] in {"AD", "GH", "GB"})
    if chip.startswith("GB2"):
        assert len(chosen["tensor_fp16"]) == 2  # by what is accumulated


def test_the_first_group_that_the_chip_has_in_full_is_chosen() -> None:
    assert choose({"q": (("a",), ("c",))}, {"a", "c"}) == {"q": ("a.sum",)}
    assert choose({"q": (("a", "b"), ("c",))}, {"a", "c"}) == {"q": ("c.sum",)}
    assert choose({"q": (("a", "b"),)}, {"a"}) == {}


def test_a_quantity_is_the_sum_of_its_metrics_and_no_number_where_one_is_none() -> None:
    chosen = {"both": ("a.sum", "b.sum"), "one": ("c.sum",), "none": ("d.sum",)}
    names = ["a.sum", "b.sum", "c.sum", "d.sum"]
    assert combine(chosen, names, [1.0, 2.0, 4.0, math.nan]) == {"both": 3.0, "one": 4.0}
    assert combine(chosen, names, [1.0, math.nan, 4.0, 0.0]) == {"one": 4.0, "none": 0.0}


def test_a_fused_multiply_add_is_two_operations() -> None:
    counts = {"fp32_fma": 100.0, "fp32_mul": 20.0, "fp32_add": 3.0, "l2_bytes": 7.0}
    assert derive(counts) == {"fp32_flops": 223.0, "l2_bytes": 7.0}
    assert derive({"fp64_fma": 1.0, "fp64_mul": 1.0}) == {}


def test_sectors_count_as_bytes() -> None:
    chosen = {"l2_bytes": ("lts__t_sectors_srcunit_tex.sum",)}
    assert combine(chosen, chosen["l2_bytes"], [3.0]) == {"l2_bytes": 96.0}


@pytest.mark.parametrize(("tma", "counted"), [(0.0, True), (1.0, False), (None, True)])
def test_loads_by_tma_pass_by_l1(tma: float | None, counted: bool) -> None:
    counts = {"l1_bytes": 5.0} | ({} if tma is None else {"tma_instructions": tma})
    assert ("l1_bytes" in derive(counts)) == counted
