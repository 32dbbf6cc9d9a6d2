"""Define the messages between the clerk and its workers.

Two kinds of workers exist. The answers' worker makes the inputs and holds the answers. A seat runs
one side, the submission or the reference; the clerk lets a seat run in windows only, and stops all
its processes in between.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpuperf.judge.evidence import Audit, Counted, Ran, Restrictions, Unfair
from gpuperf.judge.task import Side, Submission, TaskCase, TaskSource
from gpuperf.model.cost import Cost
from gpuperf.model.protocol import Opened

PROTOCOL = 2
IN_INPUT = "lies in the memory of an input"  # what is odd of such a result
# Bytes of an element of the dtypes that a result may have, by torch's names.
ITEM_BYTES = {"float64": 8, "complex128": 16, "float16": 2, "bfloat16": 2, "int16": 2, "bool": 1}
ITEM_BYTES |= {"float32": 4, "int32": 4, "complex64": 8, "int64": 8, "int8": 1, "uint8": 1}


class TensorSpec(msgspec.Struct, frozen=True):
    """A tensor in a slot: shape, strides in elements, torch's name of its dtype, first byte."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0
    bytes: int = 0


class Layout(msgspec.Struct, frozen=True):
    """The inputs of one call: a skeleton of their tree, and the tensors in it.

    `size` is the number of bytes of a slot, a multiple of a page.
    """

    skeleton: Any
    tensors: tuple[TensorSpec, ...]
    size: int


class Contents(msgspec.Struct, frozen=True):
    """The contents of a slot: the seed and the kind of its values.

    With *twin*, they are those of the contents `twin` but for one element. With *far* it is far
    from the values that the task draws, else it is one of them.
    """

    slot: int
    seed: int
    kind: str
    twin: tuple[int, str] | None = None
    far: bool = True


class Load(msgspec.Struct, tag="load", frozen=True):
    """Request to the answers' worker to load a case of a task, and to examine the task."""

    task: TaskSource
    case: TaskCase
    seed: int
    device: str = "cpu"


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """The task as loaded: layouts of inputs, weights and results, the kinds of its values, whether
    the reference returns memory of its inputs, and the device with its fingerprint. `needed` are
    the bytes of a call's inputs that are not zero, and `probe_s` the seconds in which a device
    without other work reads a known number of bytes. With `views`, seats copy the results of each
    call to dense memory. `twins` are those that `Plan` may draw."""

    inputs: Layout
    state: Layout
    init: Any
    results: tuple[TensorSpec, ...]
    kinds: tuple[str, ...]
    unfair: tuple[Unfair, ...]
    cost: Cost | None
    notes: tuple[str, ...] = ()
    aliases: bool = False
    opened: Opened | None = None
    needed: float = 0.0
    probe_s: float = 0.0
    cost_is_derived: bool = False
    views: bool = False
    twins: str = ""


class Share(msgspec.Struct, tag="share", frozen=True):
    """Request to map the files of slots, one a seat, that of results, and to write the weights.

    With *on_device*, slots and results are memory of the device instead, and the reply says where.
    """

    slots: tuple[str, ...]
    states: tuple[str, ...]
    results: str
    results_bytes: int
    count: int
    others: str = ""
    on_device: bool = False


class Shared(msgspec.Struct, tag="shared", frozen=True):
    """The places of slots, one a seat, and of the submission's results and of the references';
    `missing` says why the device shares no memory, if it was asked to."""

    slots: tuple[str, ...] = ()
    results: str = ""
    others: str = ""
    missing: str = ""


class Fill(msgspec.Struct, tag="fill", frozen=True):
    """Request to write contents into the slots of all seats."""

    contents: tuple[Contents, ...]


class Check(msgspec.Struct, tag="check", frozen=True):
    """Request to compare the results of these slots, whose tensors have these shapes."""

    slots: tuple[int, ...]
    places: tuple[tuple[TensorSpec, ...], ...]
    side: int = 0


class Watch(msgspec.Struct, tag="watch", frozen=True):
    """Request to begin to count the traffic of the whole device."""


class Unwatch(msgspec.Struct, tag="unwatch", frozen=True):
    """Request to end to count, and to count on during a pause of *pause_s* seconds."""

    pause_s: float


class Withdraw(msgspec.Struct, tag="withdraw", frozen=True):
    """Request to keep the contents of these slots of the submission as they are now, and to replace
    the contents of all by zeros; with *probe*, only to time the device."""

    slots: tuple[int, ...]
    probe: bool = False


