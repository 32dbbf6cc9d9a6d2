"""Hold a profile of a program that generates text against the theory of its model, part by part.

The sizes of a step are read from the program: the sequences from the rows of its products, the
cached tokens from the keys of its attention. `modelparts` assigns operators to parts. One of no
other part (norms, sums, RoPE, sampling) counts to the others, whose prediction is that of kernels
which read and write the operands of norms, sums, RoPE and activations once. The time in which the
device is idle is the rest of the gap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuperf.errors import UsageError
from gpuperf.model.record import Header
from gpuperf.model.text import clean, shorten
from gpuperf.profile.breakdown import OperatorRow, Profile
from gpuperf.profile.modelparts import (
    ATTENTION,
    COPIES,
    HEAD,
    MLP,
    OTHERS,
    PADDED,
    PRODUCTS,
    PROJECTIONS,
    kernel_times,
    part_of,
    product_of,
    seconds_of,
)
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.theory.theory import Chip
from gpuperf.theory.transformer.measured import MeasuredTimes, Points
from gpuperf.theory.transformer.model import Model
from gpuperf.theory.transformer.operators import operators
from gpuperf.theory.transformer.step import Steps, formats_of, roofs_of
from gpuperf.units import format_number, format_percent, format_time

IDLE, STEP, FIRST = "idle device", "between tokens", "first token"
PRODUCTS_AND_ATTENTION = "products and attention"
OTHER_MODEL = "give --theory the config.json of the model that the program runs"
NO_TOKENS = "profile a program whose forward passes decode a token each"
ONE_BY_ONE = (
    "and those of norms, sums, RoPE and activations that are not fused, one after another, as by "
    "`theory inference --elementwise unfused"
)
LONGEST = 110  # characters of the name of a kernel
CUTLASS = re.compile(r"(?:void )?cutlass::Kernel2?<(\w+)>")
PLAIN = re.compile(r"(?:void )?([^<(]+)")


@dataclass(frozen=True)
class Part:
    """The predicted and the measured seconds of a part of a step, or of a pass, and the kernels
    that count to it by their names, those that take longest first."""

    name: str
    predicted_s: float
    measured_s: float
    kernels: tuple[str, ...] = ()

    @property
    def over_s(self) -> float:
        """The seconds beyond the prediction."""
        return self.measured_s - self.predicted_s


@dataclass(frozen=True)
class Sizes:
    """What a step of the program computes: sequences, cached tokens of each, dtype of weights."""

    batch: int
    context: float
    dtype: str


def predicted_table(
    profile: Profile, header: Header, model: Model, measured: Points | None = None
) -> Table:
    """Make the table of the parts of a decode step of *model*, and of its prompts.

    Predictions are the least times at the roofs, or those at *measured* points where these are
    given. Raises: UsageError for a program whose products are not those of *model*, for weights of
    another format than 16 bits, and for a device without roofs.
    """
    sizes = sizes_of(profile, model)
    peaks = header.ceilings or header.peaks
    if peaks is None:
        raise UsageError("no roof of this device is known", "`gpuperf calibrate` measures them")
    chip = Chip(peaks)
    formats = formats_of(chip, sizes.dtype, sizes.dtype)
    roofs = roofs_of(chip, formats)
    times = None if measured is None else MeasuredTimes(measured, roofs, formats)
    steps = Steps(model, formats, roofs, unfused=True, measured=times)
    parts = tuple(_parts(profile, model, steps, sizes))
    title = (
        f"{model.name} on {peaks.name}: a token of {sizes.batch} sequences after "
        f"{sizes.context:,.0f} cached ones each, {sizes.dtype}"
    )
    remarks = (
        "roofs: measured by `gpuperf calibrate`" if header.ceilings else "roofs: of the data sheet",
        *_times_remarks(steps, sizes),
        *_remarks(profile),
        *_names_remarks(parts),
        *(times.remarks(peaks) if times else ()),
        *_beyond(profile, steps, sizes),
        *model.doubts,
    )
    return _table([*parts, *_prompts(profile, steps)], sizes, title, remarks)


def _times_remarks(steps: Steps, sizes: Sizes) -> Iterator[str]:
    """Yield what the predictions are, and whether the measured times are of other operators."""
    listed = operators(steps, sizes.batch, sizes.batch * sizes.context)
    if known := [op.name for op in listed if op.origin != "roofs"]:
        yield (
            f"predicted: measured times of {', '.join(known)}, and the least times of other "
            f"products and attention, {ONE_BY_ONE} --measured`"
        )
        return
    yield f"predicted: the least times of products and attention, {ONE_BY_ONE}`"
    if steps.measured is not None:
        yield f"no measured time is of {sizes.dtype} weights or of a {sizes.dtype} cache"


def _remarks(profile: Profile) -> Iterator[str]:
    yield "of the gap: the part's share of what a step takes beyond its prediction"
    yield "cached tokens are the keys that attention reads, with the empty places of a static cache"
    steps = profile.region.program.steps if profile.region.program else {}
    if steps.get("plain", 0) > steps.get("accounting", 0) > 0:
        yield (
            f"cached tokens are those of {steps['accounting']} steps, and the time between tokens "
            f"is the mean of {steps['plain']} others, which may have more or fewer"
        )


def _names_remarks(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the kernels that count to a part by their names."""
    for part in parts:
        if part.kernels and part.name != OTHERS:
            names = dict.fromkeys(_label(name) for name in part.kernels)
            yield f"{part.name}, by the names of kernels: {', '.join(names)}"
    if any(part.name == PRODUCTS_AND_ATTENTION for part in parts):
        yield (
            "no kernel is attention by its name: its kernels are among the products, or fused and "
            f"among the {OTHERS}"
        )


