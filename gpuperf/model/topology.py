"""Define how the devices of a machine are linked with each other and with the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LinkKind = Literal["NVLink", "PCIe switch", "PCIe host bridge", "PCIe across sockets", "unknown"]

# GT/s of a lane by PCIe generation, and the share that its coding leaves: 8b/10b, then 128b/130b
# (PCI Express Base Specification 5.0, §4.2); generation 6 has flits with 236 of 256 bytes of data.
PCIE_RATES = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
PCIE_CODING = {1: 0.8, 2: 0.8, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 236 / 256}


@dataclass(frozen=True)
class Pair:
    """The link from GPU `source` to GPU `target`, by their indexes in torch. `nvlinks` counts the
    active NVLinks of the source; `access` says whether its kernels can access the target's memory.
    None is unknown."""

    source: int
    target: int
    kind: LinkKind = "unknown"
    nvlinks: int | None = None
    access: bool | None = None

    @property
    def words(self) -> str:
        """The link in words; what is unknown is said to be."""
        links = f", {self.nvlinks} links active" if self.nvlinks is not None else ""
        access = {
            True: "its kernels access the other's memory",
            False: "its kernels cannot access the other's memory",
            None: "access unknown",
        }[self.access]
        kind = "a link of unknown kind" if self.kind == "unknown" else self.kind
        return f"{kind}{links}; {access}"


@dataclass(frozen=True)
class HostLink:
    """The PCIe link of a GPU to the host: generation and lanes at the most that both ends can do.
    None is unknown."""

    gpu: int
    generation: int | None = None
    lanes: int | None = None
    numa: int | None = None

    @property
    def words(self) -> str:
        """The link in words; what is unknown is said to be."""
        numa = f"; NUMA node {self.numa}" if self.numa is not None else ""
        if not self.generation or not self.lanes:
            return f"a link of unknown kind{numa}"
        return f"PCIe generation {self.generation}, {self.lanes} lanes{numa}"

    @property
    def byte_per_s(self) -> float | None:
        """Rate of one direction after coding, if the generation and the lanes are known."""
        if self.generation not in PCIE_RATES or not self.lanes:
            return None
        return PCIE_RATES[self.generation] * PCIE_CODING[self.generation] * self.lanes / 8


@dataclass(frozen=True)
class Topology:
    """The links of all GPUs that torch can use, and the UUID of each."""

    gpus: int = 0
    pairs: tuple[Pair, ...] = ()
    hosts: tuple[HostLink, ...] = ()
    uuids: tuple[str, ...] = ()

    def pair(self, source: int, target: int) -> Pair:
        """Return the link from *source* to *target*; one of unknown kind if none is known."""
        known = (p for p in self.pairs if (p.source, p.target) == (source, target))
        return next(known, Pair(source, target))

    def host(self, gpu: int) -> HostLink:
        """Return the host link of *gpu*; an unknown one if none is known."""
        return next((h for h in self.hosts if h.gpu == gpu), HostLink(gpu))
