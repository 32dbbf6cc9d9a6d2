"""Record the operators of a step, their tensors, and where the host waits for the device."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpuperf.marks import COSTS
from gpuperf.model.aten import DTYPES, Call, Tensor
from gpuperf.model.cost import Cost
from gpuperf.model.program import ObservedCall

MOST_SEEN = 200_000  # calls of all steps that a recorder keeps
MOST_S = 20.0  # seconds that a recorder may spend on recording
LONGEST = 200  # characters of an argument
MOST_VALUES = 64  # numbers of a list that is written as text
PLAIN = (  # types of arguments that are written as text
    bool,
    int,
    float,
    complex,
    str,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
FAILED: set[str] = set()  # operators whose registered cost has failed
# Operators whose result the host must know before it goes on.
WAITS = {
    "aten::_local_scalar_dense": "item",
    "aten::item": "item",
    "aten::is_nonzero": "item",
    "aten::nonzero": "nonzero",
    "aten::equal": "equal",
    "aten::masked_select": "masked_select",
    "aten::_unique2": "unique",
    "aten::unique_dim": "unique",
}
COPIES = ("aten::_to_copy", "aten::copy_")
INFERRING = ("FakeTensor", "FunctionalTensor")  # tensors of torch without data
ENGINE = str(Path("torch", "autograd", "graph.py"))
OPTIMIZERS = f"{Path(torch.__file__).parent / 'optim'}{os.sep}"
CHECKPOINT = str(Path("torch", "utils", "checkpoint.py"))
OWN = tuple(
    f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1])
)


class CallRecorder(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped there
    """A dispatch mode that records every call while it is active.

    `missed` counts calls that could not be recorded, and all calls once it is `full`, after
    `MOST_SEEN` calls or `MOST_S` seconds of its own. No exception of the recording reaches the
    program.

    A subclass of Tensor with `__tensor_flatten__`, such as DTensor, wraps others and runs an
    operator by operators on those: they are recorded, as they have the tensors of this process. The
    shape of a DTensor is that of the whole on all ranks. Operators that only infer shapes are not
    recorded.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()
        self.calls: list[ObservedCall] = []
        self.missed = 0
        self.full = False
        self.spent_s = 0.0
        self.active = False
        self._storages: dict[int, int] = {}
        self._next = itertools.count(1)

    def __enter__(self) -> CallRecorder:
        super().__enter__()
        self.active = True
        return self

    def __exit__(self, *error: Any) -> None:
        self.active = False
        super().__exit__(*error)

    def forget(self) -> None:
        """Forget which storage has which address: in a later step another may have it."""
        self._storages.clear()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call *func* and record the call."""
        named = dict(kwargs or {})
        if os.getpid() != self._process or _infers(types):  # or in a child, forked in a step
            return func(*args, **named)
        if _wraps(types):
            return NotImplemented  # the subclass runs first, then this, for the operators inside
        began = time.perf_counter()
        before = None if self.full else self._before(func, args, named)
        called = time.perf_counter()
        result = func(*args, **named)
        returned = time.perf_counter()
        self._after(func, before, result)
        self.spent_s += called - began + time.perf_counter() - returned
        return result

    def _before(
        self, func: Any, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], list[tuple[Tensor, ...]]] | None:
        """Return the arguments of a call of *func*, and the tensors in each; None if unreadable."""
        try:
            inputs = _arguments(func, args, named)
            return inputs, [self._several(value) for value in inputs]
        except Exception:  # a sparse, nested or custom tensor without a storage or a shape
            return None

    def _after(
        self, func: Any, before: tuple[list[Any], list[tuple[Tensor, ...]]] | None, result: Any
    ) -> None:
        try:
            if _name(func).startswith("profiler::"):
                return
            if len(self.calls) >= MOST_SEEN or self.spent_s >= MOST_S:
                self.full = True
            elif before is not None:
                self._write(func, *before, result)
                return
            self.missed += 1
        except Exception:
            self.missed += 1

    def _write(
        self, func: Any, inputs: Sequence[Any], tensors: Sequence[tuple[Tensor, ...]], result: Any
    ) -> None:
        old = {tensor.storage for group in tensors for tensor in group}
        call = Call(
            _name(func),
            tuple(tensors),
            tuple("" if group else _text(v) for v, group in zip(inputs, tensors, strict=True)),
            self._several(result, old),
        )
        backward = torch._C._current_autograd_node() is not None
        waits = _waits(func, call.name, inputs, result)
        again = backward and _again()
        line, optimizer = _line()
        cost = _registered(call)
        self.calls.append(ObservedCall(call, line, waits, backward, cost, again, optimizer))

    def _several(self, value: Any, old: set[int] | None = None) -> tuple[Tensor, ...]:
        """Return the tensors in *value*, an argument (*old* is None) or a result.

        A tensor of a result lies in one of the *old* storages, those of the arguments, or is given
        a new number: a freed storage's address may have been taken again.
        """
        if isinstance(value, torch.Tensor):
            return (self._tensor(value, old),)
        if isinstance(value, list | tuple):
            return tuple(self._tensor(v, old) for v in value if isinstance(v, torch.Tensor))
        return ()

    def _tensor(self, value: torch.Tensor, old: set[int] | None) -> Tensor:
        try:
            place = value.untyped_storage().data_ptr()
        except RuntimeError:  # it has none
            place = 0
        known = self._storages.get(place)
        if place and (known is None or (old is not None and known not in old)):
            known = self._storages[place] = next(self._next)
        dtype = str(value.dtype).removeprefix("torch.")
        strided = value.layout == torch.strided
        strides = tuple(value.stride()) if strided and not value.is_contiguous() else ()
        offset = value.storage_offset() if strided else None
        short = DTYPES.get(dtype, dtype)
        return Tensor(tuple(value.shape), short, strides, known or 0, offset)


class FlopCounter(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped there
    """A dispatch mode that counts the FLOPs of all calls by the formulas of torch.

    `FlopCounterMode` itself disturbs the program: it returns the first branch of a `torch.cond`
    whatever the predicate is, other higher-order operators fail under it, and it hooks every
    module.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        from torch.utils.flop_counter import flop_registry  # imports Triton

        self._formulas = flop_registry
        self.count = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call *func* and add its FLOPs; without a formula, those of the operators inside it."""
        named = dict(kwargs or {})
        if _infers(types):
            return func(*args, **named)
        if _wraps(types):
            return NotImplemented
        formula = self._formulas.get(getattr(func, "_overloadpacket", None))
        if formula is None:
            # `decompose` prefers formulas in Python, which give other results.
            parts = torch._C.DispatchKey.CompositeImplicitAutograd
            aten = isinstance(func, torch._ops.OpOverload) and func.namespace == "aten"
            if aten and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), parts):
                with self:
                    return func._op_dk(parts, *args, **named)
            return func(*args, **named)
        result = func(*args, **named)
        with contextlib.suppress(Exception):  # the formula may not know the shape
            self.count += int(formula(*args, **named, out_val=result))
        return result


def _wraps(types: Iterable[type]) -> bool:
    """Return whether one of *types* is a subclass of Tensor that says which tensors it wraps."""
    return any(hasattr(each, "__tensor_flatten__") for each in types)


def _infers(types: Iterable[type]) -> bool:
    """Return whether a call on *types* only infers shapes: by fake tensors, or in their mode."""
    if any(each.__name__ in INFERRING for each in types):
        return True
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def _registered(call: Call) -> Cost | None:
    """Return the cost that the program registered for *call*; None if its formula fails."""
    cost = COSTS.get(call.name)
    if cost is None:
        return None
    try:
        return msgspec.convert(msgspec.to_builtins(cost(call)), Cost)
    except Exception as error:
        if call.name not in FAILED:
            FAILED.add(call.name)
            print(f"gpuperf: the cost of {call.name} failed: {error!r}", file=sys.stderr)
        return None


def _arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return all arguments in the order of the schema of *func*, with its defaults."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return [*args, *kwargs.values()]
    return [
        args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        for i, argument in enumerate(schema.arguments)
    ]


def _name(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return str(schema.name if schema is not None else func)[:LONGEST]


def _text(value: Any) -> str:
    """Return an argument as text: a number, a string or a short list of them, else its type's name.

    `str` of a storage would write each of its bytes.
    """
    if value is None:
        return ""
    if type(value) is str:
        return value[:LONGEST].encode(errors="replace").decode()
    if type(value) in (list, tuple, torch.Size) and len(value) <= MOST_VALUES:
        return str([_short_value(item) for item in value]).replace("'", "")[:LONGEST]
    return _short_value(value)


def _short_value(value: Any) -> str:
    if type(value) is int and value.bit_length() > 64:
        return "int"
    return str(value)[:LONGEST] if type(value) in PLAIN else type(value).__name__


def _waits(func: Any, name: str, inputs: Sequence[Any], result: Any) -> str:
    """Return what the host waits for in a call on a GPU; empty if it does not wait."""
    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    if name in COPIES and _from_pageable(tensors, result):
        return "copy from pageable memory"
    if not any(tensor.is_cuda for tensor in tensors):
        return ""
    if name in WAITS:
        return WAITS[name]
    if name in ("aten::index", "aten::index_put_", "aten::index_put"):
        many = [v for group in inputs if isinstance(group, list | tuple) for v in group]
        boolean = any(isinstance(v, torch.Tensor) and v.dtype == torch.bool for v in many)
        return "index by a mask" if boolean else ""
    to_host = isinstance(result, torch.Tensor) and not result.is_cuda
    if to_host and name in COPIES:
        names = [argument.name for argument in func._schema.arguments]
        free = dict(zip(names, inputs, strict=True)).get("non_blocking")
        return "" if free else "copy to the host"
    return ""


def _from_pageable(tensors: Sequence[torch.Tensor], result: Any) -> bool:
    """Return whether a copy to a GPU reads memory that is not pinned: the host then waits for the
    read, also with `non_blocking=True`."""
    if not isinstance(result, torch.Tensor) or not result.is_cuda:
        return False
    return any(tensor.device.type == "cpu" and not tensor.is_pinned() for tensor in tensors)


def _line() -> tuple[str, bool]:
    """Return the program's innermost `file:line`, and whether an optimizer of torch called."""
    frame = sys._getframe(2)
    optimizer = False
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((*OWN, "<")):
            return f"{short_path(path)}:{frame.f_lineno}", optimizer
        optimizer = optimizer or path.startswith(OPTIMIZERS)
        frame = frame.f_back  # type: ignore[assignment]
    return "", optimizer


def _again() -> bool:
    """Return whether the current call repeats one of the forward pass, for a checkpoint."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.endswith(ENGINE):
            return False
        if path.endswith(CHECKPOINT):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


@cache
def short_path(path: str) -> str:
    """Return *path* relative to the working folder, if it lies inside."""
    with contextlib.suppress(ValueError, OSError):
        path = str(Path(path).relative_to(Path.cwd()))
    return path.encode(errors="replace").decode()  # a file's name may be of any bytes