def _label(name: str) -> str:
    """Return the name of a kernel without the arguments of its template and of its call."""
    own = CUTLASS.match(name) or PLAIN.match(name)
    return shorten(clean(own[1] if own else name), LONGEST)


def _beyond(profile: Profile, steps: Steps, sizes: Sizes) -> Iterator[str]:
    """Yield which sizes the measured points do not surround."""
    program = profile.region.program
    listed = list(operators(steps, sizes.batch, sizes.batch * sizes.context))
    for prompts in program.prompts if program else ():
        listed += operators(steps, chunks=((prompts.tokens, 0),) * prompts.sequences)
    if beyond := list(dict.fromkeys(op.beyond for op in listed if op.beyond)):
        more = f" and {len(beyond) - 3} more" if len(beyond) > 3 else ""
        yield (
            "extrapolated beyond the measured sizes, with the ratio of the nearest: "
            f"{'; '.join(beyond[:3])}{more}"
        )


def sizes_of(profile: Profile, model: Model) -> Sizes:
    """Read the sizes of a step from its operators. Raises: UsageError."""
    rows: Counter[tuple[int, str]] = Counter()
    weights: Counter[str] = Counter()
    keys: list[tuple[float, int]] = []
    for row in profile.operators:
        operator = row.record.operator
        if operator is None:
            continue
        if operator.backward:
            raise UsageError("the program trains, and the theory is of inference", NO_TOKENS)
        shape, part = product_of(row), part_of(row, model)
        if shape is not None and part != OTHERS:
            weights[part] += round(operator.count * shape[1] * shape[2])
        if shape is not None and part in (PROJECTIONS, MLP):
            rows[shape[0], operator.tensors[1].dtype] += max(1, round(operator.count))
        if part == ATTENTION and (lengths := _lengths(row, model)):
            if lengths[0] > 1:
                raise UsageError(
                    f"a step attends from {lengths[0]:,} tokens, and a decode step from one",
                    NO_TOKENS,
                )
            keys.append((operator.count, lengths[1]))
    if not rows:
        raise UsageError(
            f"no product of the program has the shape of a matrix of {model.name}", OTHER_MODEL
        )
    _refuse_other(model, weights)
    (batch, dtype), _ = rows.most_common(1)[0]
    if dtype not in ("bf16", "fp16"):
        raise UsageError(
            f"the theory has weights of 16 bits and fewer, and the program's are {dtype}",
            "load the model in bf16",
        )
    calls = sum(count for count, _ in keys)
    context = sum(count * length for count, length in keys) / calls if calls else 0.0
    return Sizes(batch, max(0.0, context - 1), dtype)


def _refuse_other(model: Model, weights: Mapping[str, int]) -> None:
    """Raise a UsageError where a step multiplies by other *weights* than those of *model*.

    How many experts are read depends on the tokens, so that they are not counted.
    """
    known = {PROJECTIONS: "attention", MLP: "mlp", HEAD: "head"}
    for part, of in known.items():
        linears = [linear for linear in model.linears if linear.of == of]
        if any(linear.experts > 1 for linear in linears):
            continue
        own = sum(linear.parameters for linear in linears)
        if not own / PADDED <= weights[part] <= own * PADDED:
            raise UsageError(
                f"a step multiplies {weights[part]:,} weights of the {part}, and {model.name} has "
                f"{own:,}",
                OTHER_MODEL,
            )


