"""Find the tile of a matmul's kernel, its orientation, and the number of SMs that work at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuperf.model.record import Launch, Record
from gpuperf.model.workload import Value
from gpuperf.tiles.grids import Way, capacity, splits, ways
from gpuperf.tiles.names import NamedTile, main_kernel, parse_name, reduces_splits
from gpuperf.tiles.waves import Tiling, transpose
from gpuperf.units import LARGEST

SPLIT = "its programs share the sums of tiles (split-K), so waves do not determine its time"


def tiling_of(records: Sequence[Record], sm_count: int) -> tuple[Tiling | None, bool, str]:
    """Return the tiling of the kernel that all *records* ran, and whether its orientation is sure;
    or None and the reason why the tiling is unknown or does not determine the time."""
    record = records[0]
    if _is_split(record):
        return None, False, SPLIT
    if tile := _chosen_tile(record):
        return Tiling(*tile, sm_count), True, ""
    name = main_kernel(record)
    named, launch = parse_name(name), _launch(record, name)
    if named is None:
        return None, False, "the name of the kernel has no tile"
    if named.splits or any(reduces_splits(k.name) for k in record.kernels):
        return None, False, SPLIT
    if named.paired:
        return None, False, "two CTAs share a tile, which the model does not cover"
    cluster = named.cluster[0] * named.cluster[1]
    usable = capacity(launch, sm_count, cluster)
    if usable < 1:
        return None, False, f"a cluster of {cluster} does not fit {sm_count} SMs"
    orientations = _ways(named, records, sm_count)
    if not orientations:
        return None, False, "its grid contradicts the tile in its name"
    tiling = Tiling(
        named.rows, named.columns, named.k or 1, usable, _parts(record, name), named.streams
    )
    # BLAS is column-major, so torch exchanges the sides of its row-major product.
    if orientations != {"named"}:
        tiling = transpose(tiling)
    return tiling, len(orientations) == 1, ""


def label_of(record: Record) -> str:
    """Return the name of the kernel, with its tuned configuration and the parts of a split K."""
    tile, name = _chosen_tile(record), main_kernel(record)
    words = [name]
    if tile is not None:
        words.append("x".join(map(str, tile)))
        words += [f"{key} {value}" for key, value in record.chosen.items() if len(key) > 2]
    elif (parts := _parts(record, name)) > 1:
        words.append(f"K in {parts} parts")
    return ", ".join(filter(None, words))


def sizes_of(record: Record) -> tuple[int, int, int] | None:
    """Return m, n and k of a matmul; None for other records."""
    return _three_sizes(record.case.point, ("m", "n", "k"))


def _chosen_tile(record: Record) -> tuple[int, int, int] | None:
    return _three_sizes(record.chosen, ("BM", "BN", "BK"))


def _is_split(record: Record) -> bool:
    splits = record.chosen.get("splits", 1)
    return isinstance(splits, int) and splits > 1


def _three_sizes(
    values: Mapping[str, Value], names: tuple[str, str, str]
) -> tuple[int, int, int] | None:
    sizes = [value for name in names if isinstance(value := values.get(name), int)]
    sizes = [size for size in sizes if 0 < size <= LARGEST]
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else None


def _parts(record: Record, name: str) -> int:
    """Return the number of parts of a split K, from the grid of the kernel *name*."""
    named, launch = parse_name(name), _launch(record, name)
    return 1 if named is None or named.persistent or launch is None else splits(launch)


def _launch(record: Record, name: str) -> Launch | None:
    return next((kernel.launch for kernel in record.kernels if kernel.name == name), None)


def _ways(named: NamedTile, records: Sequence[Record], sm_count: int) -> frozenset[Way]:
    """Return the orientations of the tile that agree with the grids of all *records*."""
    orientations: frozenset[Way] = frozenset({"named", "turned"})
    for record in records:
        launch, sizes = _launch(record, main_kernel(record)), sizes_of(record)
        if launch is not None and sizes is not None:
            orientations &= ways(named, launch, sizes[0], sizes[1], sm_count)
    return orientations
