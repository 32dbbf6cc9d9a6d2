"""Define a decoder-only transformer by its sizes, and count its parameters.

A linear layer multiplies 2 FLOPs a parameter and token. The rows of an embedding are looked up, so
they occupy memory and multiply nothing; the head that turns the last state into logits multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Bias = Literal["none", "qkv", "all"]
Norm = Literal["rms", "layer"]
# The most of each size: ten or more times that of any published model. A larger one is a mistake.
MOST: Mapping[str, int] = {
    "layers": 4096,
    "width": 2**18,
    "heads": 4096,
    "kv_heads": 4096,
    "head_width": 2**14,
    "mlp_width": 2**20,
    "vocabulary": 2**24,
    "positions": 2**24,
    "count": 2**16,
    "active": 2**16,
    "expert_width": 2**20,
    "shared_width": 2**20,
    "dense_layers": 4096,
}


class BadSize(ValueError):
    """A size that no model has: `key` names it, and the message says what is wrong with it."""

    def __init__(self, key: str, mistake: str) -> None:
        super().__init__(f"{key} {mistake}")
        self.key, self.mistake = key, mistake


@dataclass(frozen=True)
class Linear:
    """Linear layers of `inputs` and `outputs` that occur `times` in a model.

    With `experts`, each of them is that many layers, of which a token uses `active`. `of` says what
    it belongs to.
    """

    name: str
    inputs: int
    outputs: int
    times: int
    of: Literal["attention", "mlp", "head"]
    experts: int = 1
    active: int = 1

    @property
    def parameters(self) -> int:
        """The weights of all of them."""
        return self.times * self.experts * self.inputs * self.outputs

    def flops(self, tokens: int) -> int:
        """Return the FLOPs of a pass over *tokens* tokens."""
        return 2 * tokens * self.times * self.active * self.inputs * self.outputs

    def weights_read(self, tokens: int) -> float:
        """Return the weights that a pass over *tokens* tokens reads once.

        If each token chooses its experts with equal probability, one expert is chosen by none of
        them with the probability (1 − active/experts)^tokens.
        """
        chosen = 1 - (1 - self.active / self.experts) ** tokens if self.experts > 1 else 1
        return self.parameters * chosen


@dataclass(frozen=True)
class Experts:
    """The experts of a layer: `count` gated MLPs of `width`, of which a token uses `active`.

    A shared MLP of `shared_width` serves every token. The model's first `dense_layers` layers have
    a single MLP instead.
    """

    count: int
    active: int
    width: int
    shared_width: int = 0
    dense_layers: int = 0


@dataclass(frozen=True)
class Model:
    """The sizes of a decoder-only transformer with attention and an MLP in each layer.

    `kv_heads` heads of keys and values serve `heads` heads of queries, each of `head_width`. The
    MLP has `mlp_matrices` matrices: 2 plain, 3 gated. `tied` embeddings are the weights of the
    head; `positions` is the number of learned positions. `doubts` are sentences about what the
    sizes leave out. Raises: BadSize.
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    mlp_width: int
    vocabulary: int
    mlp_matrices: int = 3
    tied: bool = False
    positions: int = 0
    bias: Bias = "none"
    norm: Norm = "rms"
    head_norms: bool = False
    experts: Experts | None = None
    source: str = ""
    published: float | None = None
    doubts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        keys = ("layers", "width", "heads", "kv_heads", "head_width", "mlp_width", "vocabulary")
        for key in keys:
            _check(key, getattr(self, key))
        _check("positions", self.positions, least=0)
        if self.mlp_matrices not in (2, 3):
            raise BadSize("mlp_matrices", f"is {self.mlp_matrices}, not 2 (plain) or 3 (gated)")
        if self.heads % self.kv_heads:
            raise BadSize("heads", f"is {self.heads}, no multiple of the {self.kv_heads} kv_heads")
        if self.experts is not None:
            _check_experts(self.experts, self.layers)

    @property
    def group(self) -> int:
        """The heads of queries that share a head of keys and values."""
        return self.heads // self.kv_heads

    @property
    def kv_elements(self) -> int:
        """The elements of keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_width

    def attention_flops(self, pairs: float) -> float:
        """Return the FLOPs of q·kᵀ and p·v over *pairs* pairs of a query and a key, all layers."""
        return 4 * self.layers * self.heads * self.head_width * pairs

    @cached_property
    def linears(self) -> tuple[Linear, ...]:
        """The linear layers of a pass in their order; the head is the last."""
        queries, both = self.heads * self.head_width, 2 * self.kv_heads * self.head_width
        return (
            Linear("q, k, v", self.width, queries + both, self.layers, "attention"),
            Linear("attention output", queries, self.width, self.layers, "attention"),
            *self._mlps(),
            Linear("head", self.width, self.vocabulary, 1, "head"),
        )

    def _mlps(self) -> tuple[Linear, ...]:
        dense = self.layers if self.experts is None else self.experts.dense_layers
        listed = self._mlp("", self.mlp_width, dense) if dense else ()
        if (e := self.experts) is None:
            return listed
        sparse = self.layers - e.dense_layers
        listed = (*listed, Linear("router", self.width, e.count, sparse, "mlp"))
        listed = (*listed, *self._mlp("experts ", e.width, sparse, e.count, e.active))
        return (
            (*listed, *self._mlp("shared ", e.shared_width, sparse)) if e.shared_width else listed
        )

    def _mlp(
        self, prefix: str, width: int, times: int, experts: int = 1, active: int = 1
    ) -> tuple[Linear, ...]:
        gated = self.mlp_matrices == 3
        into = f"{prefix}gate, up" if gated else f"{prefix}up"
        count = (experts, active)
        return (
            Linear(into, self.width, (self.mlp_matrices - 1) * width, times, "mlp", *count),
            Linear(f"{prefix}down", width, self.width, times, "mlp", *count),
        )

    @property
    def multiplied(self) -> int:
        """The parameters of all linear layers, the head included."""
        return sum(linear.parameters for linear in self.linears)

    @property
    def active(self) -> int:
        """The parameters that one token is multiplied by."""
        return sum(linear.flops(1) // 2 for linear in self.linears)

    @property
    def parameters(self) -> int:
        """All parameters: linear layers, embeddings, positions, biases and norms."""
        tied = self.vocabulary * self.width if self.tied else 0
        return self.multiplied - tied + self.looked_up + self.small

    @property
    def looked_up(self) -> int:
        """The parameters of the embedding and of learned positions."""
        return (self.vocabulary + self.positions) * self.width

    @property
    def small(self) -> int:
        """The parameters of biases and norms."""
        each = 2 if self.norm == "layer" else 1
        norms = (2 * self.layers + 1) * each * self.width
        norms += 2 * self.layers * self.head_width if self.head_norms else 0
        if self.bias == "none":
            return norms
        wanted = self.linears[:1] if self.bias == "qkv" else self.linears[:-1]
        return norms + sum(linear.times * linear.experts * linear.outputs for linear in wanted)


def _check(key: str, value: int, least: int = 1) -> None:
    most = MOST[key]
    if not least <= value <= most:
        raise BadSize(key, f"is {value}, not from {least} to {most}")


def _check_experts(experts: Experts, layers: int) -> None:
    _check("count", experts.count)
    _check("active", experts.active)
    _check("expert_width", experts.width)
    _check("shared_width", experts.shared_width, least=0)
    if experts.active > experts.count:
        raise BadSize("active", f"is {experts.active}, more than the {experts.count} experts")
    if not 0 <= experts.dense_layers < layers:
        raise BadSize("dense_layers", f"is {experts.dense_layers}, not from 0 to {layers - 1}")
