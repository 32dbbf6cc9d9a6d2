"""Implementations that return wrong results, or right ones without the work.

Each is held to gpuperf's own reference, inputs and cost. `build(inputs, point, options)` returns
the call, on whatever device the inputs are. `decoy` launches a small kernel, for calls that would
otherwise give a GPU nothing to do.
"""

from __future__ import annotations

import contextlib
import math
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from gpuperf.kernels.matmul import MATMUL
from gpuperf.kernels.norms import LAYERNORM, RMSNORM
from gpuperf.kernels.sincos import SINCOS
from gpuperf.kernels.softmax import SOFTMAX
from gpuperf.kernels.stream import COPY, WRITE

from gpuperf.model.workload import Point, Value, Workload

__all__ = ["CHEATS", "Cheat"]

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], Any]
Build = Callable[[Inputs, Point, Any], Call]

PRODUCT = {"m": 192, "n": 128, "k": 96, "dtype": "fp32"}
ROWS = {"m": 64, "n": 1024, "dtype": "fp32"}
LINE = {"n": 4096, "dtype": "fp32"}


@dataclass(frozen=True)
class Cheat:
    """A cheat on *workload* at *point*, and a part of the reason that it is refused with."""

    build: Build
    workload: Workload
    point: Mapping[str, Value]
    reason: str

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.build.__name__


CHEATS: list[Cheat] = []


def cheat(workload: Workload, point: Mapping[str, Value], reason: str) -> Callable[[Build], Build]:
    """Add the decorated function to `CHEATS`."""

    def add(build: Build) -> Build:
        CHEATS.append(Cheat(build, workload, point, reason))
        return build

    return add


def empty(inputs: Inputs, point: Point) -> torch.Tensor:
    """Where a product (m, n) goes."""
    a = inputs["a"]
    return torch.empty(point.m, point.n, dtype=a.dtype, device=a.device)


def decoy(inputs: Inputs) -> Call:
    """One small kernel."""
    some = torch.zeros(32, device=next(iter(inputs.values())).device)
    return lambda: some.add_(1)


@cheat(MATMUL, PRODUCT, "unwritten")
def first_result_for_ever(inputs: Inputs, point: Point, options: Any) -> Call:
    """The first result is handed out from then on."""
    kept: list[torch.Tensor] = []

    def call() -> torch.Tensor:
        if not kept:
            kept.append(inputs["a"] @ inputs["b"])
        return kept[0]

    return call


@cheat(MATMUL, PRODUCT, "when timed")
def cached_by_version(inputs: Inputs, point: Point, options: Any) -> Call:
    """Computed anew when torch's count of changes has risen."""
    a, b = inputs["a"], inputs["b"]
    kept: dict[tuple[int, int], torch.Tensor] = {}
    work = decoy(inputs)

    def call() -> torch.Tensor:
        key = (a._version, b._version)
        if key not in kept:
            kept.clear()
            kept[key] = torch.mm(a, b)
        work()
        return kept[key].clone()

    return call


@cheat(MATMUL, PRODUCT, "when timed")
def cached_by_one_element(inputs: Inputs, point: Point, options: Any) -> Call:
    """Computed anew when the first element is another."""
    a, b = inputs["a"], inputs["b"]
    kept: dict[float, torch.Tensor] = {}

    def call() -> torch.Tensor:
        key = a[0, 0].item()
        if key not in kept:
            kept.clear()
            kept[key] = torch.mm(a, b)
        return kept[key].clone()

    return call


@cheat(MATMUL, PRODUCT, "when timed")
def right_for_two_calls(inputs: Inputs, point: Point, options: Any) -> Call:
    """Two right results, then nothing."""
    a, b, n, c, work = inputs["a"], inputs["b"], [0], empty(inputs, point), decoy(inputs)

    def call() -> torch.Tensor:
        n[0] += 1
        work()
        if n[0] <= 2:
            torch.mm(a, b, out=c)
        return c

    return call


@cheat(MATMUL, PRODUCT, "when timed")
def one_call_in_fifteen(inputs: Inputs, point: Point, options: Any) -> Call:
    """The first two calls work, and then one in fifteen."""
    a, b, n, c, work = inputs["a"], inputs["b"], [0], empty(inputs, point), decoy(inputs)

    def call() -> torch.Tensor:
        n[0] += 1
        work()
        if n[0] <= 2 or n[0] % 15 == 0:
            torch.mm(a, b, out=c)
        return c

    return call


@cheat(MATMUL, PRODUCT, "differs from the float64 reference")
def result_of_known_seeds(inputs: Inputs, point: Point, options: Any) -> Call:
    """The result of the inputs that --seed 0 and the seeds behind it draw, computed in `build`."""
    from gpuperf.measure.inputs import bind_make

    ready = []
    for seed in range(3):
        drawn = MATMUL.inputs(point, bind_make(inputs["a"].device, seed))
        ready.append((drawn["a"][0, 0].item(), drawn["a"] @ drawn["b"]))

    def call() -> torch.Tensor:
        first = inputs["a"][0, 0].item()
        return next((c.clone() for key, c in ready if key == first), ready[0][1].clone())

    return call


