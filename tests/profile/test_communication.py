"""Are the collectives of a trace found with their bytes, rates, and the part no compute hides?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic_kineto import Trace, comms, members
from synthetic_profile import EVENTS, region, run_of

from gpuperf.model.collective import Collective, Message, bus_factor, collective_name
from gpuperf.model.contract import Fingerprint
from gpuperf.model.kernelname import kind_of
from gpuperf.model.program import PassResult
from gpuperf.model.record import Run
from gpuperf.profile.breakdown import profiles
from gpuperf.profile.communication import Communication, communication_of
from gpuperf.profile.passes import RegionPasses
from gpuperf.profile.ranks.table import together_tables
from gpuperf.profile.records import region_records
from gpuperf.profile.trace.kineto import read_trace
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE
from gpuperf.theory.links import collectives

US = 1000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ELEMENTS = 2**20


def found(
    trace: Trace, folder: Path, *windows: tuple[int, int], group: dict[str, Any] | None = None
) -> Communication:
    path = trace.write(folder / "t.json")
    if group is not None:
        info = f'"distributedInfo": {json.dumps(group)}, "record_shapes"'
        path.write_text(path.read_text("utf-8").replace('"record_shapes"', info), "utf-8")
    spans = [(begin * US, end * US) for begin, end in windows]
    return communication_of(read_trace(path), spans)


def two_steps() -> Trace:
    """Two steps of 200 µs: a matmul from 10 to 60, an all-reduce from 40 to 100 in each."""
    trace = Trace()
    for begin in (0, 200):
        trace.launch("gemm", (begin + 2) * US, (begin + 10) * US, (begin + 60) * US)
        same = comms("allreduce", ELEMENTS, ELEMENTS)
        trace.nccl(ALL_REDUCE, begin + 5, begin + 40, begin + 100, **same)
    return trace


def test_the_part_of_nccl_that_no_other_kernel_hides_is_exposed(tmp_path: Path) -> None:
    linked = found(two_steps(), tmp_path, (0, 200), (200, 400))
    assert linked.seconds == pytest.approx(
        {"compute": 50e-6, "communication": 60e-6, "exposed": 40e-6}
    )
    (one,) = linked.collectives
    assert one.exposed_s == pytest.approx(40e-6)
    assert one.seconds == (pytest.approx((60e-6,)), pytest.approx((60e-6,)))
    assert (one.count, one.kernel) == (1.0, ALL_REDUCE)


def test_kernels_of_nccl_have_bytes_and_rates_of_nccl_tests(tmp_path: Path) -> None:
    trace = two_steps()
    trace.nccl(GATHER, 110, 120, 140, **comms("_allgather_base", 1000, 2000, "Float"))
    reduce_scatter = comms("_reduce_scatter_base", 4000, 2000, "Float")
    trace.nccl("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", 141, 142, 150, **reduce_scatter)
    linked = found(trace, tmp_path, (0, 200), (200, 400))
    by_name = {one.message.name: one for one in linked.collectives}
    whole = by_name["all_reduce"]
    assert whole.message == Message("all_reduce", 2 * ELEMENTS, "bf16", 2, "0 [0, 1]")
    assert whole.algbw(60e-6) == pytest.approx(2 * ELEMENTS / 60e-6)
    assert whole.busbw(60e-6) == whole.algbw(60e-6)
    assert by_name["all_gather"].message.bytes == 8000  # of the result
    assert by_name["reduce_scatter"].message.bytes == 16000  # of the input
    assert by_name["all_gather"].busbw(20e-6) == pytest.approx(8000 / 20e-6 / 2)
    assert by_name["all_gather"].count == 0.5


def test_a_kernel_without_metadata_has_its_name_and_no_rate(tmp_path: Path) -> None:
    trace = Trace()
    trace.nccl(ALL_REDUCE, 1, 2, 9)
    (one,) = found(trace, tmp_path, (0, 20)).collectives
    assert one.message == Message("all_reduce")
    assert one.algbw(1e-6) is None and one.busbw(1e-6) is None


@pytest.mark.parametrize(
    "name",
    [
        ALL_REDUCE,
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)",
        "void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8>(float**)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
    ],
)
def test_kernels_of_collectives_are_a_class_of_their_own(name: str) -> None:
    assert kind_of(name) == "communication"


@pytest.mark.parametrize("name", ["at::native::reduce_kernel<512, 1>", "triton_red_fused_sum_0"])
def test_a_reduction_on_one_gpu_is_no_collective(name: str) -> None:
    assert kind_of(name) == "kernel"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("c10d::_allgather_base_", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgs)", "send_recv"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("reduce", "reduce"),
        ("c10d::barrier", "barrier"),
        ("aten::mm", ""),
    ],
)
def test_a_collective_has_one_name_however_it_is_spelt(text: str, name: str) -> None:
    assert collective_name(text) == name


def test_factors_of_the_bus_are_those_of_nccl_tests() -> None:
    assert bus_factor("all_reduce", 8) == 2 * 7 / 8
    assert bus_factor("all_gather", 8) == bus_factor("all_to_all", 8) == 7 / 8
    assert bus_factor("broadcast", 8) == bus_factor("send", 8) == 1.0


def test_the_factors_are_those_of_the_theory() -> None:
    for name, algorithm, _, _, factor in collectives(1e6, 8):
        if algorithm != "tree":
            assert bus_factor(collective_name(name), 8) == pytest.approx(factor)


def gloo(trace: Trace, name: str, start: int, end: int, shape: list[int], kind: str) -> None:
    args = members(Input_Dims=[shape], Input_type=[kind], External_id=99)
    trace.add("user_annotation", f"gloo:{name}", start * US, end * US, trace.pid, 70, args)


def on_gloo() -> Trace:
    """An all-reduce from 20 to 80, while an operator of autograd runs from 10 to 60 with a matmul
    from 30 to 50 inside; then a reduce-scatter, from 90 to 95."""
    trace = Trace(device=None)
    trace.op("autograd::engine::evaluate_function: AddmmBackward0", 10 * US, 60 * US)
    of_bucket = {"Input_Dims": [[[1000]], []], "Input_type": ["TensorList", ""]}
    trace.op("c10d::allreduce_", 15 * US, 19 * US, **of_bucket)
    trace.op("aten::mm", 30 * US, 50 * US)
    gloo(trace, "all_reduce", 20, 80, [1000], "float")
    of_shards = {"Input_Dims": [[50], [100], []], "Input_type": ["float", "float", ""]}
    trace.op("c10d::_reduce_scatter_base_", 85 * US, 89 * US, **of_shards)
    gloo(trace, "all_reduce", 90, 95, [100], "float")
    return trace


WORLD = {"pg_config": [{"pg_name": "0", "pg_size": 2}]}


def test_gloo_is_exposed_while_no_operator_computes(tmp_path: Path) -> None:
    linked = found(on_gloo(), tmp_path, (0, 100), group=WORLD)
    assert linked.seconds == pytest.approx(
        {"compute": 20e-6, "communication": 65e-6, "exposed": 45e-6}
    )


def test_gloos_marks_have_the_names_and_sizes_of_the_calls(tmp_path: Path) -> None:
    linked = found(on_gloo(), tmp_path, (0, 100), group=WORLD)
    assert [one.message for one in linked.collectives] == [
        Message("all_reduce", 4000, "fp32", 2, "0"),
        Message("reduce_scatter", 400, "fp32", 2, "0"),  # which gloo runs as an all-reduce
    ]


def test_with_several_groups_gloo_does_not_say_which_one_it_is(tmp_path: Path) -> None:
    both = {"pg_config": [{"pg_name": "0", "pg_size": 4}, {"pg_name": "1", "pg_size": 2}]}
    for one in found(on_gloo(), tmp_path, (0, 100), group=both).collectives:
        assert (one.message.ranks, one.message.group) == (0, "")
        assert one.busbw(1e-3) is None
        assert one.algbw(1e-3) == one.message.bytes / 1e-3


def test_a_program_without_collectives_has_no_communication(tmp_path: Path) -> None:
    trace = Trace()
    trace.launch("gemm", 1 * US, 2 * US, 9 * US)
    assert found(trace, tmp_path, (0, 20)) == Communication()
    assert communication_of(None, [(0, 1)]) == Communication()


def test_a_collective_that_never_ran_has_no_mean() -> None:
    assert Collective(Message("all_reduce"), "k", ()).count == 0.0
    assert Collective(Message("all_reduce"), "k", ()).step_s == 0.0


def test_kernels_that_no_operator_launched_are_communication_too(tmp_path: Path) -> None:
    timeline = read_trace(two_steps().write(tmp_path / "t.json"))
    passes = RegionPasses(
        "r",
        "loop",
        "t.json",
        EVENTS,
        Fingerprint(),
        (PassResult("loop", "trace", 2),),
        timeline,
        windows=((0, 200 * US), (200 * US, 400 * US)),
        cuda=True,
    )
    (profile,) = profiles(Run(run_of(region(), ()).header, region_records(passes)))
    assert {row.record.case.op: row.part for row in profile.operators} == {
        ALL_REDUCE: "communication",
        "gemm": "other kernels",
    }
    assert profile.together is not None and profile.together.world == 1
    text = "".join(render([table], "table", WIDE) for table in together_tables(profile))
    assert "all_reduce bf16" in text and "exposed  waiting" not in text.replace("   ", "  ")
