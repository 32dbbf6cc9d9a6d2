"""Does the size of a record name what tells it from the others?"""

from __future__ import annotations

from dataclasses import replace

from synthetic import h200_sweep

from gpuperf.model.record import Record
from gpuperf.model.workload import Case, Value
from gpuperf.show.axes import Axes, Names

(FIRST,) = h200_sweep((1024,)).records


def at(**point: Value) -> Record:
    return replace(FIRST, case=Case("attention", "flex", {**point, "dtype": "bf16"}))


def test_axes_that_all_records_have_are_in_the_head() -> None:
    records = [at(seq=1024, head_dim=64, heads=16), at(seq=2048, head_dim=128, heads=16)]
    axes = Axes(records)
    assert axes.head == "seq×head_dim"
    assert [axes.size(record) for record in records] == ["1024×64", "2048×128"]
    assert axes.constant("attention") == "heads=16"


def test_an_axis_that_only_some_records_have_is_named_with_its_value() -> None:
    records = [
        at(seq=8192, head_dim=64),
        at(seq=8192, head_dim=128, window=1024),
        at(seq=8192, head_dim=128, window=4096, softcap=50),
    ]
    axes = Axes(records, main=("seq",))
    assert axes.head == "head_dim"
    sizes = ["64", "128,window=1024", "128,window=4096,softcap=50"]
    assert [axes.size(record) for record in records] == sizes
    assert [axes.brief(record) for record in records] == sizes
    assert sorted(records, key=axes.order) == records


def test_as_many_keys_as_queries_are_a_number() -> None:
    records = [at(seq=4096, kv=0, splits=0), at(seq=4096, kv=8192, splits=2)]
    axes = Axes(records)
    assert axes.head == "kv×splits"
    assert [axes.size(record) for record in records] == ["4096×0", "8192×2"]
    assert [axes.brief(record) for record in records] == ["4096×0", "8192×2"]
    assert Axes([at(kv=0)]).size(at(kv=0)) == "0"
    others = [replace(r, case=replace(r.case, op="cache")) for r in records]
    assert Axes(others).size(others[0]) == "0×0"  # only attention is known to mean this
    names = Names(record.case for record in records)
    shown = "attention/flex kv=4096 splits=0"
    assert names.of(records[0].case) == names.of(records[0].case.id) == shown
    same = [at(seq=seq, kv=0, heads=16) for seq in (1024, 2048)]
    assert Names(r.case.id for r in same).fixed == {"attention": "heads=16, dtype=bf16"}
    assert Axes(same).constant("attention") == "heads=16"
    assert "kv=0" in Names(replace(r.case, op="cache") for r in same).fixed["cache"]


def test_records_without_a_common_axis_have_all_axes_named() -> None:
    records = [at(seq=8192), at(tokens=2**23)]
    axes = Axes(records)
    assert axes.head == "size"
    assert [axes.size(record) for record in records] == ["seq=8192", "tokens=8M"]
    assert [axes.brief(record) for record in records] == ["seq=8192", "tokens=8M"]


def test_if_only_such_axes_vary_the_main_one_is_the_size() -> None:
    records = [at(seq=8192, heads=16), at(seq=8192, heads=16, window=1024)]
    axes = Axes(records, main=("seq",))
    assert axes.head == "seq"
    assert [axes.size(record) for record in records] == ["8192", "8192,window=1024"]
    assert axes.others(records[0]) == []
    assert axes.constant("attention") == "heads=16"
