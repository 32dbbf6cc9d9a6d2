"""Generate text with Hugging Face's Llama 3 8B, whose weights are random, and time its passes.

`python docs/measured/generate.py` runs on a GPU with transformers and prints the time to the first
token and the time between tokens, by the host's clock. `gpuperf profile --theory
docs/measured/llama.json docs/measured/generate.py` shows where the time goes, beside the theory.
Prompts of two lengths go through 8 sequences. Passes are compiled, as one would serve them: those
over prompts for each length, with causal attention of their own tokens alone, and those that decode
as CUDA graphs over a static cache. `--plain` compiles nothing, `--config FILE` is another model.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=HERE / "llama.json")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--prompts", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--tokens", type=int, default=64, help="0: prompts alone")
    parser.add_argument("--rounds", type=int, default=4, help="prompts of each length")
    parser.add_argument("--plain", action="store_true", help="compile nothing")
    return parser.parse_args()


def llama(path: Path) -> torch.nn.Module:
    """Return the model of the config.json *path* with random weights in bf16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(LlamaConfig(**json.loads(path.read_text())))
    return model.eval()


def main() -> None:
    """Generate, and print a line for each length of prompts."""
    from transformers import StaticCache

    given = options()
    model = llama(given.config)
    vocabulary, longest = model.config.vocab_size, max(given.prompts) + given.tokens
    prefill = decode = model.forward
    if not given.plain:
        prefill = torch.compile(prefill, dynamic=False)
        decode = torch.compile(decode, mode="reduce-overhead", fullgraph=True)
    cache = StaticCache(config=model.config, max_cache_len=longest)  # graphs keep its addresses
    places = torch.arange(longest, device=DEVICE)  # sending one place a token would wait for it

    def wait() -> float:
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def generate(length: int) -> tuple[float, float]:
        """Return the seconds to the first token, and those between tokens."""
        cache.reset()
        ids = torch.randint(vocabulary, (given.batch, length), device=DEVICE)
        began = wait()
        model.forward = prefill
        passed = model(input_ids=ids, use_cache=True, logits_to_keep=1)
        ids = passed.logits[:, -1:].argmax(-1)
        own = {"cache_position": places[:length]}
        for index, layer in enumerate(passed.past_key_values.layers):
            cache.update(layer.keys, layer.values, index, own)
        first = wait()
        model.forward = decode
        for at in range(length, length + given.tokens):
            here = places[at : at + 1]
            logits = model(input_ids=ids, past_key_values=cache, cache_position=here).logits
            ids = logits[:, -1:].argmax(-1).clone()
        return first - began, (wait() - first) / max(1, given.tokens)

    with torch.inference_mode():
        for length in given.prompts:
            generate(length)  # compiles
        for length in given.prompts:
            times = [generate(length) for _ in range(given.rounds)]
            first_s, each_s = (statistics.median(column) for column in zip(*times, strict=True))
            print(
                f"{given.batch} prompts of {length}: first token after {first_s * 1e3:.2f} ms, "
                f"then {each_s * 1e3:.3f} ms a token"
            )


if __name__ == "__main__":
    main()
