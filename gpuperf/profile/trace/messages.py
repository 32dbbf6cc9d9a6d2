"""Read the collectives of a trace: their names, sizes, groups.

NCCL's kernels have the metadata of `record_param_comms` (`Collective name`, `In msg nelems`, `Out
msg nelems`, `dtype`, `Group size`, `Process Group Name`, `Process Group Ranks`), as Kineto's
output_json.cpp writes them. Gloo has no kernels: its threads mark each collective
(`gloo:all_reduce`) with the shape of this rank's tensor. `distributedInfo` of the file lists the
process groups.
"""

from __future__ import annotations

from typing import Any

from gpuperf.model.aten import DTYPES, WIDTHS
from gpuperf.model.collective import Message, collective_name
from gpuperf.profile.trace.columns import legible
from gpuperf.units import itemsize

GLOO = "gloo:"
MOST = 2**62  # bytes of an array
# `c10::ScalarType` as `record_param_comms` writes it.
SCALAR_TYPES = {
    "Float": "fp32",
    "Double": "fp64",
    "Half": "fp16",
    "BFloat16": "bf16",
    "Float8_e4m3fn": "fp8",
    "Float8_e5m2": "fp8",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
# Of these one rank has a part, and the array is the larger side.
PARTED = ("all_gather", "reduce_scatter", "gather", "scatter")


class Messages:
    """A list of the different messages in a trace."""

    def __init__(self) -> None:
        self._index: dict[Message, int] = {}

    def texts(self) -> tuple[Message, ...]:
        return tuple(self._index)

    def of_kernel(self, args: dict[str, Any]) -> int:
        """Return the index of the message of a kernel with Kineto's *args*; −1 if it has none."""
        name = collective_name(str(args.get("Collective name") or ""))
        return self._keep(_communicated(name, args)) if name else -1

    def of_mark(self, name: str, args: dict[str, Any]) -> int:
        """Return the index of the message of the mark *name*; −1 if it is not gloo's."""
        if not name.startswith(GLOO):
            return -1
        dims, types = args.get("Input Dims"), args.get("Input type")
        kinds = types if isinstance(types, list) else []
        elements = 1 if dims == [[]] and kinds else count(dims)
        dtype = next((DTYPES[kind] for kind in kinds if kind in DTYPES), "")
        what = collective_name(name.removeprefix(GLOO))
        return self._keep(Message(what, size_of(elements, dtype), dtype))

    def _keep(self, message: Message) -> int:
        return self._index.setdefault(message, len(self._index))


def _communicated(name: str, args: dict[str, Any]) -> Message:
    dtype = SCALAR_TYPES.get(str(args.get("dtype")), "")
    given, taken = (_number(args, f"{side} msg nelems") for side in ("In", "Out"))
    elements = max(given, taken) if name in PARTED else given or taken
    group = (str(args.get(f"Process Group {key}") or "") for key in ("Name", "Ranks"))
    return Message(
        name,
        size_of(elements, dtype),
        dtype,
        _number(args, "Group size"),
        legible(" ".join(filter(None, group)))[:200],
    )


def size_of(elements: int, dtype: str) -> int:
    """Return the bytes of *elements* elements; 0 for an unknown dtype, or an impossible number."""
    try:
        width = WIDTHS.get(dtype) or itemsize(dtype)
    except ValueError:
        return 0
    return elements * width if 0 <= elements * width < MOST else 0


def count(dims: Any) -> int:
    """Return the elements of all tensors of *dims*, lists of integers or of such lists."""
    if not isinstance(dims, list):
        return 0
    if not dims or not all(type(n) is int for n in dims):
        return sum(map(count, dims))
    elements = 1
    for n in dims:
        elements *= n
    return elements


def only_group(info: Any) -> tuple[str, int]:
    """Return the name and the ranks of the process group in *info*, the `distributedInfo` of a
    trace; ("", 0) if it has none, or several, of which a mark of gloo does not say which."""
    groups = info.get("pg_config") if isinstance(info, dict) else None
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], dict):
        return "", 0
    name, ranks = str(groups[0].get("pg_name", "")), groups[0].get("pg_size")
    return (legible(name)[:200], ranks) if type(ranks) is int and 0 < ranks < 2**24 else ("", 0)


def _number(args: dict[str, Any], key: str) -> int:
    value = args.get(key)
    return value if type(value) is int and 0 <= value < MOST else 0
