"""Parse a model's sizes from TOML, as in `gpuperf.configs/models`.

Every size has the source that its table names. The file may be anyone's, so its size is bounded,
every key must be known, and every size must be one that a model can have.
"""

from __future__ import annotations

import re

import msgspec

from gpuperf.errors import UsageError
from gpuperf.model.text import clean, shorten
from gpuperf.model.toml import parse_toml
from gpuperf.theory.transformer.model import BadSize, Bias, Experts, Model, Norm

SCHEMA = 1
LARGEST_FILE = 50_000  # characters; gpuperf's own have 600
LONGEST = 80  # characters of a value that a message repeats
HINT = "the files in configs/models of gpuperf are examples"


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table that has no unknown keys."""


class _Experts(_Strict, frozen=True, kw_only=True):
    count: int
    active: int
    width: int
    shared_width: int = 0
    dense_layers: int = 0


class _Sizes(_Strict, frozen=True, kw_only=True):
    source: str
    layers: int
    width: int
    mlp_width: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    mlp_matrices: int = 3
    tied: bool = False
    positions: int = 0
    bias: Bias = "none"
    norm: Norm = "rms"
    head_norms: bool = False
    experts: _Experts | None = None


class _Published(_Strict, frozen=True, kw_only=True):
    source: str
    parameters: float
    active: float | None = None


class _File(_Strict, frozen=True, kw_only=True):
    schema: int
    id: str
    name: str
    sizes: _Sizes
    published: _Published | None = None


def parse_model(text: str, origin: str) -> Model:
    """Return the model in the TOML *text*; *origin* names the file in messages. Raises:
    UsageError."""
    if len(text) > LARGEST_FILE:
        raise UsageError(f"{origin} is longer than {LARGEST_FILE:,} characters", HINT)
    try:
        file = msgspec.convert(parse_toml(text), _File)
    except msgspec.ValidationError as error:
        raise UsageError(f"{origin}: {_rephrased(str(error))}", HINT) from None
    except ValueError as error:
        raise UsageError(f"{origin} is not TOML: {brief(str(error))}", HINT) from None
    if file.schema != SCHEMA:
        hint = "a file of a newer schema needs a newer gpuperf"
        raise UsageError(f"{origin}: schema is {file.schema}, not {SCHEMA}", hint)
    try:
        return _model(file)
    except BadSize as bad:
        raise UsageError(f"{origin}: {bad}", HINT) from None


def _model(file: _File) -> Model:
    sizes = {k: v for k, v in msgspec.structs.asdict(file.sizes).items() if k != "experts"}
    experts = file.sizes.experts
    return Model(
        name=clean(file.name),
        experts=Experts(**msgspec.structs.asdict(experts)) if experts else None,
        published=file.published.parameters if file.published else None,
        **{**sizes, "source": clean(file.sizes.source)},
    )


def brief(text: str) -> str:
    """Return *text* on one line, short enough for a message."""
    return shorten(clean(text), LONGEST)


def _rephrased(message: str) -> str:
    """Rephrase msgspec's ``Object missing required field `x` - at `$.y` ``."""
    mistake, _, path = message.partition(" - at `$")
    where = path.rstrip("`").lstrip(".") or "the file"
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", mistake, re.DOTALL):
        return f"{where} has the unknown key {brief(match[1])!r}"
    if match := re.fullmatch(r"Object missing required field `(.*)`", mistake):
        return f"{where} lacks the key {match[1]!r}"
    if match := re.fullmatch(r"Expected `(.*)`, got `(.*)`", mistake):
        return f"{where} should be of the type {match[1]}, and is {match[2]}"
    return f"{where} is invalid: {brief(mistake)}"
