"""Does the binding write what cublasLt.h declares, and is the fastest algorithm found?"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_cublaslt import VERSION, WIDE, FakeCublasLt, words_of
from gpuperf.kernels import _cublaslt, _cublaslt_search
from gpuperf.kernels._cublaslt import (
    Algo,
    Algorithm,
    HeuristicResult,
    Library,
    Product,
    Refused,
    alignment,
)
from gpuperf.kernels._cublaslt_search import CUBLASLT, finals, search
from gpuperf.kernels.matmul import MATMUL

from gpuperf import jit
from gpuperf.errors import Unsupported
from gpuperf.measure.inputs import bind_make
from gpuperf.measure.readings import readings_of
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.workload import Point

GPU = DeviceFacts("cuda", 0, "GPU", 132, 0, 0, capability="9.0")
US = 1e-6


def at(dtype: str, m: int = 33, n: int = 48, k: int = 64) -> Point:
    return Point(m=m, n=n, k=k, dtype=dtype)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCublasLt]:
    """A library, and a device whose streams have no number."""
    library = FakeCublasLt()
    monkeypatch.setattr(_cublaslt_search, "open_library", lambda index: Library(library))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    stream = type("Stream", (), {"cuda_stream": 0})
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(jit, "_remembered", jit._Memory())
    yield library


def product(library: FakeCublasLt, point: Point) -> Product:
    inputs = MATMUL.inputs(point, bind_make(torch.device("cpu"), 0))
    return Product(Library(library), inputs["a"], inputs["b"], point)


def test_structures_have_the_sizes_of_the_header() -> None:
    """uint64_t data[8]; then size_t, cublasStatus_t, float and int[4] after it."""
    assert ctypes.sizeof(Algo) == 64
    assert ctypes.sizeof(HeuristicResult) == 64 + 8 + 4 + 4 + 16
    offsets = [getattr(HeuristicResult, name).offset for name, _ in HeuristicResult._fields_]
    assert offsets == [0, 64, 72, 76, 80]


def test_a_row_major_product_is_the_transposed_column_major_one(fake: FakeCublasLt) -> None:
    product(fake, at("bf16"))
    made = dict.fromkeys(what for what, _ in fake.made)
    assert list(made) == ["", "MatmulDesc", "MatrixLayout", "MatmulPreference"]
    layouts = [sizes for what, sizes in fake.made if what == "MatrixLayout"]
    bf16, m, n, k = 14, 33, 48, 64
    assert layouts == [(bf16, n, k, n), (bf16, k, m, k), (bf16, n, m, n), (bf16, n, m, n)]
    assert ("description", 3) not in fake.set
    assert fake.set["preference", 1] == (32 << 20).to_bytes(8, "little")
    assert fake.set["preference", 3] == (2).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("dtype", "compute", "scale", "kinds"),
    [
        ("bf16", 68, 0, (14, 14)),
        ("fp16", 68, 0, (2, 2)),
        ("fp32", 68, 0, (0, 0)),
        ("tf32", 77, 0, (0, 0)),
        ("fp64", 70, 1, (1, 1)),
        ("fp8", 68, 0, (28, 14)),
        ("int8", 72, 10, (3, 10)),
    ],
)
def test_every_dtype_has_the_types_of_the_headers(
    fake: FakeCublasLt, dtype: str, compute: int, scale: int, kinds: tuple[int, int]
) -> None:
    product(fake, at(dtype))
    assert ("MatmulDesc", (compute, scale)) in fake.made
    layouts = [sizes[0] for what, sizes in fake.made if what == "MatrixLayout"]
    assert layouts == [kinds[0], kinds[0], kinds[1], kinds[1]]


@pytest.mark.parametrize("dtype", ["fp8", "int8"])
def test_a_column_major_b_is_transposed_and_fp8_has_scales(fake: FakeCublasLt, dtype: str) -> None:
    product(fake, at(dtype))
    layouts = [sizes[1:] for what, sizes in fake.made if what == "MatrixLayout"]
    assert layouts[0] == (64, 48, 64)
    assert fake.set["description", 3] == (1).to_bytes(4, "little")
    assert (
        (("description", 17) in fake.set) == (("description", 18) in fake.set) == (dtype == "fp8")
    )
    assert fake.set.get(("description", 25)) == (b"\0" if dtype == "fp8" else None)


def test_descriptors_are_destroyed_with_the_product(fake: FakeCublasLt) -> None:
    made = product(fake, at("bf16"))
    del made
    gc.collect()
    assert len(fake.destroyed) == 6


def test_an_algorithm_is_read_with_its_configuration(fake: FakeCublasLt) -> None:
    first = product(fake, at("bf16")).heuristic(2)[0]
    assert first.words == words_of(66, 15, 1, 0, 0, 0, 36)
    described = first.described
    assert (described["algorithm"], described["tile_id"], described["stages_id"]) == (66, 15, 36)
    assert described["workspace_bytes"] == 1 << 20


def test_neighbours_differ_in_one_attribute_and_can_run(fake: FakeCublasLt) -> None:
    whole = product(fake, at("bf16"))
    first = whole.heuristic(1)[0]
    own = dict(first.config)
    changes = []
    for neighbour in whole.neighbours(first):
        changed = {name: value for name, value in neighbour.config if own[name] != value}
        changes.append(changed)
        assert changed.keys() <= {"tile_id", "swizzle", "custom", "split_k", "reduction"}
    assert {"tile_id": 20} in changes
    assert {"swizzle": 1} in changes
    assert {"split_k": 4, "reduction": 2} in changes
    assert {"stages_id": 0} not in changes, "the library's check refuses it"
    assert max(c.get("split_k", 1) for c in changes) == 16


def test_addresses_say_their_alignment() -> None:
    assert [alignment(address) for address in (1024, 48, 2, 3)] == [256, 16, 2, 1]


def made(number: int) -> Algorithm:
    return Algorithm(words_of(number), (("algorithm", number),), 0)


FIRST, SECOND, HIDDEN, DEEPER = (made(number) for number in (1, 2, 3, 4))
NEIGHBOURS = {SECOND: [HIDDEN], HIDDEN: [DEEPER, SECOND]}
TIMES = {FIRST: 10 * US, SECOND: 9 * US, HIDDEN: 8 * US, DEEPER: 7 * US}


def found(times: dict[Algorithm, float], **more: Any) -> _cublaslt_search.Found:
    return search(
        [FIRST, SECOND], lambda a: NEIGHBOURS.get(a, []), times.__getitem__, times.__getitem__,
        **more,
    )  # fmt: skip


def test_the_search_climbs_beyond_what_the_heuristic_lists() -> None:
    result = found(TIMES)
    assert (result.best, result.first, result.tried) == (DEEPER, FIRST, 4)
    assert result.loss == pytest.approx(3 / 7)


def test_the_choice_of_the_heuristic_wins_ties() -> None:
    result = found({**TIMES, HIDDEN: 9.99 * US, SECOND: 9.99 * US, DEEPER: 9.99 * US})
    assert result.best == FIRST
    assert result.loss == 0


def test_an_algorithm_with_another_result_is_no_finalist() -> None:
    assert found(TIMES, agrees=lambda algorithm: algorithm != DEEPER).best == HIDDEN


def test_no_sample_begins_after_the_time_of_the_screening() -> None:
    ticks = iter([0.0, 0.1, 0.2, *[9.0] * 20])
    result = found(TIMES, clock=lambda: next(ticks))
    assert (result.best, result.tried) == (SECOND, 2)


def test_finals_are_interleaved_and_count_by_their_medians() -> None:
    """The device slows down while they run: one after the other, the first would win."""
    clock = iter(range(100))
    order: list[Algorithm] = []

    def settled(algorithm: Algorithm) -> float:
        order.append(algorithm)
        return TIMES[algorithm] * (1 + next(clock) / 100)

    times = finals([FIRST, SECOND], settled)
    assert order == [FIRST, SECOND, SECOND, FIRST, FIRST, SECOND]
    assert times[SECOND] < times[FIRST]


def test_an_algorithm_that_is_refused_is_left_out_and_counted() -> None:
    """HIDDEN is refused in the screening, and DEEPER after it, in the finals."""

    def refusing(*refused: Algorithm) -> Any:
        def time_s(algorithm: Algorithm) -> float:
            if algorithm in refused:
                raise Refused("status 15", "")
            return TIMES[algorithm]

        return time_s

    near = {SECOND: [HIDDEN, DEEPER]}
    result = search([FIRST, SECOND], lambda a: near.get(a, []), refusing(HIDDEN), refusing(DEEPER))
    assert (result.best, result.tried, result.refused) == (SECOND, 4, 2)
    none = refusing(FIRST, SECOND, DEEPER)
    with pytest.raises(Refused, match="none of 3 finalists runs again"):
        search([FIRST, SECOND], lambda a: near.get(a, []), refusing(HIDDEN), none)


def test_a_number_that_does_not_begin_does_not_end_the_search(fake: FakeCublasLt) -> None:
    fake.numbers, fake.unbegun = (66, 7, 9), (7,)
    whole = product(fake, at("bf16"))
    listed = _cublaslt_search.listed_algorithms(whole, at("bf16"))
    assert {algorithm.described["algorithm"] for algorithm in listed} == {66, 9}
    assert whole.refused == 1


def test_the_build_records_what_it_chose_and_what_the_heuristic_loses(
    fake: FakeCublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_s = {15: 10 * US, 20: 9 * US, WIDE: 8 * US}

    def time_s(call: Any) -> float:
        call()
        words = fake.ran[-1]
        return slow_s[words[1]] * (1 if words[2] == 1 and not words[4] and not words[5] else 2)

    jit.begin_build("matmul/cublaslt", time_s, time_s)
    point = at("bf16")
    inputs = MATMUL.inputs(point, bind_make(torch.device("cpu"), 0))
    monkeypatch.setattr(_cublaslt_search, "agreement", lambda product, point: lambda a: True)
    call = CUBLASLT[1].build(inputs, point, {})
    assert call.chosen["tile_id"] == WIDE
    assert readings_of(call)["heuristic_loss"] == pytest.approx(0.25)
    assert readings_of(call)["algorithms_refused"] == 0
    tried = len(fake.ran)
    jit.begin_build("matmul/cublaslt", time_s, time_s)
    assert CUBLASLT[1].build(inputs, point, {}).chosen == call.chosen
    assert len(fake.ran) == tried, "a case built again is not searched again"
    first = CUBLASLT[0].build(inputs, point, {})
    assert first.chosen["tile_id"] == 15


def test_a_result_that_disagrees_is_found_out(fake: FakeCublasLt) -> None:
    whole = product(fake, at("fp32"))
    _, other = whole.heuristic(2)
    agrees = _cublaslt_search.agreement(whole, at("fp32"))
    fake.run = lambda words: whole.c.fill_(1.0 if words[1] == 15 else 1.01)
    assert agrees(other)
    fake.run = lambda words: whole.c.fill_(1.2)
    assert not agrees(other)
    fake.broken = (other.words[1],)
    assert not agrees(other)


def test_without_an_algorithm_the_case_is_skipped(fake: FakeCublasLt) -> None:
    fake.numbers = ()
    inputs = MATMUL.inputs(at("fp16"), bind_make(torch.device("cpu"), 0))
    for implementation in CUBLASLT:
        with pytest.raises(Unsupported, match="no algorithm for 33×48×64 in fp16"):
            implementation.build(inputs, at("fp16"), {})


def test_support_names_the_rule() -> None:
    old = DeviceFacts("cuda", 0, "GPU", 80, 0, 0, capability="7.0")
    cpu = DeviceFacts("cpu", 0, "CPU", 1, 0, 0)
    supports = CUBLASLT[1].supports
    assert supports(at("bf16"), cpu) == "cuBLASLt needs an NVIDIA GPU"
    assert supports(at("bf16"), old) == "bf16 needs compute capability 8.0"
    assert supports(at("fp16", 1, 1, 1), old) is None
    assert supports(at("fp8", 1, 40, 64), GPU) == (
        "cuBLASLt needs multiples of 16 for n and k in fp8"
    )
    assert supports(at("int8", 1, 44, 60), GPU) is None
    assert supports(at("int8", 1, 44, 61), GPU) is not None


def test_the_library_that_the_process_has_loaded_is_found(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    library = "/opt/my env/lib/libcublasLt.so.13"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 12 /usr/lib/libc.so.6\n"
        f"7f02-7f03 r--p 00000000 08:01 13 {library}\n7f04-7f05 rw-p 00000000 00:00 0 \n"
    )
    assert list(_cublaslt._loaded(maps)) == [library]


def test_a_stored_choice_of_another_version_is_searched_anew(
    fake: FakeCublasLt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPERF_CHOICES", str(tmp_path))
    own = {"version": VERSION, "tried": 1}
    for version, searches in ((VERSION, 1), (VERSION, 0), (VERSION + 1, 1)):
        count: list[int] = []
        monkeypatch.setattr(jit, "_remembered", jit._Memory())
        jit.begin_build("case")
        jit.remembered(
            lambda version=version, count=count: count.append(1) or {**own, "version": version},
            lambda choice, version=version: choice["version"] == version,
        )
        assert len(count) == searches
