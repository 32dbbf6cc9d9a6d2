"""Are the cases those that the command line asked for, each of them once?"""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import h200_sweep

from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.model.contract import Contract, Counting, DeviceFacts, TimerName
from gpuperf.model.protocol import Opened
from gpuperf.model.record import NO_COUNTERS, Caveat, Run
from gpuperf.model.timers import timer_names
from gpuperf.model.workload import Axis, Case, Description, ImplementationDescription
from gpuperf.run.cache import cache_folder, fetch, keep, key_of
from gpuperf.run.plan import (
    Conditions,
    default_contract,
    plan_cases,
    plan_contracts,
    plan_gang,
    settle_dtype,
)
from gpuperf.run.session import rest_of_schedule, schedule_of

MATMUL = Description(
    name="matmul",
    summary="C = A·B",
    formula="2·m·n·k",
    axes=(
        Axis("m", 4096, main=True),
        Axis("n", 4096, main=True),
        Axis("k", 4096, main=True),
        Axis("batch", 1),
        Axis("dtype", "auto", choices=("bf16", "fp16", "fp32")),
    ),
    implementations=(
        ImplementationDescription("torch"),
        ImplementationDescription("triton", options={"tile": (64, 128), "stages": (3,)}),
    ),
    version=1,
    source="gpuperf.kernels",
)
GPU = DeviceFacts("cuda", 0, "a GPU", 132, 10**11, 10**11, dtypes=("fp32", "bf16"))
OLD_GPU = replace(GPU, dtypes=("fp32", "fp16"))
AMD = replace(GPU, kind="rocm")
CPU = DeviceFacts("cpu", 0, "a CPU", 8, 10**11, 10**11, dtypes=("fp32", "bf16"))


def points(*args: object, **kwargs: object) -> list[tuple[object, ...]]:
    """(m, n, k) of each case of torch."""
    cases = plan_cases(MATMUL, *args, implementations=("torch",), **kwargs)  # type: ignore[arg-type,misc]
    return [(c.point["m"], c.point["n"], c.point["k"]) for c in cases]


def refusal(
    axes: dict[str, str], sizes: str | None = None, impl: tuple[str, ...] = ()
) -> UsageError:
    with pytest.raises(UsageError) as caught:
        plan_cases(MATMUL, axes, sizes, impl)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    return caught.value


def test_without_a_word_it_is_one_case_of_defaults_for_each_implementation() -> None:
    first, second = plan_cases(MATMUL, {})
    point = {"m": 4096, "n": 4096, "k": 4096, "batch": 1, "dtype": "auto"}
    assert first == Case("matmul", "torch", point, {}, "gpuperf.kernels")
    assert second == Case("matmul", "triton", point, {"tile": 64, "stages": 3}, "gpuperf.kernels")


def test_an_optional_axis_is_part_of_a_case_only_off_its_default() -> None:
    axes = (*MATMUL.axes, Axis("bias", "no", choices=("no", "yes"), optional=True))
    added = replace(MATMUL, axes=axes)
    plain = plan_cases(MATMUL, {})
    assert plan_cases(added, {}) == plan_cases(added, {"bias": "no"}) == plain
    both = plan_cases(added, {"bias": "both"}, implementations=("torch",))
    assert both[0] == plain[0]
    assert both[1].point == {**plain[0].point, "bias": "yes"}


def test_an_option_is_pinned_where_an_implementation_has_it() -> None:
    cases = plan_cases(MATMUL, {"tile": "128,64", "n": "8"}, None, ("torch", "triton"))
    assert [(c.implementation, dict(c.options)) for c in cases] == [
        ("torch", {}),
        ("triton", {"tile": 128, "stages": 3}),
        ("triton", {"tile": 64, "stages": 3}),
    ]
    assert {c.point["n"] for c in cases} == {8}


def test_an_empty_default_is_no_part_of_a_case() -> None:
    free = ImplementationDescription("triton", options={"tile": ("", "64x64")})
    workload = replace(MATMUL, implementations=(free,))
    assert [dict(c.options) for c in plan_cases(workload, {})] == [{}]
    assert [dict(c.options) for c in plan_cases(workload, {"tile": "64x64"})] == [{"tile": "64x64"}]