class Withdrawn(msgspec.Struct, tag="withdrawn", frozen=True):
    """The seconds that the device took to read a known number of bytes right after the request."""

    probe_s: float


class Release(msgspec.Struct, tag="release", frozen=True):
    """Request to release the counters of the device, which a seat is to use."""


class Watched(msgspec.Struct, tag="watched", frozen=True):
    """What was counted: bytes, and seconds with traffic, in the window and in the pause after it;
    `missing` says why nothing was."""

    read: float = 0.0
    written: float = 0.0
    busy_s: float = 0.0
    pause_s: float = 0.0
    pause_bytes: float = 0.0
    pause_busy_s: float = 0.0
    missing: str = ""


class Checked(msgspec.Struct, tag="checked", frozen=True):
    """The outcome of each compared result."""

    audits: tuple[Audit, ...]


class Import(msgspec.Struct, tag="import", frozen=True):
    """Request to a seat to restrict itself, and to import the code of its side."""

    task: TaskSource
    case: TaskCase
    submission: Submission
    side: Side
    isolation: str
    scratch: str
    memory: str
    device: str = "cpu"


class Imported(msgspec.Struct, tag="imported", frozen=True):
    """The code was imported under these restrictions."""

    restrictions: Restrictions


class Build(msgspec.Struct, tag="build", frozen=True):
    """Request to a seat to build the call on the slots of a file; with *views*, each call ends with
    a copy of results that are no dense tensors."""

    inputs: Layout
    state: Layout
    init: Any
    slots: str
    weights: str
    count: int
    seed: int
    results: str = ""
    results_bytes: int = 0
    views: bool = False


class Window(msgspec.Struct, tag="window", frozen=True):
    """Request to call once on each of these slots, back to back; with *recorded*, while CUPTI
    records the work of the device."""

    number: int
    order: tuple[int, ...]
    recorded: bool = False


class Fetch(msgspec.Struct, tag="fetch", frozen=True):
    """Request to copy these slots of a file into the memory of the device."""

    slots: tuple[int, ...]


class Collect(msgspec.Struct, tag="collect", frozen=True):
    """Request to copy results of the last window, by their places in it, into the memory of
    results: the tensors of each one have these specifications there."""

    indices: tuple[int, ...]
    slots: tuple[int, ...]
    places: tuple[tuple[TensorSpec, ...], ...]


class Count(msgspec.Struct, tag="count", frozen=True):
    """Request to count the operations of one call by the counters of its kernels."""

    slot: int


class Counts(msgspec.Struct, tag="counts", frozen=True):
    """The operations of a call; `missing` says why there are none, and `raised` which error the
    call itself raised."""

    counted: Counted | None = None
    missing: str = ""
    raised: str = ""


class Recorded(msgspec.Struct, frozen=True):
    """What CUPTI recorded in a window; `missing` says why it recorded nothing, and `early_s` is
    None if the sets that hold the stream were not recorded."""

    ran: tuple[Ran, ...] = ()
    busy_s: float = 0.0
    late_s: float = 0.0
    early_s: float | None = None
    lost: int = 0
    missing: str = ""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a tensor of a result lies: its address, shape, strides, dtype, and what is odd."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    odd: str = ""


class Done(msgspec.Struct, tag="done", frozen=True):
    """The calls of a window have returned: the seconds that the seat claims for each call, and the
    places of the results."""

    number: int
    claims: tuple[float, ...]
    places: tuple[tuple[Place, ...], ...]
    recorded: Recorded | None = None


class Look(msgspec.Struct, tag="look", frozen=True):
    """Say which functions were replaced in the seat. It takes a millisecond, so that no window has
    it."""


class Looked(msgspec.Struct, tag="looked", frozen=True):
    """What was replaced in the seat: the names of functions, or the times that it noted."""

    replaced: str = ""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """A request without a result was served; the first message of each worker too."""

    protocol: int = PROTOCOL


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """A request failed: `kind` is a status of a verdict, or `task` for a fault of the task."""

    kind: str
    message: str
    hint: str = ""


ToSeat = Import | Build | Window | Fetch | Collect | Count | Look
FromSeat = Imported | Ready | Done | Counts | Looked | Refused
ToAnswers = Load | Share | Fill | Check | Watch | Unwatch | Release | Withdraw
FromAnswers = Loaded | Ready | Checked | Shared | Watched | Withdrawn | Refused
