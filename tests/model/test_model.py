"""Do the nouns become JSON and come back exactly, and is anything else refused?"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import get_args, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from gpuperf.model.aten import Call, Tensor
from gpuperf.model.codec import decode, encode, to_builtins
from gpuperf.model.collective import Collective, Message
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.energy import Energy, EnergyTrial
from gpuperf.model.experiment import (
    ControlDescription,
    Expected,
    ExperimentDescription,
    Law,
    Number,
    Numbers,
    Prediction,
    Predictions,
)
from gpuperf.model.gang import RankTimes, TunedTime
from gpuperf.model.peaks import Ceiling, Figure, Peaks
from gpuperf.model.program import Chain, ObservedCall, Operator, PassResult, Program, Prompts, Wait
from gpuperf.model.protocol import (
    Began,
    Describe,
    Described,
    DeviceCheck,
    Dismiss,
    Ended,
    Examine,
    Examined,
    Expect,
    Failed,
    FromAgent,
    FromWorker,
    Hello,
    Join,
    Left,
    Loaded,
    Look,
    Measure,
    Measured,
    Modules,
    Nvbench,
    NvbenchTimes,
    Open,
    Opened,
    PassDone,
    Predicted,
    Profile,
    Progress,
    Runnable,
    RunnableCases,
    Seen,
    Start,
    Stop,
    Survey,
    Surveyed,
    Time,
    Timed,
    ToAgent,
    ToWorker,
)
from gpuperf.model.record import (
    Caveat,
    Check,
    Header,
    Kernel,
    Launch,
    Memory,
    Noise,
    Record,
    Run,
    Telemetry,
    TimerFacts,
)
from gpuperf.model.samples import Samples
from gpuperf.model.timers import TIMERS, timer_names
from gpuperf.model.times import TIMES, TimeName
from gpuperf.model.topology import HostLink, Pair, Topology
from gpuperf.model.workload import (
    Axis,
    Case,
    Description,
    Implementation,
    ImplementationDescription,
    Point,
    Workload,
    case_id,
    id_parts,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
number = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 2**62)
value = st.integers(-(2**40), 2**40) | text
fact = text | st.integers(-(2**62), 2**62) | number | st.booleans() | st.none()


def words(kind: type, field: str) -> st.SearchStrategy:
    """Every word that *field* of *kind* may hold."""
    return st.sampled_from(get_args(get_type_hints(kind)[field]))


def optional(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


def several(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(strategy, max_size=2).map(tuple)


def mapping(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.dictionaries(text, strategy, max_size=2)


flops = st.builds(Flops, count, words(Flops, "kind"), text, text, text)
traffic = st.builds(Bytes, count, count, words(Bytes, "channel"))
cost = st.builds(Cost, several(flops), several(traffic), collective=count)
work = st.builds(Work, several(flops), several(traffic), st.none() | count, collective=count)
positive = st.floats(min_value=1e-5, max_value=1e29)
sureness = words(Figure, "status")
figure = st.builds(Figure, positive, text, sureness, text, text, optional(number), optional(number))
ceiling = st.builds(
    Ceiling,
    words(Ceiling, "pipe"),
    text,
    text,
    figure,
    optional(number),
    optional(number),
    text,
    words(Ceiling, "regime"),
    text,
    st.booleans(),
)
peaks = st.builds(
    Peaks,
    text,
    text,
    text,
    text,
    text,
    several(text),
    st.integers(1, 10**6),
    several(ceiling),
    mapping(figure),
    sureness,
    text,
    text,
    sureness,
    text,
    text,
)
contract = st.builds(
    Contract,
    st.sampled_from(timer_names()),
    words(Contract, "cache"),
    words(Contract, "regime"),
    gap_s=number,
    data=words(Contract, "data"),
    warmup_calls=count,
    precision=number,
    budget_s=number,
    min_samples=count,
    max_samples=count,
    duty=number,
    settle_s=number,
)
device = st.builds(
    DeviceFacts,
    words(DeviceFacts, "kind"),
    count,
    text,
    count,
    count,
    count,
    text,
    optional(count),
    optional(number),
    several(text),
    optional(st.booleans()),
)
fingerprint = st.builds(Fingerprint, mapping(fact), mapping(fact), mapping(fact))
samples = st.builds(
    Samples,
    st.lists(number, min_size=1, max_size=2).map(tuple),
    several(optional(number)),
    positive,
    positive,
    st.integers(1, 64),
    st.integers(1, 64),
)
truth = st.booleans()
axis = st.builds(Axis, text, value, text, truth, several(text), count, truth, truth)
case = st.builds(Case, text, text, mapping(value), mapping(value), text)
implementation = st.builds(ImplementationDescription, text, text, mapping(several(value)), text)
description = st.builds(
    Description,
    text,
    text,
    text,
    several(axis),
    several(implementation),
    count,
    text,
    several(text),
    st.booleans(),
    st.booleans(),
)
caveat = st.builds(Caveat, text, text, text)
check = st.builds(Check, number, number, count, number, number, count, several(text))
timer = st.builds(TimerFacts, number, number, number, number, optional(number))
counts = mapping(st.floats(-1e11, 1e20))
few = st.integers(0, 2**31)
three = st.tuples(few, few, few)
launch = st.builds(Launch, three, three, three, few, few, few)
kernel = st.builds(
    Kernel, text, count, counts, optional(launch), optional(number), words(Kernel, "kind"), text
)
memory = st.builds(Memory, count, count, optional(count), optional(count))
noise = st.builds(Noise, number, number, count)
telemetry = st.builds(
    Telemetry, *[optional(number)] * 5, several(text), optional(count), optional(number)
)
bounded = st.floats(-1e12, 1e12)
trial = st.builds(
    EnergyTrial,
    st.floats(1e-6, 1e12),
    bounded,
    optional(bounded),
    count,
    bounded,
    bounded,
    optional(bounded),
    optional(bounded),
)
energy = st.builds(Energy, several(trial), optional(bounded), text)
finding = st.builds(DeviceCheck, text, words(DeviceCheck, "verdict"), text, text)
tensor = st.builds(
    Tensor, several(st.integers(0, 2**20)), text, several(count), count, optional(count)
)
call = st.builds(Call, text, several(several(tensor)), several(text), several(tensor))
seen = st.builds(
    ObservedCall, call, text, text, st.booleans(), optional(cost), st.booleans(), st.booleans()
)
wait = st.builds(Wait, text, text, number, number)
chain = st.builds(Chain, several(text), text, count, count, count, st.booleans())
operator = st.builds(
    Operator,
    text,
    number,
    st.booleans(),
    st.booleans(),
    number,
    several(text),
    text,
    several(tensor),
    count,
    st.booleans(),
)
prompts = st.builds(Prompts, count, count, several(number))
message = st.builds(Message, text, count, text, count, text)
calls = several(several(number))
collective = st.builds(Collective, message, text, calls, number, calls)
program = st.builds(
    Program,
    mapping(count),
    count,
    optional(count),
    text,
    optional(number),
    optional(count),
    mapping(number),
    mapping(number),
    mapping(number),
    several(wait),
    several(chain),
    several(text),
    mapping(number),
    number,
    text,
    several(prompts),
    mapping(count),
    text,
    several(collective),
)
passed = st.builds(
    PassResult,
    text,
    words(PassResult, "name"),
    count,
    several(number),
    number,
    optional(count),
    text,
    several(seen),
    several(count),
    mapping(number),
    text,
    st.booleans(),
    count,
    several(mapping(number)),
    several(count),
    number,
    text,
    st.booleans(),
    count,
    text,
)
expected = st.builds(Expected, number, number, number, text, words(Expected, "kind"), text)
law = st.builds(Law, words(Law, "form"), st.floats(0.01, 10), several(text), several(text))
controlled = st.builds(ControlDescription, text, mapping(several(value)), text, several(text))
experiment = st.builds(
    ExperimentDescription,
    *[text] * 5,
    mapping(several(value)),
    *[text] * 4,
    several(text),
    several(controlled),
    law,
    several(st.sampled_from(("cuda", "counters"))),
    *[several(text)] * 4,
)
prediction = st.builds(
    Prediction,
    text,
    st.floats(0, 1e300),
    text,
    text,
    optional(expected),
    text,
    st.floats(1e-300, 1e300),
    text,
    st.sampled_from(("", "cold", "cold-dirty", "rotate", "hot")),
    text,
)
known = st.builds(Number, st.floats(0, 1e300), text, text)
numbers = st.builds(Numbers, mapping(known))
predictions = st.builds(Predictions, experiment, numbers, several(prediction))
rank = st.builds(RankTimes, count, count, mapping(samples), text)
tuned = st.builds(TunedTime, text, text, text, st.floats(0, 999), st.floats(1e-9, 9e14))
pair = st.builds(Pair, count, count, words(Pair, "kind"), optional(count), optional(truth))
host = st.builds(HostLink, count, optional(count), optional(count), optional(count))
topology = st.builds(Topology, count, several(pair), several(host), several(text))
record = st.builds(
    Record,
    run=text,
    case=case,
    contract=contract,
    status=words(Record, "status"),
    fingerprint=fingerprint,
    reason=text,
    hint=text,
    started=text,
    cost=optional(cost),
    work=optional(work),
    times=mapping(samples),
    primary=text,
    stop=words(Record, "stop"),
    timer=timer,
    build_s=optional(number),
    first_call_s=optional(number),
    capture_s=optional(number),
    calls_until_steady=optional(count),
    check=optional(check),
    kernels=several(kernel),
    counters=counts,
    telemetry=optional(telemetry),
    energy=optional(energy),
    memory=optional(memory),
    chosen=mapping(value),
    readings=mapping(number),
    caveats=several(caveat),
    noise=optional(noise),
    seed=count,
    pass_index=count,
    rank=count,
    world=count,
    devices=several(count),
    ranks=several(rank),
    kind=words(Record, "kind"),
    region=text,
    program=optional(program),
    operator=optional(operator),
)
header = st.builds(
    Header,
    run=text,
    created=text,
    command=several(text),
    plan=several(case),
    contract=contract,
    device=device,
    fingerprint=fingerprint,
    peaks=optional(peaks),
    peaks_reason=text,
    ceilings=optional(peaks),
    seed=count,
    gpuperf=text,
    world=count,
    devices=several(count),
    variants=several(contract),
    counting=words(Header, "counting"),
    energy=st.booleans(),
    baseline=text,
    main=several(text),
    study=text,
    asked=several(count),
    processes=st.integers(1, 99),
    started=words(Header, "started"),
    steps=several(text),
    topology=optional(topology),
    hosts=several(text),
    tuning=several(tuned),
    expected=optional(predictions),
)
NOUNS = {
    Axis: axis,
    Bytes: traffic,
    Call: call,
    Case: case,
    Caveat: caveat,
    Ceiling: ceiling,
    Chain: chain,
    Check: check,
    Collective: collective,
    Contract: contract,
    ControlDescription: controlled,
    Cost: cost,
    Description: description,
    DeviceFacts: device,
    Figure: figure,
    DeviceCheck: finding,
    Expected: expected,
    ExperimentDescription: experiment,
    Fingerprint: fingerprint,
    Flops: flops,
    Header: header,
    ImplementationDescription: implementation,
    Kernel: kernel,
    Launch: launch,
    Law: law,
    Memory: memory,
    Message: message,
    Noise: noise,
    Number: known,
    Numbers: numbers,
    Operator: operator,
    PassResult: passed,
    Peaks: peaks,
    Prediction: prediction,
    Predictions: predictions,
    Program: program,
    Pair: pair,
    HostLink: host,
    RankTimes: rank,
    TunedTime: tuned,
    Topology: topology,
    Prompts: prompts,
    Record: record,
    Samples: samples,
    ObservedCall: seen,
    Telemetry: telemetry,
    Energy: energy,
    EnergyTrial: trial,
    Tensor: tensor,
    TimerFacts: timer,
    Wait: wait,
    Work: work,
}
TO_WORKER = {
    Open: st.builds(Open, text, count, count, text, count, count, text, count, text),
    Describe: st.builds(Describe, text),
    Examine: st.builds(Examine),
    Expect: st.builds(Expect, text, text, several(case), several(text), numbers),
    Measure: st.builds(
        Measure,
        text,
        case,
        contract,
        count,
        st.booleans(),
        words(Header, "counting"),
        positive,
        text,
        st.booleans(),
        st.booleans(),
    ),
    Nvbench: st.builds(Nvbench, several(case), contract, count),
    Loaded: st.builds(Loaded, several(text), several(text)),
    Profile: st.builds(
        Profile,
        several(text),
        st.booleans(),
        count,
        count,
        several(st.sampled_from(["plain", "trace"])),
        text,
        positive,
        st.booleans(),
        count,
        count,
        text,
    ),
    Runnable: st.builds(Runnable, several(case), contract),
    Survey: st.builds(Survey),
    Time: st.builds(
        Time,
        text,
        case,
        contract,
        text,
        optional(cost),
        words(Header, "counting"),
        text,
        optional(number),
        count,
    ),
}
FROM_WORKER = {
    Hello: st.builds(Hello, count, count, text),
    Opened: st.builds(
        Opened,
        device,
        fingerprint,
        words(Opened, "started"),
        several(count),
        several(text),
        several(tuned),
    ),
    Described: st.builds(Described, several(description), mapping(text), several(experiment)),
    Examined: st.builds(Examined, several(finding)),
    Modules: st.builds(Modules, mapping(text)),
    Progress: st.builds(Progress, text, count),
    Timed: st.builds(Timed, record),
    Measured: st.builds(Measured, record, text),
    NvbenchTimes: st.builds(NvbenchTimes, several(optional(number))),
    PassDone: st.builds(PassDone, passed),
    Predicted: st.builds(Predicted, several(prediction)),
    Ended: st.builds(Ended, st.integers(-64, 255), text, mapping(count)),
    Failed: st.builds(Failed, text, text, text),
    RunnableCases: st.builds(RunnableCases, several(count)),
    Surveyed: st.builds(Surveyed, topology),
}
OF_AGENT = {
    Join: st.builds(Join, count, text, count, text),
    Start: st.builds(Start),
    Began: st.builds(Began),
    Stop: st.builds(Stop),
    Look: st.builds(Look),
    Seen: st.builds(Seen, text),
    Dismiss: st.builds(Dismiss),
    Left: st.builds(Left, text, text, text),
}
MESSAGES = {**TO_WORKER, **FROM_WORKER, **OF_AGENT}
quick = settings(
    max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
CASE = Case("matmul", "torch", {"m": 64, "dtype": "bf16"})
CONTRACT = Contract("wall")


def named(kinds: dict[type, st.SearchStrategy]) -> list[object]:
    return [pytest.param(kind, values, id=kind.__name__) for kind, values in kinds.items()]


@pytest.mark.parametrize(("kind", "values"), named(NOUNS))
@quick
@given(data=st.data())
def test_a_noun_comes_back_from_json_exactly(
    kind: type, values: st.SearchStrategy, data: st.DataObject
) -> None:
    noun = data.draw(values)
    line = encode(noun)
    assert b"\n" not in line
    again = decode(line, kind)
    assert again == noun
    assert type(again) is kind
    assert encode(again) == line


ONE_VALUE = {"type", "schema", "statistic"}  # of each kind or version there is one


@pytest.mark.parametrize(("kind", "values"), named(NOUNS | MESSAGES))
def test_every_field_is_drawn_here(kind: type, values: st.SearchStrategy) -> None:
    """Otherwise a new one would go through no round trip."""
    few = settings(max_examples=300, phases=[Phase.generate], derandomize=True)
    values_of: dict[str, object] = {}
    constant = get_type_hints(kind).keys() - ONE_VALUE

    @st.composite
    def has_moved_all(draw: st.DrawFn) -> bool:
        """Whether each field has had two values by now: drawn, as `find` prints what it finds."""
        noun = draw(values)
        for field in tuple(constant):
            if values_of.setdefault(field, getattr(noun, field)) != getattr(noun, field):
                constant.remove(field)
        return not constant

    with contextlib.suppress(NoSuchExample):
        find(has_moved_all(), bool, settings=few)
    assert not constant


@pytest.mark.parametrize(("kind", "values"), named(MESSAGES))
@quick
@given(data=st.data())
def test_a_message_comes_back_as_its_own_kind(
    kind: type, values: st.SearchStrategy, data: st.DataObject
) -> None:
    message = data.draw(values)
    to_agent = kind in TO_WORKER or kind in ToAgent.__args__
    direction = ToWorker if kind in TO_WORKER else ToAgent if to_agent else FromAgent
    again = decode(encode(message), direction)
    assert type(again) is kind
    assert again == message
    if kind in FROM_WORKER:
        assert decode(encode(message), FromWorker) == message


def parts(hint: object) -> Iterator[type]:
    """Every class in a type hint, those of its fields' hints included."""
    for inner in get_args(hint):
        yield from parts(inner)
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hint in MESSAGES):
        yield hint
        for field in get_type_hints(hint).values():
            yield from parts(field)