def test_an_option_that_nothing_has_is_refused() -> None:
    error = refusal({"tile": "96"}, None, ("triton",))
    assert "no tile of triton '96'" in str(error)
    assert "known: 128, 64" in error.hint
    error = refusal({"tile": "64"}, None, ("torch",))
    assert str(error) == "--tile is an option of triton, and not of torch"
    assert error.hint == "--impl triton"


def test_sizes_set_the_main_axes_together_and_no_other() -> None:
    cases = plan_cases(MATMUL, {}, "128:512", ("torch",))
    assert [c.point for c in cases] == [
        {"m": n, "n": n, "k": n, "batch": 1, "dtype": "auto"} for n in (128, 256, 512)
    ]


def test_an_axis_given_itself_leaves_the_sizes() -> None:
    assert points({"n": "128"}, "256,512") == [(256, 128, 256), (512, 128, 512)]
    assert points({"n": "1,2", "k": "8"}, "256,512") == [
        (256, 1, 8),
        (256, 2, 8),
        (512, 1, 8),
        (512, 2, 8),
    ]


def test_axes_combine_and_the_last_is_the_fastest() -> None:
    assert points({"m": "1,2", "k": "8:16"}) == [
        (1, 4096, 8),
        (1, 4096, 16),
        (2, 4096, 8),
        (2, 4096, 16),
    ]


def test_lists_ranges_and_choices_join() -> None:
    cases = plan_cases(MATMUL, {"dtype": "bf16, fp32", "batch": "2,8:32"}, "64", ("torch",))
    assert [(c.point["batch"], c.point["dtype"]) for c in cases] == [
        (b, d) for b in (2, 8, 16, 32) for d in ("bf16", "fp32")
    ]


def test_implementations_come_in_the_order_asked_each_once() -> None:
    cases = plan_cases(MATMUL, {}, "64,128", ("triton", "torch", "triton"))
    assert [c.implementation for c in cases] == ["triton", "triton", "torch", "torch"]


