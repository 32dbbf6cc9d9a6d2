"""A profile that nobody measured: a training step on an H200, about as one could be."""

from __future__ import annotations

from dataclasses import replace

from synthetic import h200_ceilings, h200_device, h200_peaks, header

from gpuperf.model.contract import Contract
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.older import operands_of
from gpuperf.model.program import Chain, Operator, Program, Wait
from gpuperf.model.record import Kernel, Memory, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case

EVENTS = Contract("events", "hot", "sustained", gap_s=0.0, data="own", warmup_calls=5)
STEP_S = 100e-3
NOTHING = Cost()


def operator(
    name: str,
    of: str,
    seconds: float,
    kind: str = "matmul",
    flops: int = 0,
    moved: int = 0,
    dtype: str = "bf16",
    backward: bool = False,
    known: bool = True,
    kernel: str = "",
    where: tuple[str, ...] = (),
    count: float = 12,
) -> Record:
    """One operator, so many seconds of a step."""
    flop_kind = "matmul" if kind in ("matmul", "attention", "convolution") else "elementwise"
    own = (Flops(flops, flop_kind, dtype, "fp32" if flop_kind == "matmul" else ""),)  # type: ignore[arg-type]
    cost = Cost(own if flops else (), (Bytes(moved * 2 // 3, moved // 3),) if moved else ())
    return Record(
        run="r",
        case=Case(name, "step", {"pass": "backward" if backward else "forward"}),
        contract=EVENTS,
        status="ok",
        cost=cost,
        work=Work(cost.flops, cost.bytes),
        times={"busy": Samples((seconds,))} if seconds else {},
        primary="busy" if seconds else "",
        kernels=(Kernel(kernel or f"{name}_kernel", round(count), time_s=seconds),),
        kind="operator",
        region="step",
        operator=Operator(kind, count, known, backward, 1e-4, where, "", *operands_of(of)),
    )


def region(
    cost: Cost = NOTHING, busy_s: float = 90e-3, step_s: float = STEP_S, **program: object
) -> Record:
    """A step of *step_s*, the device busy for *busy_s* of it."""
    facts = Program(
        steps={"plain": 10, "trace": 5, "accounting": 1},
        total=39,
        exit_code=0,
        occupied={"busy": busy_s, "idle_host": 8e-3, "idle_sync": 2e-3},
        launched={"kernel": 1200.0},
    )
    return Record(
        run="r",
        case=Case("step", "train.py", {}),
        contract=EVENTS,
        status="ok",
        cost=cost,
        work=Work(cost.flops, cost.bytes),
        times={"step": Samples((step_s,) * 10), "busy": Samples((busy_s,) * 5)},
        primary="step",
        memory=Memory(0, peak_bytes=24 * 10**9),
        kind="region",
        region="step",
        program=replace(facts, **program),  # type: ignore[arg-type]
    )


def run_of(whole: Record, operators: tuple[Record, ...], measured: bool = True) -> Run:
    """Under an H200's roofs."""
    ceilings = h200_ceilings() if measured else None
    top = replace(header(h200_device(), EVENTS, h200_peaks(), ceilings=ceilings), study="profile")
    return Run(top, (whole, *operators))


def training() -> Run:
    """A small language model whose vocabulary is odd, and whose attention is eager."""
    tera = 10**12
    operators = (
        operator(
            "aten::mm",
            "16384×768 bf16, 768×50257 bf16",
            22e-3,
            flops=4 * tera,
            moved=2 * 10**9,
            where=("gpt2.py:80",),
            count=1,
        ),
        operator(
            "aten::addmm",
            "2304 bf16, 16384×768 bf16, 768×2304 bf16",
            13e-3,
            flops=7 * tera,
            moved=3 * 10**9,
            where=("gpt2.py:35",),
        ),
        operator(
            "aten::mm",
            "16384×2304 bf16, 2304×768 bf16",
            24e-3,
            flops=14 * tera,
            moved=6 * 10**9,
            backward=True,
            count=48,
        ),
        operator(
            "aten::bmm", "192×1024×64 bf16, 192×64×1024 bf16", 5e-3, flops=2 * tera, moved=5 * 10**9
        ),
        operator("aten::bmm", "192×1024×1024 bf16, 192×1024×64 bf16", 0.0, moved=5 * 10**9),
        operator("aten::_softmax", "16×12×1024×1024 bf16", 4e-3, "softmax", 10**10, 10**10),
        operator(
            "aten::mul",
            "16×12×1024×1024 bf16",
            7e-3,
            "elementwise",
            2 * 10**9,
            24 * 10**9,
            where=("gpt2.py:40",),
        ),
        operator(
            "aten::gelu",
            "16×1024×3072 bf16",
            6e-3,
            "elementwise",
            6 * 10**9,
            24 * 10**9,
            where=("gpt2.py:58",),
        ),
        operator(
            "aten::native_layer_norm",
            "16×1024×768 fp32",
            4e-3,
            "normalisation",
            2 * 10**9,
            12 * 10**9,
            dtype="fp32",
            count=25,
        ),
        operator("mylib::rope", "16×12×1024×64 bf16", 3e-3, "unknown", known=False),
        operator(
            "aten::copy_",
            "16×1024 int64",
            2e-3,
            "copy",
            0,
            10**8,
            kernel="Memcpy HtoD (Pageable -> Device)",
            count=1,
        ),
        operator("aten::t", "768×768 bf16", 0.0, "view"),
    )
    cost = Cost((Flops(27 * tera, "matmul", "bf16", "fp32"),), (Bytes(60 * 10**9, 30 * 10**9),))
    chains = (Chain(("mul", "add", "masked_fill"), "gpt2.py:40", 12, 30 * 10**9, 12 * 10**9),)
    waits = (Wait("item", "gpt2.py:99", 1.0, 6e-3),)
    return run_of(region(cost, chains=chains, waits=waits, items=16384.0), operators)