def test_every_noun_that_is_written_has_a_generator_here() -> None:
    written = {noun for kind in (Header, *MESSAGES) for noun in parts(kind)} - set(MESSAGES)
    assert written == set(NOUNS)


def test_every_message_has_a_generator_here() -> None:
    assert set(TO_WORKER) == set(ToWorker.__args__)
    assert set(FROM_WORKER) == set(FromWorker.__args__)
    of_agent = set(ToAgent.__args__) | set(FromAgent.__args__)
    assert set(OF_AGENT) == of_agent - set(TO_WORKER) - set(FROM_WORKER)


def test_a_message_of_the_other_direction_is_refused() -> None:
    with pytest.raises(ValueError):
        decode(encode(Hello(1, 2, "")), ToWorker)
    with pytest.raises(ValueError):
        decode(encode(Open("cpu")), FromWorker)


@pytest.mark.parametrize("kind", list(NOUNS), ids=lambda kind: kind.__name__)
def test_a_noun_is_frozen(kind: type) -> None:
    assert kind.__dataclass_params__.frozen
    noun = kind.__new__(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(noun, dataclasses.fields(kind)[0].name, None)


def test_a_message_is_frozen() -> None:
    for kind in MESSAGES:
        assert kind.__struct_config__.frozen
    with pytest.raises(AttributeError):
        Progress("time", 1).samples = 2  # type: ignore[misc]


@pytest.mark.parametrize("kind", list(NOUNS), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("line", [b"", b"1", b'"x"', b"[]", b"null", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_an_object_of_this_kind_is_a_value_error(kind: type, line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line, kind)


@pytest.mark.parametrize(
    ("noun", "field", "wrong"),
    [
        (CASE, "op", 1),
        (CASE, "point", {"m": 1.5}),
        (CASE, "point", []),
        (CONTRACT, "timer", "sundial"),
        (CONTRACT, "cache", "lukewarm"),
        (CONTRACT, "regime", "ancien"),
        (CONTRACT, "data", "ones"),
        (CONTRACT, "duty", "a fifth"),
        (CONTRACT, "precision", "1 %"),
        (CONTRACT, "min_samples", 1.5),
        (Record("r", CASE, CONTRACT, "ok"), "status", "fine"),
        (Record("r", CASE, CONTRACT, "ok"), "type", "header"),
        (Record("r", CASE, CONTRACT, "ok"), "calls_until_steady", 1.5),
        (Record("r", CASE, CONTRACT, "ok"), "cost", 12),
        (Record("r", CASE, CONTRACT, "ok"), "times", {"window": [1.0]}),
        (Samples((1.0,)), "values_s", [None]),
        (Samples((1.0,)), "values_s", ["1"]),
        (Flops(1, "matmul", "bf16"), "kind", "convolution"),
        (Flops(1, "matmul", "bf16"), "count", -0.5),
        (Figure(1.0, "byte/s", "verified", ""), "status", "sure"),
        (Fingerprint(), "hard", {"mig": []}),
    ],
)
def test_a_field_of_the_wrong_type_is_a_value_error(
    noun: object, field: str, wrong: object
) -> None:
    fields = to_builtins(noun)
    assert decode(encode(fields), type(noun)) == noun
    with pytest.raises(ValueError):
        decode(encode({**fields, field: wrong}), type(noun))


def test_a_contract_of_schema_1_is_the_contract_it_was() -> None:
    """It knew no duty and no settling, and rested for its gap alone."""
    old = {
        "timer": "blocked",
        "cache": "cold",
        "regime": "burst",
        "gap_s": 0.01,
        "data": "randn",
        "warmup_calls": 3,
        "precision": 0.01,
        "budget_s": 2.0,
        "min_samples": 20,
        "max_samples": 1000,
        "statistic": "median",
    }
    assert decode(encode(old), Contract) == Contract("blocked", duty=1.0)
    facts = {"floor_s": 2e-6, "floor_uncertainty_s": 0.0, "empty_call_s": 1e-6, "tick_s": 32e-9}
    assert decode(encode(facts), TimerFacts).clock_hz is None


def test_a_missing_field_is_a_value_error_and_an_unknown_one_is_ignored() -> None:
    fields = to_builtins(CASE)
    with pytest.raises(ValueError, match="point"):
        decode(encode({k: v for k, v in fields.items() if k != "point"}), Case)
    assert decode(encode({**fields, "colour": "red"}), Case) == CASE


def test_a_sample_that_is_no_number_does_not_come_in_from_a_file() -> None:
    with pytest.raises(ValueError):
        decode(b'{"values_s":[1.0,1e999]}', Samples)


def test_text_that_is_no_unicode_is_written_with_a_sign_in_its_place() -> None:
    """A file name of stray bytes reaches `sys.argv` as lone surrogates."""
    odd = dataclasses.replace(CASE, op="mine-\udcff.py", point={"m\udcff": "\udcfe"})
    assert decode(encode(odd), Case) == dataclasses.replace(CASE, op="mine-?.py", point={"m?": "?"})
    message = decode(encode(Failed("usage", "\udcff")), FromWorker)
    assert message == Failed("usage", "?")


def test_counts_beyond_64_bits_come_back_exactly() -> None:
    most = Cost((Flops(2 * 2**120, "matmul", "bf16"),))
    assert decode(encode(most), Cost).flop_count == 2**121


@given(st.dictionaries(st.sampled_from("mnkbhd"), st.integers(1, 2**20), min_size=1))
def test_a_point_gives_its_axes_as_attributes(axes: dict[str, int]) -> None:
    point = Point(axes)
    for name, size in axes.items():
        assert getattr(point, name) == point[name] == size
    with pytest.raises(AttributeError, match="this point has no axis 'seq'"):
        _ = point.seq


def test_a_case_id_names_workload_implementation_and_point_in_order() -> None:
    assert case_id("matmul", "torch", {"m": 64, "n": 32, "dtype": "bf16"}) == (
        "matmul/torch[m=64,n=32,dtype=bf16]"
    )
    assert case_id("copy", "torch", {}) == "copy/torch[]"


def test_the_parts_of_an_id_are_those_that_it_was_made_of() -> None:
    made = case_id("matmul", "torch", {"m": 64, "n": 32, "dtype": "bf16"})
    assert id_parts(made) == ("matmul", "torch", {"m": "64", "n": "32", "dtype": "bf16"})
    assert id_parts("copy/torch[]") == ("copy", "torch", {})
    assert id_parts("copy[n=1]") == ("copy", "", {"n": "1"})
    for other in ("", "a/b", "a/b[n]", "a/b[=1]", "a/b[n=1][m=2]"):
        assert id_parts(other) is None
    tuned = Case("matmul", "triton", {"m": 64}, {"tile": 128, "mode": "max"})
    assert tuned.id == "matmul/triton[m=64,tile=128,mode=max]"


def test_every_part_of_a_case_is_in_its_id() -> None:
    parts = itertools.product(("matmul", "copy"), ("torch", "triton"), (64, 128), (1, 2))
    ids = [Case(op, name, {"m": m}, {"tile": tile}).id for op, name, m, tile in parts]
    assert len(set(ids)) == 16


def test_a_records_key_tells_passes_ranks_and_contracts_apart() -> None:
    one = Record("r", CASE, CONTRACT, "ok")
    others = [
        dataclasses.replace(one, run="s"),
        dataclasses.replace(one, case=dataclasses.replace(CASE, implementation="triton")),
        *(
            dataclasses.replace(one, contract=dataclasses.replace(CONTRACT, **{name: other}))
            for name, other in (
                ("timer", "events"),
                ("cache", "hot"),
                ("regime", "sustained"),
                ("data", "zeros"),
                ("gap_s", 0.5),
                ("duty", 0.5),
                ("settle_s", 5.0),
            )
        ),
        dataclasses.replace(one, pass_index=1),
        dataclasses.replace(one, rank=1),
    ]
    assert len({one.key, *(other.key for other in others)}) == 1 + len(others)
    assert dataclasses.replace(one, status="oom", seed=7).key == one.key


def test_a_records_samples_are_its_primary_time() -> None:
    window, wall = Samples((1.0,)), Samples((2.0,))
    record = Record(
        "r", CASE, CONTRACT, "ok", times={"window": window, "wall": wall}, primary="wall"
    )
    assert record.samples == wall
    assert Record("r", CASE, CONTRACT, "oom").samples is None


def test_a_run_is_a_frozen_value() -> None:
    assert Run.__dataclass_params__.frozen


def test_a_cost_adds_up_and_its_intensity_is_flop_over_dram_bytes() -> None:
    n = 8192
    matmul = Cost((Flops(2 * n**3, "matmul", "bf16", "fp32"),), (Bytes(4 * n * n, 2 * n * n),))
    assert matmul.flop_count == 1_099_511_627_776
    assert matmul.dram_bytes == 402_653_184
    assert matmul.intensity == pytest.approx(2730.67, abs=0.01)
    over_link = Cost((Flops(6, "elementwise", "fp32"),), (Bytes(1, 2), Bytes(50, 50, "link")))
    assert over_link.dram_bytes == 3
    assert over_link.intensity == 2.0
    assert Cost().intensity == 0.0


def test_a_description_is_the_workload_without_its_functions() -> None:
    build: Callable[..., Callable[[], int]] = lambda inputs, point, options: lambda: 0  # noqa: E731
    workload = Workload(
        name="nothing",
        summary="does nothing",
        formula="0",
        axes=(Axis("n", 4, main=True),),
        inputs=lambda point, make: {},
        reference=lambda inputs, point: None,
        cost=lambda point: Cost(),
        implementations=(Implementation("plain", build, "as it is", options={"tile": (64, 128)}),),
        version=3,
    )
    described = workload.describe("./nothing.py")
    assert described == Description(
        "nothing",
        "does nothing",
        "0",
        (Axis("n", 4, main=True),),
        (ImplementationDescription("plain", "as it is", {"tile": (64, 128)}),),
        3,
        "./nothing.py",
    )
    assert decode(encode(described), Description) == described
    assert workload.implementations[0].supports(Point(), None) is None
    assert isinstance(to_builtins(described), dict)
    assert msgspec.json.decode(encode(described))["version"] == 3


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e22, -1e13])
def test_a_counter_is_a_count(value: float) -> None:
    with pytest.raises(ValueError, match="impossibly large"):
        Kernel("k", 1, {"cycles": value})
    with pytest.raises(ValueError, match="impossibly large"):
        Record("r", CASE, Contract("wall"), "ok", counters={"l2_bytes": value})


@pytest.mark.parametrize("grid", [(-1, 1, 1), (2**31 + 1, 1, 1)])
def test_a_launch_is_one_that_cuda_allows(grid: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="beyond what CUDA allows"):
        Launch(grid, (128, 1, 1))


@pytest.mark.parametrize("number", [2**64, -(2**64)])
def test_no_number_of_a_case_is_beyond_two_to_the_64(number: int) -> None:
    for point, options in (({"n": 0}, {"tile": 0}), ({"n": number}, {}), ({}, {"tile": number})):
        Case("copy", "torch", point, options)
    beyond = number + (1 if number > 0 else -1)
    for point, options in (({"n": beyond}, {}), ({}, {"tile": beyond})):
        with pytest.raises(ValueError, match="beyond 2\\^64"):
            Case("copy", "torch", point, options)


def test_a_count_ends_where_a_float_does() -> None:
    assert Flops(2**200 - 1, "matmul", "fp32").count == 2**200 - 1
    with pytest.raises(ValueError, match="a count of operations or bytes cannot be"):
        Flops(2**200, "matmul", "fp32")


def test_a_load_settles_for_ten_seconds_at_most_unless_another_time_is_given() -> None:
    assert Contract("wall").settle_s == 10.0


@pytest.mark.parametrize(
    ("name", "kind", "route"),
    [
        ("void gemm<64>(float*)", "kernel", ""),
        ("MemoryEfficientAttention_kernel", "kernel", ""),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", "communication", ""),
        ("Memset (Device)", "set", ""),
        ("Memcpy HtoD (Pageable -> Device)", "copy", "HtoD pageable"),
        ("Memcpy DtoH (Device -> Pinned)", "copy", "DtoH pinned"),
        ("Memcpy DtoD (Device -> Device)", "copy", "DtoD"),
        ("Memcpy", "copy", "unknown"),
    ],
)
def test_the_kind_of_a_kernel_is_decided_by_its_name_where_nothing_else_has_it(
    name: str, kind: str, route: str
) -> None:
    kernel = Kernel(name)
    assert (kernel.kind, kernel.route) == (kind, route)
    assert kernel.computes == (kind in ("kernel", "communication"))
    assert decode(encode(Kernel(name, kind="set")), Kernel).kind == "set", "what is known stays"


def test_every_time_has_a_line_of_documentation() -> None:
    assert tuple(TIMES) == get_args(TimeName)
    compared = [timer for timer in TIMERS.values() if timer.reference]
    assert {name for timer in compared for name in (timer.name, timer.reference)} <= set(TIMES)
