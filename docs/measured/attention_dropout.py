"""Count the distinct rows of the softmax's elements that each backend of torch's attention keeps.

`python docs/measured/attention_dropout.py > docs/measured/attention_dropout.txt` runs on a GPU
with torch alone: q = 0 makes all elements of the softmax equal, and an identity matrix as v shows
them, so that 0 in the output is a dropped element. With a probability of 0.5, two rows of 128
independent elements are equal with a probability of 2^-128.
"""

import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BATCH, HEADS, QUERIES, KEYS = 2, 4, 512, 128
BACKENDS = ("MATH", "EFFICIENT_ATTENTION", "FLASH_ATTENTION", "CUDNN_ATTENTION")


def kept_rows(device: str, backend: SDPBackend, probability: float) -> torch.Tensor:
    """Return which elements were kept, (batch, heads, queries, keys)."""
    zeros = torch.zeros(BATCH, HEADS, KEYS, KEYS, dtype=torch.bfloat16, device=device)
    q = zeros.new_zeros(BATCH, HEADS, QUERIES, KEYS)
    v = zeros + torch.eye(KEYS, dtype=zeros.dtype, device=device)
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, zeros, v, dropout_p=probability) > 0


def main(device: str) -> None:
    """Print a line for each backend."""
    on_gpu = device != "cpu"
    name = torch.cuda.get_device_name() if on_gpu else "CPU"
    print(f"{name}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    for backend in BACKENDS if on_gpu else BACKENDS[:1]:
        torch.manual_seed(0)
        kept = kept_rows(device, getattr(SDPBackend, backend), 0.5)
        rows, distinct = kept.flatten(0, 2), len(kept.flatten(0, 2).unique(dim=0))
        first = kept[0, 0]
        equal = [i for i in range(1, QUERIES) if bool((first[i] == first[0]).all())]
        print(
            f"{backend:20} keeps {kept.float().mean():.4f}, {distinct} distinct rows of {len(rows)}"
            + (f"; row 0 of the first head equals rows {equal}" if equal else "")
        )


if __name__ == "__main__":
    main("cpu" if sys.argv[1:] == ["cpu"] else "cuda")
