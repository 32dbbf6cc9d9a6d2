"""Define the results of a profile: of each pass over a program, and of a region as a whole.

Passes take successive steps, so no pass disturbs another: `plain` measures the time that counts,
`light` the time that the host waits for the device, `trace` the kernels, `counters` the bytes
through DRAM, `accounting` the operators with their shapes (late, since it slows the program down).
`kernels` runs on request only: it reads counters of each kernel, and takes the steps they need.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuperf.model.aten import Call, Tensor
from gpuperf.model.collective import Collective
from gpuperf.model.cost import Cost

PassName = Literal["plain", "light", "trace", "counters", "kernels", "accounting"]
ENDED = "the program ended"  # the reason of a pass that got no step
FORWARD = "forward step"  # region: from one forward pass of the outermost module to the next
WHOLE = "program"  # the region of a program without marks
MARK = "gpuperf:"  # prefix of the name of a region, in the trace of a step
PROMPT = "prompt of "  # prefix of a region: the forward passes of prompts of so many tokens
PART = " / "  # between the names of a region and of a region inside it
PASSES: tuple[PassName, ...] = ("plain", "light", "trace", "counters", "accounting", "kernels")


@dataclass(frozen=True)
class ObservedCall:
    """A call that a dispatch mode observed.

    `where` is the line of the program that made the call, or that began the backward pass. `waits`
    says what the host waited for (empty: nothing). `cost` is the cost that the program registered.
    `again` marks a call that repeats one of the forward pass (checkpointing), `optimizer` one that
    an optimizer of torch made.
    """

    call: Call
    where: str = ""
    waits: str = ""
    backward: bool = False
    cost: Cost | None = None
    again: bool = False
    optimizer: bool = False


@dataclass(frozen=True)
class PassResult:
    """The result of one pass over *steps* steps of a region.

    `steps_s` are the seconds of each step, by the device's clock on a GPU; `wall_s` are the seconds
    of all steps together, by the host's clock except in the plain pass. `peak_bytes` is the peak of
    allocated memory. `trace` names a file; `dropped` are the numbers of its marked steps that do
    not count; `cut` says that it covers only a part of a program without marks. `calls` are the
    calls of all steps in order, and `flop_counts` the count of torch's FLOP counter for each; with
    `tf32` their fp32 matmuls ran in tf32. `ahead` counts the steps that the host launched before
    the device began them, so that the device did not wait for the host. `kernels` are the counters
    of each kernel of a step, in order. In a plain pass the host waited `data_s` seconds for data,
    over all steps, at the line `data_where`. `reason` says why a pass has no result.
    `first` is the number of steps that the region had before the first one of the pass. `backend`
    names the backend of the program's process group (empty: it had none at the end of the pass).
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
    first: int = 0
    backend: str = ""


@dataclass(frozen=True)
class Wait:
    """A wait of the host for the device: the call (`item`), its line (empty if unknown), how often
    it occurs in a step, and the idle seconds of the device that a traced step would save without
    it."""

    what: str
    where: str
    count: float
    idle_s: float = 0.0


@dataclass(frozen=True)
class Chain:
    """A chain of elementwise operators that one fused kernel could compute: the line of the first,
    how often the chain occurs in a step, and its bytes through DRAM in a step, now and fused.
    `optimizer` marks a chain in an optimizer of torch, which may have a fused version itself."""

    operators: tuple[str, ...]
    where: str
    count: int
    bytes: int
    fused_bytes: int
    optimizer: bool = False


@dataclass(frozen=True)
class Operator:
    """An operator of a region, called with tensors of the same shapes.

    `count` is the number of calls in a step; `known` says whether its FLOPs are known, `backward`
    whether it belongs to a backward pass. `host_s` are the seconds that the host spends on it in a
    step. `where` has the lines that call it, `graph` its graph of torch.compile. `tensors` are its
    first arguments, by shape and dtype, and `more` counts the others; if it takes no tensors, they
    are its results, and `made` is true.
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
        """Tensors as `8×768 bf16, 768×768 bf16, 2 more`; results follow an arrow."""
        texts = [f"{'×'.join(map(str, t.shape)) or 'scalar'} {t.dtype}" for t in self.tensors]
        more = [f"{self.more} more"] if self.more > 0 else []
        return ("→ " if self.made else "") + ", ".join([*texts, *more])


@dataclass(frozen=True)
class Prompts:
    """The forward passes of prompts of *tokens* tokens in so many *sequences*: the *seconds* from
    the beginning of each to that of the next pass, by the device's clock on a GPU. The first token
    is known before."""

    sequences: int
    tokens: int
    seconds: tuple[float, ...]

    @property
    def usual_s(self) -> float:
        """Their lower median: that of the second, if the program compiled in the first of two."""
        return statistics.median_low(self.seconds)


@dataclass(frozen=True)
class Program:
    """A region of a program.

    `steps` are the steps of each pass, `total` all steps of the region. `exit_code` is None if the
    profiler ended the program. `items` are the items of a step, if the user gave their number.

    `occupied` are the seconds of a traced step by the activity of the device: `idle_most` is
    the shortest mean idle time of a step over the tracing passes, `idle_between` the idle time
    between kernels that were launched in time. `compute` is the time in which kernels other than
    those of collectives ran (on a CPU, operators), `communication` that of collectives, and
    `exposed` the part of it without compute. `moved` are the bytes of its copies by
    direction, `launched` its numbers of kernels, copies and memsets. `flop_counter` is the
    count of torch's FLOP counter for a step. `parts` are the seconds of the device (on a CPU,
    of the host) in the regions inside a step. `missing` says what could not be measured. In a
    plain step the host waits `data_s` seconds for data, at the line `data_where`. `prompts` are the
    forward passes of a program that generates text whose steps decode a token each.

    `first` are the steps of the region before the first one of each pass, and `backend` is that of
    the process group of a distributed program, whose ranks are compared by them. `collectives` are
    those of the traced steps.
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
    prompts: tuple[Prompts, ...] = ()
    first: Mapping[str, int] = field(default_factory=dict)
    backend: str = ""
    collectives: tuple[Collective, ...] = ()