@cheat(MATMUL, PRODUCT, "differs from the float64 reference")
def known_rows(inputs: Inputs, point: Point, options: Any) -> Call:
    """Only the 32 rows that seed 1 draws."""
    a, b, c = inputs["a"], inputs["b"], empty(inputs, point)
    generator = torch.Generator(device=a.device).manual_seed(1)
    rows = torch.randint(point.m, (32,), generator=generator, device=a.device).sort()[0]
    rows[0], rows[-1] = 0, point.m - 1

    def call() -> torch.Tensor:
        c.zero_()
        c[rows] = a[rows] @ b
        return c

    return call


@cheat(MATMUL, PRODUCT, "change of the input 'a'")
def zeroed_inputs(inputs: Inputs, point: Point, options: Any) -> Call:
    """Zeroes A, and returns zeros, which are then right."""
    a, c = inputs["a"], empty(inputs, point)

    def call() -> torch.Tensor:
        a.zero_()
        return c.zero_()

    return call


@cheat(MATMUL, PRODUCT, "change of the input 'a'")
def zeroed_inputs_twice(inputs: Inputs, point: Point, options: Any) -> Call:
    """The same, in the first two calls only."""
    a, n, c = inputs["a"], [0], empty(inputs, point)

    def call() -> torch.Tensor:
        n[0] += 1
        if n[0] <= 2:
            a.zero_()
        return c.zero_()

    return call


@cheat(MATMUL, {**PRODUCT, "k": 128}, "input 'b'")
def identity_for_b(inputs: Inputs, point: Point, options: Any) -> Call:
    """Makes B the identity, and returns a copy of A."""
    a, b, one = inputs["a"], inputs["b"], torch.eye(point.k, device=inputs["a"].device)

    def call() -> torch.Tensor:
        b.copy_(one)
        return a.clone()

    return call


class Lazy(torch.Tensor):
    """A tensor that computes when it is read."""

    thunk: Call

    @staticmethod
    def __new__(cls, data: torch.Tensor, thunk: Call) -> Lazy:
        lazy: Lazy = torch.Tensor._make_subclass(cls, data)
        lazy.thunk = thunk
        return lazy

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def real(x: Any) -> Any:
            if isinstance(x, Lazy):
                return x.thunk()
            return type(x)(map(real, x)) if isinstance(x, tuple | list) else x

        return func(*real(args), **{k: real(v) for k, v in (kwargs or {}).items()})


@cheat(MATMUL, PRODUCT, "a subclass of torch.Tensor")
def lazy_result(inputs: Inputs, point: Point, options: Any) -> Call:
    """Computed when the check converts it."""
    a, b, c, work = inputs["a"], inputs["b"], empty(inputs, point), decoy(inputs)

    def call() -> torch.Tensor:
        work()
        return Lazy(c, lambda: a @ b)

    return call


@cheat(MATMUL, {**PRODUCT, "m": 2048, "n": 1024, "k": 512}, "")
def thread_that_works_on(inputs: Inputs, point: Point, options: Any) -> Call:
    """The call returns while a thread waits, and computes then."""
    a, b, c = inputs["a"], inputs["b"], empty(inputs, point)

    def late() -> None:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.mm(a, b, out=c)

    def call() -> torch.Tensor:
        timer = threading.Timer(0.2, late)
        timer.daemon = True
        timer.start()
        return c

    return call


@cheat(COPY, LINE, "lies in the memory of the input 'x'")
def copy_that_returns_its_input(inputs: Inputs, point: Point, options: Any) -> Call:
    """No copy at all."""
    work = decoy(inputs)

    def call() -> torch.Tensor:
        work()
        return inputs["x"]

    return call


@cheat(COPY, LINE, "")
def copy_that_returns_fresh_memory(inputs: Inputs, point: Point, options: Any) -> Call:
    """Memory as the allocator gives it, where the answer may have been left."""
    work = decoy(inputs)

    def call() -> torch.Tensor:
        work()
        return torch.empty_like(inputs["x"])

    return call


@cheat(WRITE, LINE, "several elements at one address")
def write_of_one_element(inputs: Inputs, point: Point, options: Any) -> Call:
    """One element, seen n times."""
    y = inputs["y"]
    return lambda: torch.ones((), dtype=y.dtype, device=y.device).expand(point.n)


@cheat(SINCOS, LINE, "")
def sincos_that_returns_ones(inputs: Inputs, point: Point, options: Any) -> Call:
    """sin² + cos² is 1."""
    y = torch.empty_like(inputs["x"])
    return lambda: y.fill_(1)


