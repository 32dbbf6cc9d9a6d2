"""Define the messages between the clerk and its workers.

Two kinds of workers exist. The answers' worker makes the inputs and holds the answers. A seat runs
one side, the submission or the reference; the clerk lets a seat run in windows only, and stops all
its processes in between.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpuperf.judge.evidence import Audit, Restrictions, Unfair
from gpuperf.judge.task import Side, Submission, TaskCase, TaskSource
from gpuperf.model.cost import Cost
from gpuperf.model.protocol import Opened

PROTOCOL = 1


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

    With *twin*, they are those of the contents `twin` but for one element.
    """

    slot: int
    seed: int
    kind: str
    twin: tuple[int, str] | None = None


class Load(msgspec.Struct, tag="load", frozen=True):
    """Request to the answers' worker to load a case of a task, and to examine the task."""

    task: TaskSource
    case: TaskCase
    seed: int


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """The task as loaded: layouts of inputs, weights and results, the kinds of its values, whether
    the reference returns memory of its inputs, and the device with its fingerprint."""

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


class Share(msgspec.Struct, tag="share", frozen=True):
    """Request to map the files of slots, one a seat, that of results, and to write the weights."""

    slots: tuple[str, ...]
    states: tuple[str, ...]
    results: str
    results_bytes: int
    count: int


class Fill(msgspec.Struct, tag="fill", frozen=True):
    """Request to write contents into the slots of all seats."""

    contents: tuple[Contents, ...]


class Check(msgspec.Struct, tag="check", frozen=True):
    """Request to compare the results of these slots, whose tensors have these shapes."""

    slots: tuple[int, ...]
    places: tuple[tuple[TensorSpec, ...], ...]
    side: int = 0


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


class Imported(msgspec.Struct, tag="imported", frozen=True):
    """The code was imported under these restrictions."""

    restrictions: Restrictions


class Build(msgspec.Struct, tag="build", frozen=True):
    """Request to a seat to build the call on the slots of a file."""

    inputs: Layout
    state: Layout
    init: Any
    slots: str
    weights: str
    count: int
    seed: int


class Window(msgspec.Struct, tag="window", frozen=True):
    """Request to call once on each of these slots, back to back."""

    number: int
    order: tuple[int, ...]


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a tensor of a result lies: its address, shape, strides, dtype, and what is odd."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    odd: str = ""


class Done(msgspec.Struct, tag="done", frozen=True):
    """The calls of a window have returned: the seconds that the seat claims for each call, the
    places of the results, and the functions that were replaced in the seat."""

    number: int
    claims: tuple[float, ...]
    places: tuple[tuple[Place, ...], ...]
    replaced: str = ""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """A request without a result was served; the first message of each worker too."""

    protocol: int = PROTOCOL


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """A request failed: `kind` is a status of a verdict, or `task` for a fault of the task."""

    kind: str
    message: str
    hint: str = ""


ToSeat = Import | Build | Window
FromSeat = Imported | Ready | Done | Refused
ToAnswers = Load | Share | Fill | Check
FromAnswers = Loaded | Ready | Checked | Refused
