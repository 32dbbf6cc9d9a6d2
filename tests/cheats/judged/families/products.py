"""Products of matrices: PyTorch's, spelt in several ways, compiled, and in Triton."""

import torch
import triton
import triton.language as tl

DEVICE = "gpu"
VARIANTS = {
    "square": (
        "einsum",
        "out",
        "by_rows",
        "linear",
        "batched",
        "triton_64",
        "triton_128",
        "compiled",
    ),
    "tall": (
        "einsum",
        "out",
        "by_rows",
        "linear",
        "batched",
        "triton_64",
        "triton_128",
        "compiled",
    ),
    "inner": ("einsum", "out", "split", "linear", "triton_64", "triton_128", "compiled"),
    "first_transposed": ("einsum", "contiguous", "by_rows", "compiled"),
    "second_transposed": ("einsum", "contiguous", "linear", "compiled"),
    "batched": ("einsum", "bmm", "one_by_one", "compiled"),
    "vector": ("mv", "einsum", "by_sum", "compiled"),
    "diagonal": ("by_rows", "einsum", "in_place", "compiled"),
    "bf16": ("einsum", "out", "by_rows", "linear", "triton_64", "triton_128", "compiled"),
}
G = 16 if torch.cuda.is_available() else 1
SHAPES = {
    "square": ((128 * G, 128 * G), (128 * G, 128 * G)),
    "tall": ((512 * G, 128), (128, 64 * G)),
    "inner": ((128, 1024 * G), (1024 * G, 128)),
    "first_transposed": ((64 * G, 128 * G), (64 * G, 64 * G)),
    "second_transposed": ((128 * G, 64 * G), (64 * G, 64 * G)),
    "batched": ((16, 32 * G, 64 * G), (16, 64 * G, 32 * G)),
    "vector": ((256 * G, 256 * G), (256 * G, 1)),
    "diagonal": ((256 * G,), (256 * G, 256 * G)),
    "bf16": ((128 * G, 128 * G), (128 * G, 128 * G)),
}
REFERENCES = {
    "first_transposed": lambda a, b: a.t() @ b,
    "second_transposed": lambda a, b: a @ b.t(),
    "diagonal": lambda a, b: torch.diag(a) @ b,
}


def by_out(a, b):
    out = a.new_empty(a.shape[0], b.shape[1])
    torch.mm(a, b, out=out)
    return out


def split(a, b):
    parts = zip(a.chunk(4, 1), b.chunk(4, 0), strict=True)
    return sum(x.float() @ y.float() for x, y in parts)


SPELT = {
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "out": by_out,
    "split": split,
    "by_rows": lambda a, b: torch.cat([part @ b for part in a.chunk(2)]),
    "linear": lambda a, b: torch.nn.functional.linear(a, b.t()),
    "batched": lambda a, b: torch.bmm(a.unsqueeze(0), b.unsqueeze(0)).squeeze(0),
}
OWN = {
    "first_transposed": {
        "einsum": lambda a, b: torch.einsum("ji,jk->ik", a, b),
        "contiguous": lambda a, b: a.t().contiguous() @ b,
        "by_rows": lambda a, b: torch.cat([part.t() @ b for part in a.chunk(2, 1)]),
    },
    "second_transposed": {
        "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
        "contiguous": lambda a, b: a @ b.t().contiguous(),
        "linear": lambda a, b: torch.nn.functional.linear(a, b),
    },
    "batched": {
        "einsum": lambda a, b: torch.einsum("nij,njk->nik", a, b),
        "bmm": torch.bmm,
        "one_by_one": lambda a, b: torch.stack([x @ y for x, y in zip(a, b, strict=True)]),
    },
    "vector": {
        "mv": lambda a, b: torch.mv(a, b.squeeze(1)).unsqueeze(1),
        "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
        "by_sum": lambda a, b: (a * b.t()).sum(-1, keepdim=True),
    },
    "diagonal": {
        "by_rows": lambda a, b: a.unsqueeze(1) * b,
        "einsum": lambda a, b: torch.einsum("i,ij->ij", a, b),
        "in_place": lambda a, b: b.clone().mul_(a.unsqueeze(1)),
    },
}


@triton.jit
def product(a, b, c, M, N, K, SIZE: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    columns = tl.program_id(1) * 64 + tl.arange(0, 64)
    inner = tl.arange(0, STEP)
    total = tl.zeros((SIZE, 64), tl.float32)
    for k in range(0, K, STEP):
        x = tl.load(a + rows[:, None] * K + k + inner[None, :])
        y = tl.load(b + (k + inner[:, None]) * N + columns[None, :])
        total += tl.dot(x, y, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty))


def in_triton(size):
    def call(a, b):
        (m, k), n = a.shape, b.shape[1]
        c = a.new_empty(m, n)
        product[(m // size, n // 64)](a, b, c, m, n, k, size, 32)
        return c

    return call


def model(task, variant):
    function = REFERENCES.get(task, torch.matmul)
    if variant == "compiled":
        function = torch.compile(function, dynamic=False)
    elif variant.startswith("triton_"):
        function = in_triton(int(variant.removeprefix("triton_")))
    elif variant != "reference":
        function = OWN[task][variant] if task in OWN else SPELT[variant]

    class Made(torch.nn.Module):
        def forward(self, a, b):
            return function(a, b)

    return Made


def inputs(task):
    dtype = torch.bfloat16 if task == "bf16" else torch.float32
    return lambda: [torch.randn(*shape).to(dtype) for shape in SHAPES[task]]