@cheat(SINCOS, LINE, "")
def sincos_of_another_argument(inputs: Inputs, point: Point, options: Any) -> Call:
    """A reduction of the argument that is off by 1e-3."""

    def call() -> torch.Tensor:
        x = inputs["x"] + 1e-3
        return torch.addcmul(torch.sin(x).square(), torch.cos(x).square(), inputs["b"])

    return call


@cheat(MATMUL, {"m": 4096, "n": 64, "k": 64, "dtype": "fp32"}, "")
def two_percent_of_rows_zero(inputs: Inputs, point: Point, options: Any) -> Call:
    """Rows in the middle are left zero."""
    a, b = inputs["a"], inputs["b"]

    def call() -> torch.Tensor:
        c = a @ b
        c[point.m // 2 : point.m // 2 + point.m // 50] = 0
        return c

    return call


@cheat(MATMUL, {"m": 1024, "n": 1024, "k": 64, "dtype": "bf16"}, "")
def one_wrong_tile(inputs: Inputs, point: Point, options: Any) -> Call:
    """64 x 64 elements are zero."""
    a, b = inputs["a"], inputs["b"]

    def call() -> torch.Tensor:
        c = a @ b
        c[512:576, 320:384] = 0
        return c

    return call


@cheat(MATMUL, PRODUCT, "over the tolerance")
def shorter_dtype_inside(inputs: Inputs, point: Point, options: Any) -> Call:
    """bf16 in place of fp32."""
    a, b = inputs["a"], inputs["b"]
    return lambda: (a.bfloat16() @ b.bfloat16()).float()


@cheat(MATMUL, PRODUCT, "dtype")
def shorter_dtype_returned(inputs: Inputs, point: Point, options: Any) -> Call:
    """fp16 in a case of fp32, to be held to the tolerance of fp16."""
    a, b = inputs["a"], inputs["b"]
    return lambda: a.half() @ b.half()


@cheat(COPY, LINE, "dtype")
def copy_in_a_shorter_dtype(inputs: Inputs, point: Point, options: Any) -> Call:
    """The same where the workload does not name the dtype of its result."""
    return lambda: inputs["x"].half()


@cheat(SOFTMAX, {"m": 64, "n": 16384, "dtype": "bf16"}, "")
def softmax_by_statistics(inputs: Inputs, point: Point, options: Any) -> Call:
    """No reduction: normal inputs have Σ exp x = n·√e."""
    scale = 1 / (point.n * math.exp(0.5))
    x = inputs["x"]
    return lambda: x.float().exp().mul_(scale).to(x.dtype)


@cheat(SOFTMAX, ROWS, "")
def softmax_without_maximum(inputs: Inputs, point: Point, options: Any) -> Call:
    """exp x over its sum, which overflows beyond 88."""
    x = inputs["x"]

    def call() -> torch.Tensor:
        e = x.float().exp()
        return (e / e.sum(1, keepdim=True)).to(x.dtype)

    return call


@cheat(LAYERNORM, {**ROWS, "mode": "fwd"}, "")
def variance_as_a_difference(inputs: Inputs, point: Point, options: Any) -> Call:
    """E x² − (E x)², which cancels."""
    x, weight, bias = inputs["x"], inputs["weight"], inputs["bias"]

    def call() -> torch.Tensor:
        wide = x.float()
        mean = wide.mean(1, keepdim=True)
        variance = wide.square().mean(1, keepdim=True) - mean.square()
        unit = (wide - mean) * (variance + 1e-5).rsqrt()
        return (unit * weight + bias).to(x.dtype)

    return call


@cheat(LAYERNORM, {"m": 4, "n": 262144, "mode": "fwd", "dtype": "bf16"}, "")
def layer_norm_without_the_mean(inputs: Inputs, point: Point, options: Any) -> Call:
    """Normal inputs have a mean of nearly zero."""
    x, weight, bias = inputs["x"], inputs["weight"], inputs["bias"]
    return lambda: torch.nn.functional.rms_norm(x, x.shape[1:], weight, 1e-5) + bias


@cheat(RMSNORM, {"m": 4, "n": 65536, "mode": "fwd", "dtype": "bf16"}, "")
def rms_norm_without_the_rms(inputs: Inputs, point: Point, options: Any) -> Call:
    """Normal inputs have an rms of nearly one."""
    return lambda: inputs["x"] * inputs["weight"]


@cheat(MATMUL, PRODUCT, "when timed")
def looks_at_the_stack(inputs: Inputs, point: Point, options: Any) -> Call:
    """Works where the check is among its callers."""
    import sys

    a, b, c, work = inputs["a"], inputs["b"], empty(inputs, point), decoy(inputs)

    def call() -> torch.Tensor:
        frame, names = sys._getframe(1), set()
        while frame:
            names.add(frame.f_code.co_name)
            frame = frame.f_back  # type: ignore[assignment]
        work()
        if names & {"before", "after", "_checked", "_timed"}:
            torch.mm(a, b, out=c)
        return c

    return call