@pytest.mark.parametrize(
    ("axes", "impl", "sentence"),
    [
        ({"mm": "64"}, (), "no axis of matmul 'mm'; did you mean 'm'?"),
        ({"bacth": "64"}, (), "no axis of matmul 'bacth'; did you mean 'batch'?"),
        ({"heads": "8"}, (), "no axis of matmul 'heads'"),
        ({"dtype": "bf61"}, (), "no dtype 'bf61'; did you mean 'bf16'?"),
        ({"dtype": "bf16,BF16"}, (), "no dtype 'BF16'; did you mean 'bf16'?"),
        ({"dtype": "bf16,"}, (), "no dtype ''"),
        ({}, ("trition",), "no implementation of matmul 'trition'; did you mean 'triton'?"),
        ({}, ("torch", "cuda"), "no implementation of matmul 'cuda'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    axes: dict[str, str], impl: tuple[str, ...], sentence: str
) -> None:
    error = refusal(axes, None, impl)
    assert isinstance(error, UnknownName)
    assert str(error) == sentence
    assert error.hint.startswith("known: ")


@pytest.mark.parametrize(
    ("axes", "sizes", "sentence"),
    [
        ({}, "512:128", "--sizes: '512:128' runs backwards; write 128:512"),
        ({}, "", "--sizes: it is empty"),
        ({}, "0", "--sizes: 0 in '0' is below 1"),
        ({"m": "512:128"}, None, "--m: '512:128' runs backwards; write 128:512"),
        ({"batch": "-1"}, None, "--batch: -1 in '-1' is below 1"),
        ({"k": "2^60"}, None, "--k: 2^60 is beyond 2^40, the largest number taken"),
        ({"m": "1", "n": "2", "k": "3"}, "64", "--sizes 64 sets nothing: --m, --n, --k are given"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused_under_its_option(
    axes: dict[str, str], sizes: str | None, sentence: str
) -> None:
    assert str(refusal(axes, sizes)).startswith(sentence)


def test_sizes_of_a_workload_without_main_axes_are_refused_not_swallowed() -> None:
    plain = replace(MATMUL, axes=(Axis("n", 8), Axis("dtype", "fp32", choices=("fp32",))))
    with pytest.raises(UsageError, match="--sizes 8:16 sets nothing: matmul has no main axis"):
        plan_cases(plain, {}, "8:16")


def test_an_axis_with_a_minimum_keeps_it_under_sizes_too() -> None:
    tall = replace(MATMUL, axes=(Axis("m", 64, main=True, minimum=16), Axis("n", 64, main=True)))
    for axes, sizes in (({"m": "8"}, None), ({}, "8:64")):
        with pytest.raises(UsageError, match=r"8 in '8.*' is below 16"):
            plan_cases(tall, axes, sizes)
    assert len(plan_cases(tall, {"m": "16"}, "8:64")) == 2 * 4


def test_too_many_cases_are_refused_before_they_are_made() -> None:
    many = "1:9999:+1"
    start = time.process_time()
    error = refusal({"m": many, "n": many, "k": many})
    assert time.process_time() - start < 1.0
    assert str(error) == f"{2 * 9999**3} cases are more than 10000"
    assert len(plan_cases(MATMUL, {"m": "1:5000:+1"})) == 10_000
    refusal({"m": "1:5001:+1"})
    refusal({"dtype": "bf16,fp16,fp32"}, "1:2000:+1")


@given(
    st.dictionaries(
        st.sampled_from("mnk"),
        st.lists(st.integers(1, 99), min_size=1, max_size=4).map(lambda v: ",".join(map(str, v))),
        max_size=2,
    ),
    st.none() | st.lists(st.integers(1, 99), min_size=1, max_size=4),
    st.lists(st.sampled_from(["torch", "triton"]), max_size=3),
)
def test_every_case_comes_once(
    axes: dict[str, str], sizes: list[int] | None, implementations: list[str]
) -> None:
    text = None if sizes is None else ",".join(map(str, sizes))
    cases = plan_cases(MATMUL, axes, text, implementations)
    assert len({case.id for case in cases}) == len(cases)
    chosen = len(set(implementations)) or 2
    given_points = [len(set(values.split(","))) for values in axes.values()]
    expected = chosen * len(set(sizes or [0]))
    for count in given_points:
        expected *= count
    assert len(cases) == expected


@pytest.mark.parametrize(
    ("device", "dtype"), [(GPU, "bf16"), (AMD, "bf16"), (OLD_GPU, "fp32"), (CPU, "fp32")]
)
def test_the_dtype_auto_is_bf16_on_a_gpu_that_has_it_and_else_fp32(
    device: DeviceFacts, dtype: str
) -> None:
    cases = plan_cases(MATMUL, {}, "64,128", ("torch",))
    settled = settle_dtype(cases, MATMUL, device)
    assert [c.point["dtype"] for c in settled] == [dtype, dtype]
    assert [c.point["m"] for c in settled] == [64, 128]
    assert all(list(c.point) == ["m", "n", "k", "batch", "dtype"] for c in settled)


def test_a_dtype_that_was_named_stays_and_is_not_measured_twice() -> None:
    cases = plan_cases(MATMUL, {"dtype": "auto,fp32,bf16"}, None, ("torch",))
    assert [c.point["dtype"] for c in settle_dtype(cases, MATMUL, GPU)] == ["bf16", "fp32"]
    assert [c.point["dtype"] for c in settle_dtype(cases, MATMUL, CPU)] == ["fp32", "bf16"]


def test_a_workload_without_a_dtype_stays_as_it_is() -> None:
    plain = replace(MATMUL, axes=(Axis("n", 8, main=True),))
    cases = plan_cases(plain, {}, "8:32")
    assert settle_dtype(cases, plain, GPU) == cases


def test_each_kind_of_device_has_its_own_way_of_timing() -> None:
    """A GPU rests for 2 ms, or until it has been busy a fifth of the time."""
    rested = Contract("blocked", gap_s=0.002, duty=0.2, budget_s=2.0, min_samples=20)
    assert default_contract(GPU) == rested
    assert default_contract(AMD) == replace(rested, timer="events")
    assert default_contract(CPU) == Contract("wall", gap_s=0.0, min_samples=10)


def test_what_the_user_asks_of_the_timing_is_in_the_contract() -> None:
    contract = default_contract(GPU, "events", precision=0.05, budget_s=0.5)
    assert (contract.timer, contract.precision, contract.budget_s) == ("events", 0.05, 0.5)
    assert default_contract(CPU, "wall").timer == "wall"


@pytest.mark.parametrize("timer", timer_names())
@pytest.mark.parametrize(
    ("device", "known"), [(GPU, timer_names()), (AMD, ("events", "wall")), (CPU, ("wall",))]
)
def test_a_timer_that_the_device_does_not_have_is_refused(
    device: DeviceFacts, known: tuple[TimerName, ...], timer: TimerName
) -> None:
    if timer in known:
        assert default_contract(device, timer).timer == timer
        return
    with pytest.raises(
        CannotMeasure, match=f"{device.name} does not have the timer '{timer}'"
    ) as caught:
        default_contract(device, timer)
    assert caught.value.hint == f"choose --timer {' or '.join(known)}"


def test_without_a_word_there_is_one_contract_the_devices_own() -> None:
    for device in (GPU, AMD, CPU):
        assert plan_contracts(device, Conditions()) == (default_contract(device),)


def test_several_conditions_are_a_contract_for_each_combination_each_once() -> None:
    """The cache changes fastest: it is what contracts of one case most often differ in."""
    asked = Conditions(caches=("cold", "hot", "cold"), data=("zeros", "randn"))
    found = plan_contracts(GPU, asked)
    assert [(c.data, c.cache) for c in found] == [
        ("zeros", "cold"),
        ("zeros", "hot"),
        ("randn", "cold"),
        ("randn", "hot"),
    ]
    assert {replace(c, data="randn", cache="cold") for c in found} == {default_contract(GPU)}


def test_a_gap_that_is_given_is_the_whole_rest() -> None:
    (contract,) = plan_contracts(GPU, Conditions(gap_s=0.5))
    assert (contract.gap_s, contract.duty) == (0.5, 1.0)
    (none,) = plan_contracts(GPU, Conditions(gap_s=0.0))
    assert (none.gap_s, none.duty) == (0.0, 1.0)


def test_a_sustained_load_finds_its_cache_hot() -> None:
    burst, sustained = plan_contracts(
        GPU, Conditions(regimes=("burst", "sustained"), settle_s=30.0)
    )
    assert (burst.regime, burst.cache) == ("burst", "cold")
    assert (sustained.regime, sustained.cache, sustained.settle_s) == ("sustained", "hot", 30.0)
    assert plan_contracts(GPU, Conditions(regimes=("sustained",), caches=("hot",))) == (
        replace(default_contract(GPU), regime="sustained", cache="hot"),
    )


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (Conditions(regimes=("sustained",), caches=("cold",)), "--cache cold and --regime sust"),
        (Conditions(regimes=("sustained",), caches=("rotate",)), "--cache rotate and --regime"),
        (Conditions(timer="graph", caches=("cold",)), "--cache cold and --timer graph exclude"),
        (Conditions(timer="graph", caches=("hot", "cold-dirty")), "--cache cold-dirty and --tim"),
        (Conditions(settle_s=5.0), "--settle needs --regime sustained"),
        (Conditions(regimes=("burst",), settle_s=5.0), "--settle needs --regime sustained"),
    ],
)
def test_conditions_that_exclude_each_other_are_refused(asked: Conditions, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_contracts(GPU, asked)
    assert str(caught.value).startswith(sentence)
    assert caught.value.hint


@pytest.mark.parametrize("device", [CPU, AMD])
def test_energy_is_read_where_there_is_cuda(device: DeviceFacts) -> None:
    with pytest.raises(CannotMeasure, match="gpuperf reads no energy of") as caught:
        plan_contracts(device, Conditions(regimes=("sustained",), energy=True))
    assert caught.value.hint == "leave --energy out"
    with pytest.raises(CannotMeasure, match="energy of a gang"):
        plan_gang(GPU, Conditions(energy=True))


@pytest.mark.parametrize("device", [CPU, AMD])
def test_a_load_is_sustained_where_there_is_cuda(device: DeviceFacts) -> None:
    with pytest.raises(CannotMeasure, match="a sustained load cannot be timed"):
        plan_contracts(device, Conditions(regimes=("sustained",)))


def test_the_calls_of_a_graph_take_other_data_each_time_unless_asked() -> None:
    (rotating,) = plan_contracts(GPU, Conditions(timer="graph"))
    assert (rotating.timer, rotating.cache) == ("graph", "rotate")
    (hot,) = plan_contracts(GPU, Conditions(timer="graph", caches=("hot",)))
    assert hot.cache == "hot"


def test_each_case_is_planned_under_each_contract_and_what_is_done_is_left_out() -> None:
    run = h200_sweep((128, 256))
    cases = tuple(record.case for record in run.records)
    hot = replace(run.header.contract, cache="hot")
    header = replace(run.header, plan=cases, variants=(hot,))
    contracts = (header.contract, *header.variants)
    plan = schedule_of(header)
    assert plan == tuple((case, contract, 0) for case in header.plan for contract in contracts)
    opened = Opened(header.device, header.fingerprint)
    assert rest_of_schedule(Run(header, ()), opened) == plan
    done = Run(header, run.records)
    assert {record.contract for record in run.records} == {header.contract}
    assert rest_of_schedule(done, opened) == tuple((case, contracts[1], 0) for case in header.plan)
    all_done = (*run.records, *(replace(r, contract=contracts[1]) for r in run.records))
    assert rest_of_schedule(Run(header, all_done), opened) == ()
    crashed = replace(all_done[-1], status="crashed")
    assert rest_of_schedule(Run(header, (*all_done[:-1], crashed)), opened) == (plan[-1],)
    impossible = replace(all_done[-1], status="impossible")
    assert rest_of_schedule(Run(header, (*all_done[:-1], impossible)), opened) == ()


@pytest.mark.parametrize(
    ("counting", "again"),
    [("off", False), ("auto", False), ("require", True), ("kernels", True), ("ncu", True)],
)
def test_a_resumed_run_repeats_a_case_without_its_counters_only_where_they_were_required(
    counting: Counting, again: bool
) -> None:
    run = h200_sweep((128, 256))
    header = replace(run.header, plan=tuple(r.case for r in run.records), counting=counting)
    lacks = replace(run.records[0], caveats=(Caveat(NO_COUNTERS, "they are locked", ""),))
    opened = Opened(header.device, header.fingerprint)
    left = rest_of_schedule(Run(header, (lacks, run.records[1])), opened)
    assert left == (((lacks.case, header.contract, 0),) if again else ())


def test_each_process_measures_the_plan_once_and_every_second_one_in_turned_order() -> None:
    run = h200_sweep((128, 256))
    cases = tuple(record.case for record in run.records)
    header = replace(run.header, plan=cases, processes=3)
    first, second = ((case, header.contract) for case in cases)
    assert schedule_of(header) == (
        (*first, 0),
        (*second, 0),
        (*second, 1),
        (*first, 1),
        (*first, 2),
        (*second, 2),
    )
    opened = Opened(header.device, header.fingerprint)
    turned = replace(run.records[1], pass_index=1)
    left = rest_of_schedule(Run(header, (*run.records, turned)), opened)
    assert left == ((*first, 1), (*first, 2), (*second, 2))


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_a_precision_or_budget_that_is_no_number_is_refused(odd: float) -> None:
    """JSON has no word for it, so the run could not be read back."""
    for device in (GPU, CPU):
        with pytest.raises(UsageError, match=r"--precision .* is not a number"):
            default_contract(device, precision=odd)
        with pytest.raises(UsageError, match=r"--budget .* is not a number"):
            default_contract(device, budget_s=odd)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    return cache_folder()


def test_what_was_kept_is_fetched_under_its_key_alone(cache: Path) -> None:
    key, other = key_of("matmul", 1), key_of("matmul", 2)
    keep("catalogue", key, MATMUL)
    assert fetch("catalogue", key, Description) == MATMUL
    assert fetch("catalogue", other, Description) is None
    assert fetch("ceilings", key, Description) is None
    assert [path.name for path in (cache / "catalogue").iterdir()] == [f"{key}.json"]


def test_a_cache_that_is_broken_or_cannot_be_written_is_no_cache(cache: Path) -> None:
    keep("catalogue", "k", MATMUL)
    (cache / "catalogue" / "k.json").write_bytes(b'{"name":')
    assert fetch("catalogue", "k", Description) is None
    (cache / "file").write_text("")
    keep("file", "k", MATMUL)
    assert fetch("file", "k", Description) is None


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GPUPERF_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gpuperf"
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_a_workload_without_the_usual_dtype_takes_the_first_it_has() -> None:
    axes = (Axis("n", 8, main=True), Axis("dtype", "auto", choices=("int8", "fp64")))
    odd = replace(MATMUL, axes=axes)
    cases = settle_dtype(plan_cases(odd, {}, "8"), odd, GPU)
    assert {c.point["dtype"] for c in cases} == {"int8"}
