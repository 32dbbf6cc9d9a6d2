"""Read from NVML and torch how the GPUs of this machine are linked."""

from __future__ import annotations

from typing import Any

import torch

from gpuperf.model.topology import HostLink, LinkKind, Pair, Topology

# nvmlGpuTopologyLevel_t (nvml.h, driver 580): levels up to *multiple* stay below the host bridge.
MULTIPLE, NODE = 20, 40
MOST_NVLINKS = 36  # tried: a B200 has 18


def read_topology() -> Topology:
    """Return the links of all GPUs that torch can use; what NVML does not say is unknown."""
    if not torch.cuda.is_available():
        return Topology()
    count = torch.cuda.device_count()
    uuids = tuple(_uuid(index) for index in range(count))
    nvml, handles = _handles(uuids)
    pairs = tuple(
        _pair(nvml, handles, source, target)
        for source in range(count)
        for target in range(count)
        if source != target
    )
    return Topology(count, pairs, tuple(_host(nvml, h, i) for i, h in enumerate(handles)), uuids)


def kind_of(ancestor: int | None, by_nvlink: bool | None) -> LinkKind:
    """Return the kind of the link between two GPUs: NVLink where NVML says that they access each
    other by it, or else by their common *ancestor* (nvmlGpuTopologyLevel_t)."""
    if by_nvlink:
        return "NVLink"
    if ancestor is None:
        return "unknown"
    if ancestor <= MULTIPLE:
        return "PCIe switch"
    return "PCIe host bridge" if ancestor <= NODE else "PCIe across sockets"


def _uuid(index: int) -> str:
    uuid = str(getattr(torch.cuda.get_device_properties(index), "uuid", ""))
    return uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _handles(uuids: tuple[str, ...]) -> tuple[Any, list[Any]]:
    """Return NVML and its handle of each GPU, by UUID, since torch may number them differently;
    None for what is not available."""
    try:
        import pynvml
    except ImportError:
        return None, [None] * len(uuids)
    try:
        pynvml.nvmlInit()
        return pynvml, [pynvml.nvmlDeviceGetHandleByUUID(uuid.encode()) for uuid in uuids]
    except pynvml.NVMLError:
        return None, [None] * len(uuids)


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return what NVML's *function* says; None where it does not know."""
    if nvml is None or None in arguments:
        return None
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _pair(nvml: Any, handles: list[Any], source: int, target: int) -> Pair:
    a, b = handles[source], handles[target]
    ancestor = _ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", a, b)
    index = getattr(nvml, "NVML_P2P_CAPS_INDEX_NVLINK", 2)
    status = _ask(nvml, "nvmlDeviceGetP2PStatus", a, b, index)
    by_nvlink = None if status is None else status == getattr(nvml, "NVML_P2P_STATUS_OK", 0)
    try:
        access = torch.cuda.can_device_access_peer(source, target)
    except RuntimeError:
        access = None
    links = _active_nvlinks(nvml, a) if by_nvlink else None
    return Pair(source, target, kind_of(ancestor, by_nvlink), links, access)


def _active_nvlinks(nvml: Any, handle: Any) -> int | None:
    states = [_ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) for link in range(MOST_NVLINKS)]
    known = [state for state in states if state is not None]
    return sum(map(bool, known)) if known else None


def _host(nvml: Any, handle: Any, index: int) -> HostLink:
    """Return the host link of a GPU: the most it can do here, since it slows down while idle."""
    return HostLink(
        index,
        _ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        _ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
        _ask(nvml, "nvmlDeviceGetNumaNodeId", handle),
    )