def _lengths(row: OperatorRow, model: Model) -> tuple[int, int] | None:
    """Return the queries and keys of a call of attention; None if its shapes do not show them."""
    operator = row.record.operator
    assert operator is not None
    shapes = [tensor.shape for tensor in operator.tensors]
    if operator.kind == "attention" and len(shapes) > 1 and len(shapes[0]) == len(shapes[1]) == 4:
        _, heads, queries, _ = shapes[0]
        shared = model.heads // model.kv_heads
        # Hugging Face packs the heads that share keys as further queries of one head.
        packed = heads == model.kv_heads and queries % shared == 0
        return queries // shared if packed else queries, shapes[1][2]
    if row.record.case.op == "aten::bmm" and len(shapes) == 2 and shapes[0][-1] == model.head_width:
        return shapes[0][1], shapes[1][-1]
    return None


def _parts(profile: Profile, model: Model, steps: Steps, sizes: Sizes) -> Iterator[Part]:
    """Yield the parts of a decode step, and the step."""
    predicted = _predicted(model, steps, sizes)
    keys = sizes.batch * model.heads * model.head_width * (sizes.context + 1)
    measured: Counter[str] = Counter()
    times: dict[str, Counter[str]] = {}
    for row in profile.operators:
        measured.update(seconds_of(row, model, keys))
        for (part, kernel), seconds in kernel_times(row, keys).items():
            times.setdefault(part, Counter()).update({kernel: seconds})
    for name, members in _rows_of(measured).items():
        own = sum((times.get(member, Counter()) for member in members), Counter[str]())
        yield Part(
            name,
            sum(predicted[member] for member in members),
            sum(measured[member] for member in members),
            tuple(kernel for kernel, _ in own.most_common()),
        )
    yield Part(IDLE, 0.0, profile.idle_s)
    yield Part(STEP, sum(predicted.values()), profile.step_s)


def _predicted(model: Model, steps: Steps, sizes: Sizes) -> Counter[str]:
    """Return the predicted seconds of a decode step by part."""
    owners = {"attention": PROJECTIONS, "mlp": MLP, "head": HEAD}
    names = {linear.name: owners[linear.of] for linear in model.linears}
    names["elementwise"] = OTHERS
    predicted: Counter[str] = Counter()
    for each in operators(steps, sizes.batch, sizes.batch * sizes.context):
        predicted[names.get(each.name, ATTENTION)] += each.seconds  # type: ignore[assignment]
    return predicted


def _rows_of(measured: Mapping[str, float]) -> Mapping[str, tuple[str, ...]]:
    """Return the parts that each row of the table adds up: products whose parts are unknown are
    one row, with attention if no kernel is known to be of it."""
    rows: dict[str, tuple[str, ...]]
    rows = {name: (name,) for name in (PROJECTIONS, ATTENTION, MLP, HEAD)}
    if measured.get(PRODUCTS):
        products = (PRODUCTS, PROJECTIONS, MLP, HEAD)
        rows = {PRODUCTS: products, ATTENTION: (ATTENTION,)}
        if not measured.get(ATTENTION):
            rows = {PRODUCTS_AND_ATTENTION: (*products, ATTENTION)}
    if measured.get(COPIES):
        rows[COPIES] = (COPIES,)
    return {**rows, OTHERS: (OTHERS,)}


def _prompts(profile: Profile, steps: Steps) -> Iterator[Part]:
    """Yield the passes over prompts that were timed, all sequences together."""
    program = profile.region.program
    for prompts in sorted(program.prompts if program else (), key=lambda each: each.tokens):
        name = f"{FIRST} of {prompts.sequences} × {prompts.tokens:,}"
        predicted_s = steps.pass_s(chunks=((prompts.tokens, 0),) * prompts.sequences)
        yield Part(name, predicted_s, prompts.usual_s)


def _table(parts: Sequence[Part], sizes: Sizes, title: str, remarks: Sequence[str]) -> Table:
    whole = next(part for part in parts if part.name == STEP)
    columns = (
        Column("part", left=True, identity=True),
        Column("predicted"),
        Column("measured"),
        Column("ratio"),
        Column("of the gap"),
    )
    cells = [_cells(part, whole.over_s) for part in parts]
    return Table(
        fill(columns, cells),
        title=title,
        notes=notes_of(*remarks),
        rows=[_row(part, sizes) for part in parts],
    )


def _cells(part: Part, gap_s: float) -> tuple[str, ...]:
    inside = not part.name.startswith(FIRST) and part.name != STEP
    share = format_percent(part.over_s / gap_s) if inside and gap_s > 0 else ""
    ratio = format_number(part.measured_s / part.predicted_s) if part.predicted_s else ""
    seconds = (format_time(s) if s else "–" for s in (part.predicted_s, part.measured_s))
    return (part.name, *seconds, ratio, share)


def _row(part: Part, sizes: Sizes) -> Mapping[str, object]:
    return {
        "part": part.name,
        "batch": sizes.batch,
        "context": sizes.context,
        "predicted_s": part.predicted_s,
        "measured_s": part.measured_s,
        "kernels": list(part.kernels),
    }
