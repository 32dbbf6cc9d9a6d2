"""Read a model's sizes from the `config.json` of a Hugging Face checkpoint.

The names of the fields differ between families; `NAMES` lists them. What the sizes cannot express,
such as sliding windows, becomes a doubt of the model; an architecture whose cache has another shape
is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.model.text import clean
from gpuperf.theory.transformer.file import brief
from gpuperf.theory.transformer.model import MOST, BadSize, Bias, Experts, Model

NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_width": ("head_dim",),
    "mlp_width": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocabulary": ("vocab_size",),
    "positions": ("n_positions", "max_position_embeddings"),
    "count": ("num_experts", "num_local_experts", "n_routed_experts"),
    "active": ("num_experts_per_tok", "num_experts_per_token"),
    "expert_width": ("moe_intermediate_size", "intermediate_size"),
    "shared_width": ("shared_expert_intermediate_size",),
}
# Families with an MLP of two matrices, and those with learned positions, biases in every layer,
# norms of queries and keys, and a head apart from the embedding where the file does not say.
CODERS = ("codegen", "gpt_bigcode", "starcoder2")
PLAIN = (*CODERS, "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "falcon", "mpt", "phi")
LEARNED = ("gpt2", "gpt_bigcode", "gpt_neo", "opt")
BIASED = (*LEARNED, "gpt_neox", "bloom", "phi", "starcoder2")
HEAD_NORMS = ("qwen3", "qwen3_moe", "gemma3_text")
UNTIED = ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi3", "phi")
GATED = (*UNTIED[:-1], "gemma", "gemma2", "gemma3_text", "olmo", "olmo2", "granite", "smollm3")
OTHER = ("mamba", "rwkv", "rwkv5", "jamba", "falcon_mamba", "recurrent_gemma", "xlstm", "bamba")
HINT = "give the config.json of a decoder-only transformer, or a TOML as in configs/models"


def parse_config(text: str, origin: str) -> Model:
    """Return the model of the JSON *text*; *origin* names the file in messages.

    Raises: UsageError for text that is not JSON, for a missing or absurd field, and for an
    architecture that is not a decoder with one cache of keys and values.
    """
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{origin} is not JSON: {brief(str(error))}", HINT) from None
    if isinstance(config, dict) and isinstance(config.get("text_config"), dict):
        config = config["text_config"]  # of a model that also reads images
    if not isinstance(config, dict):
        raise UsageError(f"{origin} holds no JSON object", HINT)
    reader = Reader(config, origin)
    reader.refuse_others()
    try:
        return _model(reader)
    except BadSize as bad:
        raise UsageError(f"{origin}: {reader.name_of(bad.key)} {bad.mistake}", HINT) from None


class Reader:
    """The fields of a configuration, each checked as it is read."""

    def __init__(self, config: Mapping[str, Any], origin: str) -> None:
        self.config, self.origin = config, origin
        family = config.get("model_type")
        self.family = family if isinstance(family, str) else ""

    def name_of(self, key: str) -> str:
        """Return the name of the size *key* in this file."""
        names = NAMES.get(key, (key,))
        return next((name for name in names if self.config.get(name) is not None), names[0])

    def size(self, key: str, default: int | None = None) -> int:
        """Return the size *key*. Raises: UsageError if it is absurd, or missing without a
        *default*."""
        name = self.name_of(key)
        value = self.config.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            others = ", ".join(NAMES[key][1:])
            known = f" (or {others})" if others else ""
            raise UsageError(f"{self.origin} lacks the field {name}{known}", HINT)
        least = 0 if key in ("positions", "shared_width", "count") else 1
        if type(value) is not int or not least <= value <= MOST[key]:
            wanted = f"a whole number from {least} to {MOST[key]}"
            shown = (
                brief(repr(value)) if isinstance(value, int | float | str) else "of another type"
            )
            raise UsageError(f"{self.origin}: {name} is {shown}, not {wanted}", HINT)
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return the true or false of *name*. Raises: UsageError for another value."""
        value = self.config.get(name, default)
        if not isinstance(value, bool):
            raise UsageError(f"{self.origin}: {name} is not true or false", HINT)
        return value

    def refuse_others(self) -> None:
        """Raise a UsageError for an architecture with another cache, or with none."""
        reason = ""
        if self.config.get("is_encoder_decoder") is True:
            reason = "an encoder and a decoder"
        elif self.config.get("kv_lora_rank") is not None:
            reason = "latent attention, whose cache has another shape"
        elif self.family in OTHER or "linear_attention" in self._layer_types():
            reason = "layers without a cache of keys and values"
        if reason:
            family = brief(self.family) or "the model"
            raise UsageError(f"{self.origin}: {family} has {reason}", HINT)

    def _layer_types(self) -> tuple[str, ...]:
        types = self.config.get("layer_types")
        texts = types if isinstance(types, list) else []
        return tuple(text for text in texts if isinstance(text, str))

    def doubts(self) -> tuple[str, ...]:
        """Return sentences about what the sizes leave out."""
        doubts = []
        windows = self.config.get("sliding_window") is not None
        windows = windows and self.config.get("use_sliding_window") is not False
        if windows or "sliding_attention" in self._layer_types():
            doubts.append(
                "the model attends in sliding windows: its cache and attention are counted whole, "
                "and are less beyond a window"
            )
        if self.family not in (*GATED, *PLAIN):
            family = clean(self.family)[:40] or "unnamed"
            doubts.append(
                f"the family {family!r} is unknown: it is counted like Llama, with a gated MLP"
            )
        if self.config.get("quantization_config") is not None:
            doubts.append("the checkpoint is quantized: --weights sets the format that is counted")
        return tuple(doubts)


