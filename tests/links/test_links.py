"""Is each link set beside its own sheet, and is unknown what no sheet and no NVML says?"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import pytest
from measured import MEASURED

from gpuperf.links.command import _bytes, measure_links
from gpuperf.links.study import FAR_BYTES, Cell, cases_of, cells
from gpuperf.links.table import render_links
from gpuperf.measure.topology import kind_of, read_topology
from gpuperf.model.codec import decode, encode
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Header, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.topology import HostLink, Pair, Topology
from gpuperf.model.workload import Case
from gpuperf.peaks.find import find_peaks
from gpuperf.run.store import read_run
from gpuperf.run.supervisor import Supervisor
from gpuperf.verb.options import Options

H200 = DeviceFacts("cuda", 0, "NVIDIA H200", 132, 2**37, 2**37, dtypes=("fp32",))
OPENED = Opened(H200, Fingerprint(hard={"product": "NVIDIA H200"}))
NVLINKED = Topology(
    2,
    (Pair(0, 1, "NVLink", 18, True), Pair(1, 0, "NVLink", 18, True)),
    (HostLink(0, 5, 16, 0), HostLink(1, 5, 16, 1)),
    ("GPU-a", "GPU-b"),
)
SIZE = 2**28
# byte/s of a copy of a pair, and of a host link, as published and as measured (collectives.md).
RATES = {"p2p": 396e9, "h2d": 55.5e9, "d2h": 55.3e9, "h2d_d2h": 100e9}


def seconds(case: Case) -> float:
    if case.op == "p2p_latency":
        return int(case.point["hops"]) * 1.5e-6
    if case.point.get("n") == 1:
        return 2.5e-6
    ways = 2 if case.point.get("way") == "both" or case.op == "h2d_d2h" else 1
    rate = 10e9 if case.implementation == "pageable" else RATES[case.op]
    return ways * SIZE / (ways * rate if case.op == "p2p" else rate)


@dataclass
class FakeGpu:
    """A supervisor of one GPU, which measures what `seconds` says."""

    device: str
    topology: Topology = NVLINKED
    deadline_s: float = 1.0
    broken: str = ""
    renewals: tuple[str, ...] = ()

    def __enter__(self) -> FakeGpu:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None
    ) -> None:
        pass

    def open(self) -> Opened:
        return OPENED

    def survey(self) -> Topology:
        return self.topology

    def renew(self) -> None:
        pass

    def measure(self, run: str, case: Case, contract: Contract, seed: int, **_: object) -> Record:
        own = int(case.point.get("gpu", 0))
        assert self.device == f"cuda:{own}", "each GPU measures its own links"
        record = Record(run, case, contract, "ok", primary="window", devices=(own,))
        if case.op == self.broken:
            return replace(record, status="skipped", reason="no access", primary="")
        return replace(record, times={"window": Samples((seconds(case),) * 3)})


def measured(tmp_path: Path, topology: Topology = NVLINKED, broken: str = "") -> Run:
    def make(device: str) -> Supervisor:
        return FakeGpu(device, topology, broken=broken)  # type: ignore[return-value]

    return measure_links(make, Options(out=tmp_path), SIZE).run


def test_every_ordered_pair_is_measured_in_every_way() -> None:
    for gpus in (1, 2, 8):
        every = [case for gpu in range(gpus) for case in cases_of(Topology(gpus), gpu, SIZE)]
        assert len({case.id for case in every}) == len(every)
        pairs = {(c.point["gpu"], c.point["peer"]) for c in every if c.op == "p2p"}
        assert len(pairs) == gpus * (gpus - 1)
        assert len([c for c in every if c.op == "p2p"]) == 6 * len(pairs)
        assert len([c for c in every if c.op == "p2p_latency"]) == 2 * len(pairs)
        assert len([c for c in every if "p2p" not in c.op]) == 7 * gpus


def test_each_cell_is_beside_the_sheet_of_its_own_link(tmp_path: Path) -> None:
    run = measured(tmp_path)
    found = {(c.source, c.target, c.means, c.both): c for c in cells(run)}
    one = found["GPU 0", "GPU 1", "copy engine, write", False]
    assert (one.rate, one.sheet, one.verdict) == (pytest.approx(396e9), 450e9, "as expected")
    both = found["GPU 1", "GPU 0", "SM kernel", True]
    assert (both.rate, both.sheet) == (pytest.approx(792e9), 900e9)
    host = found["host", "GPU 1", "pinned", False]
    assert host.sheet == pytest.approx(63.0e9, rel=1e-3)
    assert (host.rate, host.verdict) == (pytest.approx(55.5e9), "as expected")
    paged = found["GPU 0", "host", "pageable", False]
    assert (paged.sheet, paged.verdict) == (None, "unknown")
    assert found["GPU 0", "GPU 1", "load, L2", False].latency_s == pytest.approx(1.5e-6)
    duplex = found["host", "GPU 0", "pinned", True]
    assert (duplex.rate, duplex.verdict) == (pytest.approx(100e9), "as expected")
    assert len(found) == len(cells(run)), "no two cells have one place"


@pytest.mark.parametrize(
    ("rate", "sheet", "verdict"),
    [
        (84.0, 100.0, "slow"),
        (85.0, 100.0, "as expected"),
        (102.0, 100.0, "as expected"),
        (103.0, 100.0, "above the sheet"),
        (84.0, None, "unknown"),
        (None, 100.0, "unknown"),
    ],
)
def test_the_verdict_is_the_share_of_the_sheet(
    rate: float | None, sheet: float | None, verdict: str
) -> None:
    assert Cell("GPU 0", "GPU 1", "copy engine", rate=rate, sheet=sheet).verdict == verdict


@pytest.mark.parametrize(
    ("both", "rate", "verdict"),
    [(False, 71.0, "as expected"), (False, 69.0, "slow"), (True, 54.0, "as expected"),
     (True, 52.0, "slow")],
)  # fmt: skip
def test_kernels_attain_less_of_a_link_than_the_copy_engine(
    both: bool, rate: float, verdict: str
) -> None:
    means = ("SM kernel",) if both else ("SM kernel, write", "SM kernel, read")
    for name in means:
        cell = Cell("GPU 0", "GPU 1", name, both=both, rate=rate, sheet=100.0, nvlink=True)
        assert cell.verdict == verdict


def test_the_lower_band_of_kernels_holds_over_nvlink_alone(tmp_path: Path) -> None:
    """On PCIe 5.0 ×16, 80 % of the sheet is slow in one direction, and expected in both."""
    pcie = replace(NVLINKED, pairs=(Pair(0, 1, "PCIe switch"), Pair(1, 0, "PCIe switch")))
    for topology, bounds in ((NVLINKED, {0.70, 0.53}), (pcie, {0.85, 0.72})):
        run = measured(tmp_path, topology)
        assert {cell.least for cell in cells(run) if "SM kernel" in cell.means} == bounds
    for both, verdict in ((False, "slow"), (True, "as expected")):
        assert Cell("GPU 0", "GPU 1", "SM kernel", both=both, rate=80, sheet=100).verdict == verdict


def test_the_links_of_a_good_pair_are_as_expected() -> None:
    run = read_run(MEASURED / "h100x2-links.jsonl.gz")
    kernels = [cell for cell in cells(run) if "SM kernel" in cell.means]
    assert {(cell.means, cell.both) for cell in kernels} >= {
        ("SM kernel, write", False),
        ("SM kernel, read", False),
    }
    assert {cell.verdict for cell in kernels} == {"as expected"}


def test_alike_links_of_four_gpus_are_one_row_and_an_odd_one_is_named() -> None:
    run = read_run(MEASURED / "h200x4-links.jsonl.gz")
    text = render_links(run, "table")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "every GPU every other copy engine, write 395 to 396 – 450 88 as expected" in rows
    assert "host GPU 1 pinned, 4 bytes – 1.45 µs – – –" in rows
    assert "Pairs each: NVLink, 18 links active; its kernels access the other's memory" in rows
    assert len(text.splitlines()) < 100
    assert len(json.loads(render_links(run, "json"))) == len(cells(run)) == 12 * 8 + 4 * 7
    assert not [
        row for row in rows if row.startswith("GPU") and " GPU " in row and "GB/s" not in row
    ]
    slow = [
        replace(record, times={n: slower(t, 2) for n, t in record.times.items()})
        if record.case.point.get("gpu") == 1 and record.case.point.get("peer") == 2
        else record
        for record in run.records
    ]
    text = render_links(replace(run, records=tuple(slow)), "table")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "GPU 1 GPU 2 copy engine, write 198 – 450 44 slow" in rows
    assert "others others copy engine, write 395 to 396 – 450 88 as expected" in rows


def test_a_failed_latency_of_one_pair_is_a_row_beside_the_others() -> None:
    run = read_run(MEASURED / "h200x4-links.jsonl.gz")
    failed = [
        replace(record, status="error", reason="broken", times={}, primary="")
        if record.case.op == "p2p_latency"
        and record.case.point["gpu"] == record.case.point["peer"] - 1
        else record
        for record in run.records
    ]
    text = render_links(replace(run, records=tuple(failed)), "table")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert [row for row in rows if row.startswith("GPU 0 GPU 1 load, L2")]
    assert not [row for row in rows if row.startswith("every GPU every other load")]


def slower(samples: Samples, times: float) -> Samples:
    return replace(samples, values_s=tuple(times * value for value in samples.values_s))


def test_pairs_on_pcie_have_the_sheet_of_the_slower_end(tmp_path: Path) -> None:
    bridge = Topology(
        2,
        (Pair(0, 1, "PCIe host bridge"), Pair(1, 0, "PCIe host bridge")),
        (HostLink(0, 4, 16), HostLink(1, 4, 8)),
    )
    (cell, *_) = cells(measured(tmp_path, bridge))
    assert cell.sheet == pytest.approx(16e9 * 128 / 130 * 8 / 8)
    unknown = replace(bridge, pairs=(), hosts=())
    assert {c.sheet for c in cells(measured(tmp_path, unknown))} == {None}


def test_what_cannot_be_measured_says_why(tmp_path: Path) -> None:
    run = measured(tmp_path, broken="p2p")
    failed = [cell for cell in cells(run) if cell.failure]
    assert len(failed) == 12
    assert {cell.failure for cell in failed} == {"skipped: no access"}
    assert "skipped: no access" in render_links(run, "table")


def test_the_links_are_shown_as_matrices_with_the_topology_in_words(tmp_path: Path) -> None:
    text = render_links(measured(tmp_path), "table")
    assert "copy engine, write, one direction (by the source)" in text
    assert "SM kernel, both directions at once, their sum" in text
    assert "NVLink, 18 links active; its kernels access the other's memory" in text
    assert "PCIe generation 5, 16 lanes; NUMA node 1" in text
    alone = render_links(measured(tmp_path, replace(NVLINKED, gpus=1, pairs=())), "table")
    assert "there is one GPU, so no link between GPUs was measured" in alone


def test_programs_get_the_same_numbers(tmp_path: Path) -> None:
    run = measured(tmp_path)
    rows = json.loads(render_links(run, "json"))
    assert len(rows) == len(cells(run)) == 2 * (8 + 7)
    assert rows[0]["byte_per_s"] == pytest.approx(396e9)
    table = list(csv.DictReader(io.StringIO(render_links(run, "csv"))))
    assert [row["verdict"] for row in table] == [row["verdict"] for row in rows]


def test_a_run_of_links_is_read_again_with_its_topology(tmp_path: Path) -> None:
    run = measured(tmp_path)
    (path,) = tmp_path.glob("*.jsonl")
    again = read_run(path)
    assert again.problems == ()
    assert again.header.topology == NVLINKED
    assert (again.header.devices, again.header.study) == ((0, 1), "links")
    assert render_links(again, "table") == render_links(run, "table")


def kinds() -> Iterator[tuple[int | None, bool | None, str]]:
    """Levels of nvmlDeviceGetTopologyCommonAncestor, and whether NVML says NVLink."""
    yield 30, True, "NVLink"  # an H200 pair
    yield 50, True, "NVLink"  # an HGX host, whose GPUs are on two sockets, by NVSwitch
    yield 0, False, "PCIe switch"
    yield 10, False, "PCIe switch"
    yield 20, False, "PCIe switch"
    yield 30, False, "PCIe host bridge"
    yield 40, False, "PCIe host bridge"
    yield 50, False, "PCIe across sockets"
    yield None, None, "unknown"  # MIG, or no NVML
    yield None, False, "unknown"


@pytest.mark.parametrize(("ancestor", "by_nvlink", "kind"), list(kinds()))
def test_the_kind_of_a_link_is_what_nvml_says(
    ancestor: int | None, by_nvlink: bool | None, kind: str
) -> None:
    assert kind_of(ancestor, by_nvlink) == kind


def test_what_is_unknown_is_said_to_be() -> None:
    assert Pair(0, 1).words == "a link of unknown kind; access unknown"
    assert HostLink(0).words == "a link of unknown kind"
    assert NVLINKED.pair(1, 7) == Pair(1, 7)
    assert NVLINKED.host(7) == HostLink(7)


def test_a_machine_without_gpus_has_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert read_topology() == Topology()


def test_a_topology_comes_back_from_json_as_it_was() -> None:
    assert decode(encode(NVLINKED), Topology) == NVLINKED


def test_the_bytes_of_a_copy_are_one_multiple_of_four() -> None:
    assert _bytes("256M") == 256_000_000 or _bytes("256M") == 2**28
    for text in ("1", "4097", "4k,8k", "x"):
        with pytest.raises(Exception, match="--bytes"):
            _bytes(text)


def test_the_sheet_of_an_h200_has_both_directions() -> None:
    peaks, _ = find_peaks(H200)
    assert peaks is not None
    assert peaks.figures["link_bandwidth"].value == 900e9
    assert peaks.figures["l2"].value < FAR_BYTES
    header = Header("r", "2026", (), (), Contract("blocked"), H200, Fingerprint())
    assert cells(Run(header, ())) == ()
