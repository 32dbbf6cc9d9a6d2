"""Change the values that a task draws: scaled, shifted, constant and extreme rows.

A submission that is right for one distribution alone is wrong for the others. Which kinds a task
allows is decided by its reference (see `examine`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gpuperf.measure.pieces import parts

NOMINAL = "nominal"


def seed_all(seed: int) -> None:
    """Seed torch's generators that tasks draw from, as `torch.manual_seed`.

    Without a GPU that one formats its callers' stack three times, which takes longer than to draw.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def _scale(values: torch.Tensor, generator: torch.Generator) -> None:
    """Scale all elements by one factor from 1/8 to 8."""
    values.mul_(2.0 ** (6 * torch.rand((), generator=generator, dtype=torch.float64).item() - 3))


def _offset(values: torch.Tensor, generator: torch.Generator) -> None:
    """Scale and shift each row of a matrix, or all of a vector."""
    shape = (*values.shape[:-1], 1) if values.dim() > 1 else (1,)
    scale = torch.rand(shape, generator=generator, dtype=torch.float64).mul_(4).sub_(2).exp2_()
    moved = torch.randn(shape, generator=generator, dtype=torch.float64).mul_(4)
    scale, moved = scale.to(values.device), moved.to(values.device)
    for part in parts(values):
        own = part if values.dim() > 1 else slice(None)
        values[part] = values[part].double() * scale[own] + moved[own]


def _constant(values: torch.Tensor, generator: torch.Generator) -> None:
    """Make every second row constant."""
    if values.dim() > 1 and len(values) > 1:
        first = values[::2].reshape(len(values[::2]), -1)[:, :1]
        values[::2] = first.reshape(-1, *[1] * (values.dim() - 1)).expand_as(values[::2]).clone()


def _extreme(values: torch.Tensor, generator: torch.Generator) -> None:
    """Scale to values beyond the overflow of exp."""
    values.mul_(64.0)


CHANGES: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "scale": _scale,
    "offset": _offset,
    "constant": _constant,
    "extreme": _extreme,
}


def change(tensors: Sequence[torch.Tensor], kind: str, seed: int) -> None:
    """Change floating-point *tensors* in place to values of *kind*."""
    if kind == NOMINAL:
        return
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.numel() and tensor.element_size() > 1:
            CHANGES[kind](tensor, generator)


def change_one(tensors: Sequence[torch.Tensor], seed: int) -> None:
    """Change one element of each floating-point tensor to another value of the same tensor, plus
    three: content that is recognised by a few elements is then recognised wrongly."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.numel() and tensor.element_size() > 1:
            index = int(torch.randint(tensor.numel(), (1,), generator=generator).item())
            place = [int(i) for i in torch.unravel_index(torch.tensor(index), tensor.shape)]
            tensor[tuple(place)] += 3.0 * (1.0 + tensor.abs().mean(dtype=torch.float64).item())
