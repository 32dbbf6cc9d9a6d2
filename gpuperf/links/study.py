"""Plan the cases of links, and set their rates beside the sheets of the links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Record, Run
from gpuperf.model.topology import Pair, Topology
from gpuperf.model.workload import Case, Value

Verdict = Literal["as expected", "slow", "above the sheet", "unknown"]

# A good copy attains this share of the sheet: the copy engine of an H100's NVLink 396 of 450 GB/s,
# PCIe 5.0 ×16 55.5 of 63.0 GB/s (nvbandwidth; H200, docs/measured).
LEAST, MOST = 0.85, 1.02
# Both directions of PCIe at once share the packets of requests and credits: some 95 to 105 of
# 126 GB/s are expected (an estimate, not a measurement).
LEAST_BOTH = 0.72
# Kernels that load and store over NVLink attain less than the copy engine: 368 to 373 of 450 GB/s
# in one direction and 558 to 567 of 900 in both (two H100, docs/measured; NCCL's own table counts
# 20.6 of 25 GB/s a link). Each bound is 85 % of the least of these.
LEAST_KERNEL, LEAST_KERNEL_BOTH = 0.70, 0.53
SIZE = 4  # bytes of an element
FAR_BYTES = 2**28  # nodes of the latency of DRAM, beyond any L2
NEAR_BYTES = 2**21  # nodes of the latency of L2
MEANS = {"copy_engine": "copy engine", "sm": "SM kernel", "torch": "pinned", "pageable": "pageable"}
HOST = "host"


@dataclass(frozen=True)
class Cell:
    """What was measured of the link from `source` to `target`, which are `GPU 0` or `host`.

    With `both`, copies ran in both directions at once, and the rate is their sum. `rate` is in
    byte/s, `latency_s` the seconds of a load, or of the smallest copy; None was not measured, for
    the reason in `failure`. `sheet` is the rate of the link's data sheet, None if unknown. `nvlink`
    says whether the link is NVLink, rather than PCIe.
    """

    source: str
    target: str
    means: str
    both: bool = False
    rate: float | None = None
    latency_s: float | None = None
    sheet: float | None = None
    failure: str = ""
    nvlink: bool = False

    @property
    def share(self) -> float | None:
        """The rate as a fraction of the sheet."""
        return self.rate / self.sheet if self.rate is not None and self.sheet else None

    @property
    def least(self) -> float:
        """The least share of the sheet that a good link attains by these means."""
        if not self.nvlink:
            return LEAST_BOTH if self.both else LEAST
        if self.means.startswith(MEANS["sm"]):  # and the way, in one direction
            return LEAST_KERNEL_BOTH if self.both else LEAST_KERNEL
        return LEAST

    @property
    def verdict(self) -> Verdict:
        """How the rate compares with the sheet."""
        if self.share is None:
            return "unknown"
        if self.share < self.least:
            return "slow"
        return "as expected" if self.share <= MOST else "above the sheet"


def cases_of(topology: Topology, gpu: int, size: int) -> tuple[Case, ...]:
    """Return the cases that *gpu* measures: its links to each other GPU, and to the host, by copies
    of *size* bytes in each direction."""
    return (*_peer_cases(topology, gpu, size), *_host_cases(gpu, size))


def _peer_cases(topology: Topology, gpu: int, size: int) -> Iterable[Case]:
    for peer in range(topology.gpus):
        if peer == gpu:
            continue
        ends: dict[str, Value] = {"dtype": "fp32", "gpu": gpu, "peer": peer}
        for name in ("copy_engine", "sm"):
            for way in ("write", "read", "both"):
                yield Case("p2p", name, {"bytes": size, **ends, "way": way})
        for footprint in (NEAR_BYTES, FAR_BYTES):
            yield Case("p2p_latency", "sm", {"bytes": footprint, **ends, "hops": 4096})


def _host_cases(gpu: int, size: int) -> Iterable[Case]:
    end: dict[str, Value] = {"gpu": gpu} if gpu else {}
    for op in ("h2d", "d2h"):
        for name in ("torch", "pageable"):
            yield Case(op, name, {"n": size // SIZE, "dtype": "fp32", **end})
    yield Case("h2d_d2h", "torch", {"n": size // SIZE, "dtype": "fp32", **end})
    for op in ("h2d", "d2h"):
        yield Case(op, "torch", {"n": 1, "dtype": "fp32", **end})


def cells(run: Run) -> tuple[Cell, ...]:
    """Return what each record of *run* says of a link, in their order."""
    topology = run.header.topology or Topology()
    return tuple(_cell(record, topology, run.header.peaks) for record in run.records)


def _cell(record: Record, topology: Topology, peaks: Peaks | None) -> Cell:
    case = record.case
    samples = record.samples if record.status == "ok" else None
    time_s = samples.median_s if samples and samples.median_s > 0 else None
    failure = "" if time_s else f"{record.status}: {record.reason}"
    source, target, both = _ends(case)
    means = MEANS.get(case.implementation, case.implementation)
    if case.op == "p2p" and not both:
        means = f"{means}, {case.point['way']}"  # by the source, or read by the target
    if case.op == "p2p_latency":
        far = case.point.get("bytes") == FAR_BYTES
        means = f"load, {'DRAM' if far else 'L2'}"
        hops = int(case.point["hops"])
        latency_s = time_s / hops if time_s else None
        return Cell(source, target, means, latency_s=latency_s, failure=failure)
    size = int(case.point["bytes"]) if case.op == "p2p" else int(case.point["n"]) * SIZE
    if size == SIZE:
        return Cell(source, target, f"{means}, 4 bytes", latency_s=time_s, failure=failure)
    ways = 2 if both else 1
    rate = ways * size / time_s if time_s else None
    sheet = None if means == "pageable" else _sheet(case, topology, peaks)
    nvlink = case.op == "p2p" and _pair(case, topology).kind == "NVLink"
    return Cell(source, target, means, both, rate, None, sheet and ways * sheet, failure, nvlink)


def _ends(case: Case) -> tuple[str, str, bool]:
    """Return where the bytes of *case* come from and go to, and whether they go both ways."""
    own, peer = f"GPU {case.point.get('gpu', 0)}", f"GPU {case.point.get('peer', '')}"
    if case.op in ("h2d", "h2d_d2h"):
        return HOST, own, case.op == "h2d_d2h"
    if case.op == "d2h":
        return own, HOST, False
    way = case.point.get("way")
    return (peer, own, False) if way == "read" else (own, peer, way == "both")


def _pair(case: Case, topology: Topology) -> Pair:
    """Return the link of a *case* between two GPUs."""
    return topology.pair(int(case.point.get("gpu", 0)), int(case.point["peer"]))


def _sheet(case: Case, topology: Topology, peaks: Peaks | None) -> float | None:
    """Return the byte/s of one direction of the link by its sheet; None if it is unknown.

    A sheet's figure for NVLink is for both directions together.
    """
    point: Mapping[str, Value] = case.point
    gpu = int(point.get("gpu", 0))
    if case.op != "p2p":
        return topology.host(gpu).byte_per_s
    pair = _pair(case, topology)
    if pair.kind == "NVLink":
        figure = peaks.figures.get("link_bandwidth") if peaks else None
        return figure.value / 2 if figure else None
    if pair.kind == "unknown":
        return None
    ends = [topology.host(each).byte_per_s for each in (pair.source, pair.target)]
    known = [rate for rate in ends if rate is not None]
    return min(known) if len(known) == len(ends) else None
