"""Run a reference in float64 though it casts to shorter dtypes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

CAST = torch.ops.aten._to_copy.default


class WideCasts(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped there
    """Keeps float64 where a reference casts to another floating-point dtype. A cast to a dtype of
    two bytes or one rounds the values, and what follows is computed in float64 again."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        dtype = named.get("dtype")
        if func is CAST and args[0].dtype == torch.float64 and dtype is not None:
            if dtype.is_floating_point and dtype.itemsize < 4:
                args = (args[0].to(dtype).double(), *args[1:])
            if dtype.is_floating_point:
                named["dtype"] = torch.float64
        return func(*args, **named)
