"""Calls as a dispatch mode sees them: every operator with its inputs, its results and storages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpuperf.model.aten import DTYPES, Call, Tensor


def tensor_of(tensor: torch.Tensor) -> Tensor:
    name = str(tensor.dtype).removeprefix("torch.")
    return Tensor(
        tuple(tensor.shape),
        DTYPES.get(name, name),
        tensor.stride(),
        tensor.untyped_storage().data_ptr(),
        tensor.storage_offset(),
    )


def tensors_of(value: Any) -> tuple[Tensor, ...]:
    return tuple(tensor_of(leaf) for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def text_of(value: Any) -> str:
    """As a trace has it: nothing for a tensor and for None."""
    return "" if value is None or tensors_of(value) else str(value)


def call_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Call:
    """Arguments in the schema's order, those that were not passed by their default."""
    values = [
        args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
        for at, argument in enumerate(function._schema.arguments)
    ]
    return Call(
        str(function._schema.name) + "." + function._overloadname,
        tuple(tensors_of(value) for value in values),
        tuple(text_of(value) for value in values),
        tensors_of(result),
    )


class ObservedCall(TorchDispatchMode):
    """Keeps every call in `calls`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append(call_of(func, args, kwargs or {}, result))
        return result


def seen(run: Callable[[], object]) -> list[Call]:
    """The calls of `run()`."""
    with ObservedCall() as mode:
        run()
    return mode.calls
