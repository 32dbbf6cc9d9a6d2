"""What is told of a program that runs under the profiler, pass by pass?

Passes take successive windows of steps, so that none disturbs another: `plain` has the time that
counts, `light` how long the host waits for the device, `trace` the kernels, `counters` the bytes
through DRAM, `accounting` the operators with their shapes: late, for it disturbs. `kernels`, on
request, what each kernel moved and did, takes as many steps as the counters need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuperf.model.aten import Call, Tensor
from gpuperf.model.cost import Cost

PassName = Literal["plain", "light", "trace", "counters", "kernels", "accounting"]
ENDED = "the program ended"  # before a pass had a step
WHOLE = "program"  # the region of a program that marks nothing
MARK = "gpuperf:"  # before the name of a region, where a step of it stands in a trace
PART = " / "  # between it and that of a region inside the step
PASSES: tuple[PassName, ...] = ("plain", "light", "trace", "counters", "accounting", "kernels")


@dataclass(frozen=True)
class ObservedCall:
    """A call that a dispatch mode saw: the line of the program that made it (of a backward pass the
    one that began it), what the host waited for in it (empty: nothing), what the program itself
    says that it costs, whether it was made before, in the forward pass (checkpointing), and whether
    an optimizer of torch made it."""

    call: Call
    where: str = ""
    waits: str = ""
    backward: bool = False
    cost: Cost | None = None
    again: bool = False
    optimizer: bool = False


@dataclass(frozen=True)
class PassResult:
    """What one pass found of *steps* steps of a region.

    `steps_s` are the seconds of each, by the device's clock where it is a GPU; `wall_s` the seconds
    of all together, on the host's clock but for the plain pass. `peak_bytes` is the most memory
    that was allocated. `trace` names a file; `calls` are the calls of all its steps in order;
    `flop_counts` is what torch's own counter says of each; with `tf32` their fp32 matmuls were in
    tf32. At the end of *ahead* steps the device had not yet begun with them: it did not wait for
    the host. `kernels` are the counters of each kernel of a step, in order. `dropped` are the
    numbers of marked steps in a trace that are none of the *steps*. In a plain pass the host waited
    `data_s` seconds of all its steps for data, at the line `data_where`. A trace that was `cut` is
    of a part of a program without marks. `reason` says why a pass has nothing.
    """

    region: str
    name: PassName
    steps: int
    steps_s: tuple[float, ...] = ()
    wall_s: float = 0.0
    peak_bytes: int | None = None
    trace: str = ""
    calls: tuple[ObservedCall, ...] = ()
    flop_counts: tuple[int, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    tf32: bool = False
    ahead: int = 0
    kernels: tuple[Mapping[str, float], ...] = ()
    dropped: tuple[int, ...] = ()
    data_s: float = 0.0
    data_where: str = ""
    cut: bool = False


@dataclass(frozen=True)
class Wait:
    """Where the host waits for the device: in what (`item`), at which line (empty: nobody knows),
    how often a step, and the seconds of a traced step that the device would idle less without."""

    what: str
    where: str
    count: float
    idle_s: float = 0.0


@dataclass(frozen=True)
class Chain:
    """Elementwise operators, each of what an earlier one made, that one kernel could do: the line
    of the first, how often a step; bytes through DRAM of all of them a step, and of fused ones. An
    `optimizer` of torch may do its own in one kernel."""

    operators: tuple[str, ...]
    where: str
    count: int
    bytes: int
    fused_bytes: int
    optimizer: bool = False


@dataclass(frozen=True)
class Operator:
    """An operator of a region, with tensors of the same shapes: its kind, how often a step, whether
    its FLOPs are known, whether it is of a backward pass, what the host spends on it a step, the
    lines that call it, and the graph of torch.compile that it is in.

    `tensors` are the first of those that it takes, by shape and dtype, `more` counts the others.
    Of an operator that takes none they are those that it `made`.
    """

    kind: str
    count: float
    known: bool = True
    backward: bool = False
    host_s: float = 0.0
    where: tuple[str, ...] = ()
    graph: str = ""
    tensors: tuple[Tensor, ...] = ()
    more: int = 0
    made: bool = False

    @property
    def operands(self) -> str:
        """Write the tensors as `8×768 bf16, 768×768 bf16, 2 more`; the result follows an arrow."""
        texts = [f"{'×'.join(map(str, t.shape)) or 'scalar'} {t.dtype}" for t in self.tensors]
        more = [f"{self.more} more"] if self.more > 0 else []
        return ("→ " if self.made else "") + ", ".join([*texts, *more])


@dataclass(frozen=True)
class Program:
    """A region of a program: the steps that each pass took, and all there were; how the program
    ended (None: it was ended); items a step, where its user said so.

    `occupied` are the seconds of a traced step by what the device did: `idle_most` is what it idled
    at the most, in whichever pass traces, `idle_between` what of it lay between kernels that
    were launched in time. `moved` are bytes of its copies by direction, `launched` how many
    kernels, copies and sets it had. `flop_counter` is torch's own count of a step. `parts` are the
    seconds of the device (on a CPU, of the host) that the regions inside a step take of it.
    `missing` says what was not to be had. Of a plain step the host waits `data_s` seconds for data,
    at the line `data_where`.
    """

    steps: Mapping[str, int]
    total: int
    exit_code: int | None
    error: str = ""
    items: float | None = None
    flop_counter: int | None = None
    occupied: Mapping[str, float] = field(default_factory=dict)
    moved: Mapping[str, float] = field(default_factory=dict)
    launched: Mapping[str, float] = field(default_factory=dict)
    waits: tuple[Wait, ...] = ()
    chains: tuple[Chain, ...] = ()
    missing: tuple[str, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict)
    data_s: float = 0.0
    data_where: str = ""
