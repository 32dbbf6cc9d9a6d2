"""Add a vector in blocks: an experiment whose y is counted, so that every run gives the same.

The number of blocks does not depend on the machine.
"""

import torch

from gpuperf import Axis, Bytes, Control, Cost, Experiment, Implementation, Law, Workload, exactly


class Blocks:
    """A call that counts the blocks that it adds."""

    def __init__(self, x, block):
        self.parts = x.split(block)

    def __call__(self):
        return torch.stack([part.abs().sum() for part in self.parts]).sum().reshape(1)

    def readings(self):
        return {"blocks": float(len(self.parts))}


ADDED = Workload(
    name="added",
    summary="sum of a vector in blocks",
    formula="n FLOP",
    axes=(
        Axis("block", 1024, "elements of a block", main=True),
        Axis("n", 4096, "elements"),
        Axis("dtype", "fp32", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=lambda inputs, point: inputs["x"].double().abs().sum().reshape(1),
    cost=lambda point: Cost(bytes=(Bytes(4 * point.n, 4),)),
    implementations=(Implementation("torch", lambda i, p, o: Blocks(i["x"], p.block)),),
    terms=lambda point: point.n,
)

BLOCKS = Experiment(
    name="blocks",
    question="How many blocks does a sum have?",
    workload=ADDED,
    axes={"block": (512, 1024, 2048, 4096)},
    x="block",
    y="reading:blocks",
    unit="count",
    expect=lambda at, numbers: exactly(-(-at.n // at.block), "count", "n over block"),
    controls=(
        Control(
            "one block",
            {"block": 8192},
            "a block longer than the vector",
            lambda at, numbers: exactly(1, "count", "one block"),
        ),
    ),
    law=Law("proportional", band=0.01),
    cache=lambda at, numbers: "hot" if at.block < 1024 else "",
    needs=(),
)