def _model(reader: Reader) -> Model:
    width, heads = reader.size("width"), reader.size("heads")
    plain = reader.family in PLAIN
    learned = reader.family in LEARNED
    if reader.config.get("head_dim") is None and width % heads:
        message = f"{width} of {reader.name_of('width')} is not a multiple of {heads} heads"
        raise UsageError(f"{reader.origin}: {message}", f"give head_dim; {HINT}")
    layers, experts = reader.size("layers"), None
    if reader.size("count", 0) > 1:
        experts = _experts(reader, layers)
    default_mlp = 4 * width if plain else experts.width if experts else None
    alone = 1 if reader.config.get("multi_query") is True else heads
    return Model(
        name=clean(str(reader.config.get("_name_or_path") or reader.family or "model"))[:60],
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=reader.size("kv_heads", alone),
        head_width=reader.size("head_width", width // heads),
        mlp_width=reader.size("mlp_width", default_mlp),
        vocabulary=reader.size("vocabulary"),
        mlp_matrices=2 if plain else 3,
        tied=reader.flag("tie_word_embeddings", reader.family not in UNTIED),
        positions=reader.size("positions") if learned else 0,
        bias=_bias(reader),
        norm="layer" if plain else "rms",
        head_norms=reader.family in HEAD_NORMS,
        experts=experts,
        source=reader.origin,
        doubts=reader.doubts(),
    )


def _bias(reader: Reader) -> Bias:
    if reader.family in BIASED:
        return "all"
    both = reader.family in ("qwen2", "qwen2_moe") or reader.flag("attention_bias", False)
    return "qkv" if both else "none"


def _experts(reader: Reader, layers: int) -> Experts:
    width = reader.size("expert_width")
    count = reader.config.get("n_shared_experts")
    shared = count * width if type(count) is int and 0 < count < 2**10 else 0
    return Experts(
        reader.size("count"),
        reader.size("active"),
        width,
        reader.size("shared_width", shared),
        _dense_layers(reader, layers),
    )


def _dense_layers(reader: Reader, layers: int) -> int:
    """Return how many layers have one MLP for all tokens."""
    step, first = (
        reader.config.get("decoder_sparse_step"),
        reader.config.get("first_k_dense_replace"),
    )
    only = reader.config.get("mlp_only_layers")
    step = step if type(step) is int and step > 0 else 1
    first = first if type(first) is int else 0
    named = {index for index in only if type(index) is int} if isinstance(only, list) else set()
    return sum(i < first or i in named or (i + 1) % step != 0 for i in range(layers))
