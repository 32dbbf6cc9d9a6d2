"""Change the values that a task draws: scaled, shifted, constant and extreme rows.

A submission that is right for one distribution alone is wrong for the others. Which kinds a task
allows is decided by its reference (see `examine`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gpuperf.measure.pieces import parts

NOMINAL = "nominal"
TRIES = 64  # elements that are drawn for one that is not zero
SCALED = ("scale", "extreme")  # kinds that multiply all elements by one factor


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
    """Change floating-point *tensors* in place to values of *kind*.

    Zeros stay, and symmetric matrices are scaled alone, so that they stay definite: a submission
    may rely on the form of its inputs.
    """
    if kind == NOMINAL:
        return
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors:
        if _is_changeable(tensor) and not (is_symmetric(tensor) and kind not in SCALED):
            zeros = tensor == 0
            CHANGES[kind](tensor, generator)
            tensor.masked_fill_(zeros, 0)


def _is_changeable(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() and tensor.numel() and tensor.element_size() > 1)


def is_symmetric(tensor: torch.Tensor) -> bool:
    """Return whether *tensor* holds square matrices that are equal to their transposes."""
    square = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 1
    return square and bool(torch.equal(tensor, tensor.mT))


def change_one(tensors: Sequence[torch.Tensor], seed: int, far: bool = True) -> None:
    """Change one element of each floating-point tensor: content that is recognised by a few
    elements is then recognised wrongly.

    It becomes the least or the largest of its tensor, or with *far* grows by three and three times
    their mean size. Zeros and symmetric matrices stay, and so do ascending numbers, and integers:
    they may be lengths in order, masks, or the different experts of a token.
    """
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors:
        if _is_changeable(tensor) and not (is_symmetric(tensor) or _ascends(tensor)):
            _change_float(tensor, generator, far)


def _ascends(tensor: torch.Tensor) -> bool:
    flat = tensor.flatten()
    return len(flat) > 2 and bool((flat[1:] >= flat[:-1]).all())


def _change_float(tensor: torch.Tensor, generator: torch.Generator, far: bool) -> None:
    flat = tensor.flatten()
    drawn = torch.randint(len(flat), (TRIES,), generator=generator).tolist()
    index = next((i for i in drawn if flat[i] != 0), None)
    if index is None:
        return
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(index), tensor.shape))
    if far:
        tensor[place] += 3.0 * (1.0 + tensor.abs().mean(dtype=torch.float64).item())
    else:
        ends = torch.stack((flat.min(), flat.max()))
        tensor[place] = ends[(ends - flat[index]).abs().argmax()]
