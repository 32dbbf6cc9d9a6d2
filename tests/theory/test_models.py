"""Hold the models that gpuperf has against published counts, and read others from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuperf.errors import UsageError
from gpuperf.theory.transformer.config_json import parse_config
from gpuperf.theory.transformer.file import parse_model
from gpuperf.theory.transformer.find import find_model, model_names
from gpuperf.theory.transformer.model import Model

# Parameters in billions as printed (llama-bench, model cards, papers), typed apart from the files.
PRINTED = {
    "gpt2": "0.124439808",
    "gpt2-medium": "0.355",
    "gpt2-large": "0.774",
    "gpt2-xl": "1.558",
    "llama-2-7b": "6.74",
    "llama-2-13b": "13.02",
    "llama-2-70b": "68.98",
    "llama-3-8b": "8.03",
    "llama-3-70b": "70.55",
    "llama-3.1-405b": "406",
    "llama-3.2-1b": "1.24",
    "llama-3.2-3b": "3.21",
    "qwen3-0.6b": "0.6",
    "qwen3-1.7b": "1.7",
    "qwen3-4b": "4.02",
    "qwen3-8b": "8.19",
    "qwen3-14b": "14.8",
    "qwen3-32b": "32.76",
    "qwen3-30b-a3b": "30.53",
    "qwen3-235b-a22b": "235",
    "mixtral-8x7b": "46.70",
}
ACTIVE = {"qwen3-30b-a3b": 3.3, "qwen3-235b-a22b": 22, "mixtral-8x7b": 12.9}  # of a token
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
QWEN = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "head_dim": 128,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 151936,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
}


def billions(text: str) -> Any:
    return pytest.approx(float(text), abs=0.5000001 * 10 ** -len(text.partition(".")[2]))


def read(config: object) -> Model:
    return parse_config(json.dumps(config), "config.json")


@pytest.mark.parametrize("name", model_names())
def test_a_model_has_its_published_parameters(name: str) -> None:
    model = find_model(name)
    assert model.parameters / 1e9 == billions(PRINTED[name])
    assert model.parameters == pytest.approx(model.published, rel=0.013)
    assert model.source
    if name in ACTIVE:
        embedding = model.vocabulary * model.width
        assert (model.active + embedding) / 1e9 == pytest.approx(ACTIVE[name], rel=0.02)


def test_the_head_of_the_notes_is_counted_once_and_the_embedding_never() -> None:
    for name, layers, head in (
        ("gpt2", 0.085, 0.039),
        ("gpt2-medium", 0.302, 0.051),
        ("llama-2-7b", 6.476, 0.131),
        ("llama-3-8b", 6.979, 0.525),
        ("llama-3-70b", 68.45, 1.05),
    ):
        model = find_model(name)
        assert (model.multiplied - model.linears[-1].parameters) / 1e9 == pytest.approx(
            layers, 0.01
        )
        assert model.linears[-1].parameters / 1e9 == pytest.approx(head, rel=0.015)


def test_a_config_has_the_sizes_of_the_model_of_that_name() -> None:
    ours = find_model("llama-3-8b")
    assert read(LLAMA).linears == ours.linears
    assert read(LLAMA).parameters == ours.parameters == 8_030_261_248
    assert read({"text_config": LLAMA}).linears == ours.linears
    moe = read(QWEN)
    assert moe.parameters == find_model("qwen3-30b-a3b").parameters == 30_532_122_624
    assert moe.linears == find_model("qwen3-30b-a3b").linears
    gpt2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024}
    assert read({**gpt2, "vocab_size": 50257, "n_inner": None}).parameters == 124_439_808
    mixtral = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    assert read({**mixtral, "vocab_size": 32000}).parameters == 46_702_792_704
    first_dense = read({**QWEN, "first_k_dense_replace": 3, "n_shared_experts": 1})
    assert first_dense.experts is not None and first_dense.experts.dense_layers == 3
    assert [linear.times for linear in first_dense.linears[2:5]] == [3, 3, 45]


def test_what_the_sizes_leave_out_is_a_doubt() -> None:
    assert read(LLAMA).doubts == ()
    (window,) = read({**LLAMA, "model_type": "mistral", "sliding_window": 4096}).doubts
    assert "sliding windows" in window
    assert read({**LLAMA, "sliding_window": 4096, "use_sliding_window": False}).doubts == ()
    (family,) = read({**LLAMA, "model_type": "a\x1b[31mnew"}).doubts
    assert "unknown" in family and "\x1b" not in family
    assert "quantized" in read({**LLAMA, "quantization_config": {}}).doubts[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": None}, "lacks the field hidden_size (or n_embd, d_model)"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, not a whole number from 1"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"hidden_size": 4096.5}, "hidden_size is 4096.5"),
        ({"hidden_size": [1]}, "hidden_size is of another type"),
        ({"hidden_size": 4100}, "4100 of hidden_size is not a multiple of 32 heads"),
        ({"num_key_value_heads": 5}, "num_attention_heads is 32, no multiple of the 5 kv_heads"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is not true or false"),
        ({"num_experts": 4}, "lacks the field num_experts_per_tok"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok is 5, more than the 4"),
        ({"is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"model_type": "mamba"}, "without a cache"),
        ({"layer_types": ["linear_attention"]}, "without a cache"),
    ],
)
def test_a_config_without_usable_fields_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        read({**LLAMA, **change})
    assert sentence in str(raised.value)
    assert raised.value.hint


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 10**5, "9" * 5000, '"\\ud800"', "NaN"])
def test_text_that_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_config(text, "config.json")


def test_a_file_of_sizes_is_checked_by_key(tmp_path: Path) -> None:
    names = ("layers", "width", "mlp_width", "heads", "kv_heads", "head_width", "vocabulary")
    sizes = "\n".join(f"{name} = 8" for name in names)
    text = f'schema = 1\nid = "x"\nname = "X"\n[sizes]\nsource = "me"\n{sizes}\n'
    assert parse_model(text, "x.toml").group == 1
    for old, new, sentence in (
        ("layers = 8", "", "sizes lacks the key 'layers'"),
        ("layers = 8", "layers = 8.5", "sizes.layers should be of the type int"),
        ("layers = 8", "layers = 8\nfoo = 1", "sizes has the unknown key 'foo'"),
        ("\nlayers = 8", "\nlayers = -8", "layers is -8, not from 1 to 4096"),
        ("schema = 1", "schema = 2", "schema is 2, not 1"),
        ("schema = 1", "schema = ", "is not TOML"),
        ("[sizes]", "[sizes]\nbias = 'some'", "sizes.bias is invalid"),
    ):
        with pytest.raises(UsageError, match=r"x\.toml") as raised:
            parse_model(text.replace(old, new), "x.toml")
        assert sentence in str(raised.value)


def test_a_model_is_found_by_name_by_file_and_by_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert find_model(str(tmp_path)) == find_model(str(tmp_path / "config.json"))
    assert find_model(" Llama-3-8B ").parameters == 8_030_261_248
    for name, sentence in (
        ("llama-3-8", "no model 'llama-3-8'; did you mean 'llama-3-8b'"),
        ("./none.json", "there is no file"),
        ("/dev/zero.json", "there is no file"),
        ("/dev/", "no file"),
        ("", "no model ''"),
        ("\0.json", "cannot be read"),
    ):
        with pytest.raises(UsageError) as raised:
            find_model(name)
        assert sentence in str(raised.value)
    (tmp_path / "big.json").write_text(" " * (1 << 20) + "{}")
    with pytest.raises(UsageError, match="over 1 MiB"):
        find_model(str(tmp_path / "big.json"))
