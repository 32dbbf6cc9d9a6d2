"""Hold a profile of a program that generates text against the theory of its model, part by part.

The sizes of a step are read from the program: the sequences from the rows of its products, the
cached tokens from the keys of its attention. A product belongs to the part of the model that has a
matrix of its shape; what belongs to none (norms, sums, RoPE, sampling) and the time in which the
device is idle are the rest of the gap.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuperf.errors import UsageError
from gpuperf.model.record import Header
from gpuperf.profile.breakdown import OperatorRow, Profile
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.theory.theory import Chip
from gpuperf.theory.transformer.model import Model
from gpuperf.theory.transformer.operators import operators
from gpuperf.theory.transformer.step import Steps, formats_of, roofs_of
from gpuperf.units import format_number, format_percent, format_time

PROJECTIONS, ATTENTION, MLP, HEAD = "attention projections", "attention", "MLP", "head"
OTHERS, IDLE, STEP = "norms, sums and others", "idle device", "between tokens"
FIRST = "first token"
OTHER_MODEL = "give --theory the config.json of the model that the program runs"
NO_TOKENS = "profile a program whose forward passes decode a token each"
PADDED = 1.1  # a vocabulary is padded up to this many times its size
SOFTMAX = ("aten::_softmax", "aten::softmax")
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Part:
    """The predicted and the measured seconds of a part of a step, or of a pass."""

    name: str
    predicted_s: float
    measured_s: float

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


def predicted_table(profile: Profile, header: Header, model: Model) -> Table:
    """Make the table of the parts of a decode step of *model*, and of its prompts.

    Raises: UsageError for a program whose products are not those of *model*, for weights of another
    format than 16 bits, and for a device without roofs.
    """
    sizes = sizes_of(profile, model)
    peaks = header.ceilings or header.peaks
    if peaks is None:
        raise UsageError("no roof of this device is known", "`gpuperf calibrate` measures them")
    chip = Chip(peaks)
    formats = formats_of(chip, sizes.dtype, sizes.dtype)
    steps = Steps(model, formats, roofs_of(chip, formats))
    parts = [*_parts(profile, model, steps, sizes), *_prompts(profile, steps)]
    title = (
        f"{model.name} on {peaks.name}: a token of {sizes.batch} sequences after "
        f"{sizes.context:,.0f} cached ones each, {sizes.dtype}"
    )
    return _table(parts, sizes, title, (*_remarks(profile), *model.doubts))


def _remarks(profile: Profile) -> Iterator[str]:
    yield "predicted: the least time at the roofs of products and attention, one after another"
    yield "of the gap: the part's share of what a step takes beyond its prediction"
    steps = profile.region.program.steps if profile.region.program else {}
    if steps.get("plain", 0) > steps.get("accounting", 0) > 0:
        yield (
            f"cached tokens are those of {steps['accounting']} steps, and the time between tokens "
            f"is the mean of {steps['plain']} others, which may have more or fewer"
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


def part_of(row: OperatorRow, model: Model) -> str:
    """Return the part of *model* to which an operator belongs, by its shapes."""
    operator, name = row.record.operator, row.record.case.op
    if operator is None:
        return OTHERS
    if operator.kind == "attention" or name in SOFTMAX:
        return ATTENTION
    shape = product_of(row)
    if shape is None:
        return ATTENTION if name == "aten::bmm" else OTHERS
    _, inputs, outputs = shape
    width, mlp = model.width, model.mlp_width
    queries, keys = model.heads * model.head_width, model.kv_heads * model.head_width
    if inputs == width and model.vocabulary <= outputs <= PADDED * model.vocabulary:
        return HEAD
    known = {
        # Of equal shapes the last counts: several products in one come first.
        **dict.fromkeys(((width, 2 * keys), (width, queries + 2 * keys)), PROJECTIONS),
        **dict.fromkeys(((width, mlp), (width, 2 * mlp), (mlp, width)), MLP),
        **dict.fromkeys(((width, queries), (width, keys), (queries, width)), PROJECTIONS),
    }
    return known.get((inputs, outputs), OTHERS)


def product_of(row: OperatorRow) -> Shape | None:
    """Return rows, inputs and outputs of a product with a matrix; None for other operators."""
    operator = row.record.operator
    if operator is None or operator.kind != "matmul":
        return None
    shapes = [tensor.shape for tensor in operator.tensors if len(tensor.shape) > 1]
    if len(shapes) < 2 or len(shapes[1]) != 2:
        return None
    *rows, inputs = shapes[0]
    # Inference mode shows `linear` whole, whose weights are (outputs, inputs).
    of_linear = row.record.case.op == "aten::linear"
    outputs, own = shapes[1] if of_linear else reversed(shapes[1])
    return (math.prod(rows), inputs, outputs) if own == inputs else None


def _lengths(row: OperatorRow, model: Model) -> tuple[int, int] | None:
    """Return the queries and keys of a call of attention; None if its shapes do not show them."""
    operator = row.record.operator
    assert operator is not None
    shapes = [tensor.shape for tensor in operator.tensors]
    if operator.kind == "attention" and len(shapes) > 1 and len(shapes[0]) == len(shapes[1]) == 4:
        return shapes[0][2], shapes[1][2]
    if row.record.case.op == "aten::bmm" and len(shapes) == 2 and shapes[0][-1] == model.head_width:
        return shapes[0][1], shapes[1][-1]
    return None


def _parts(profile: Profile, model: Model, steps: Steps, sizes: Sizes) -> Iterator[Part]:
    """Yield the parts of a decode step, and the step."""
    listed = operators(steps, sizes.batch, sizes.batch * sizes.context)
    names = {linear.name: linear.of for linear in model.linears}
    owners = {"attention": PROJECTIONS, "mlp": MLP, "head": HEAD}
    predicted: Counter[str] = Counter()
    for each in listed:
        of = names.get(each.name)
        predicted[owners[of] if of else ATTENTION] += each.seconds  # type: ignore[assignment]
    measured: Counter[str] = Counter()
    for row in profile.operators:
        measured[part_of(row, model)] += row.seconds  # type: ignore[assignment]
    for name in (PROJECTIONS, ATTENTION, MLP, HEAD, OTHERS):
        yield Part(name, predicted[name], measured[name])
    yield Part(IDLE, 0.0, profile.idle_s)
    yield Part(STEP, sum(predicted.values()), profile.step_s)


def _prompts(profile: Profile, steps: Steps) -> Iterator[Part]:
    """Yield the passes over prompts that were timed, all sequences together."""
    program = profile.region.program
    for prompts in sorted(program.prompts if program else (), key=lambda each: each.tokens):
        name = f"{FIRST} of {prompts.sequences} × {prompts.tokens:,}"
        predicted_s = steps.pass_s(chunks=((prompts.tokens, 0),) * prompts.sequences)
        yield Part(name, predicted_s, statistics.median(prompts.seconds))


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
    }
