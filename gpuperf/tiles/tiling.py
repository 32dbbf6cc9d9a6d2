"""Which tile did the kernel of a matmul work in, which way does it lie, on how many SMs?"""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.model.record import Launch, Record
from gpuperf.tiles.grids import Way, capacity, splits, ways
from gpuperf.tiles.names import NamedTile, main_kernel, parse_name, reduces_splits
from gpuperf.tiles.waves import Tiling, transpose
from gpuperf.units import LARGEST


def tiling_of(records: Sequence[Record], sm_count: int) -> tuple[Tiling | None, bool, str]:
    """The tile that the one kernel of *records* works in, and whether its orientation is sure; or
    why it is unknown or does not tell the time."""
    record = records[0]
    if tile := _chosen_tile(record):
        return Tiling(*tile, sm_count), True, ""
    name = main_kernel(record)
    named, launch = parse_name(name), _launch(record, name)
    if named is None:
        return None, False, "its name tells no tile"
    if named.splits or any(reduces_splits(k.name) for k in record.kernels):
        return None, False, "its programs share tiles' sums (split-K): waves do not tell its time"
    if named.paired:
        return None, False, "two CTAs share a tile, which the model does not know of"
    cluster = named.cluster[0] * named.cluster[1]
    usable = capacity(launch, sm_count, cluster)
    if usable < 1:
        return None, False, f"a cluster of {cluster} does not fit {sm_count} SMs"
    found = _ways(named, records, sm_count)
    if not found:
        return None, False, "its grid contradicts the tile that its name tells"
    tiling = Tiling(
        named.rows, named.columns, named.k or 1, usable, _parts(record, name), named.streams
    )
    # BLAS is column-major, and a row-major product is given to it with its sides exchanged.
    return tiling if found == {"named"} else transpose(tiling), len(found) == 1, ""


def label_of(record: Record) -> str:
    """The kernel, with what makes it another one: what was chosen of one that was tuned, and the
    parts that K is split in."""
    tile, name = _chosen_tile(record), main_kernel(record)
    words = [name]
    if tile is not None:
        words.append("x".join(map(str, tile)))
        words += [f"{key} {value}" for key, value in record.chosen.items() if len(key) > 2]
    elif (parts := _parts(record, name)) > 1:
        words.append(f"K in {parts} parts")
    return ", ".join(filter(None, words))


def sizes_of(record: Record) -> tuple[int, int, int] | None:
    """m, n and k, where they are those of a matmul."""
    sizes = [record.case.point.get(name) for name in "mnk"]
    found = [size for size in sizes if isinstance(size, int) and 0 < size <= LARGEST]
    return (found[0], found[1], found[2]) if len(found) == 3 else None


def _chosen_tile(record: Record) -> tuple[int, int, int] | None:
    """BM, BN and BK of a kernel that was tuned."""
    values = [record.chosen.get(name) for name in ("BM", "BN", "BK")]
    numbers = [v for v in values if isinstance(v, int) and 0 < v <= LARGEST]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _parts(record: Record, name: str) -> int:
    """The parts of K, as the grid of the kernel *name* tells them."""
    named, launch = parse_name(name), _launch(record, name)
    return 1 if named is None or named.persistent or launch is None else splits(launch)


def _launch(record: Record, name: str) -> Launch | None:
    return next((kernel.launch for kernel in record.kernels if kernel.name == name), None)


def _ways(named: NamedTile, records: Sequence[Record], sm_count: int) -> frozenset[Way]:
    """How the tile may lie, by the grids of all *records* that have one."""
    found: frozenset[Way] = frozenset({"named", "turned"})
    for record in records:
        launch, sizes = _launch(record, main_kernel(record)), sizes_of(record)
        if launch is not None and sizes is not None:
            found &= ways(named, launch, sizes[0], sizes[1], sm_count)
    return found
