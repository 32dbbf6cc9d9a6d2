"""Compare simulated servers with closed forms and another simulation, and time the simulator.

The two traces of Azure are not part of gpuperf; with their files, the last table has them too:

    python docs/measured/serve.py [splitwise_conv.csv splitwise_code.csv]
"""

import math
import random
import statistics
import sys
import time
from pathlib import Path

from gpuperf.theory.serving.inflight import simulate_inflight
from gpuperf.theory.serving.load import Load, Server
from gpuperf.theory.serving.outcome import reduce
from gpuperf.theory.serving.static import simulate_static
from gpuperf.theory.serving.steps import ConstantStep, ModelStep
from gpuperf.theory.serving.trace import at_once, draw_load, with_arrivals
from gpuperf.theory.serving.tracefile import read_trace
from gpuperf.theory.transformer.find import find_model
from gpuperf.theory.transformer.step import Formats, Roofs, Steps

PASS_S = 0.01
PASSES = ConstantStep(PASS_S)
ROOM = 10**7  # pages: a cache that is never full
MODEL = ModelStep(Steps(find_model("llama-3-8b"), Formats(), Roofs(4.2e12, 780e12, 780e12, 100e-6)))
BATCHES = (8, 32, 128)
OTHER = {  # in-flight ÷ static padded, and ragged, by batch: another simulation, whose traces were
    # the first 4,096 requests of the files in their order
    "conversation": ((2.20, 1.79), (3.80, 1.93), (5.66, 1.97)),
    "code": ((3.33, 1.79), (5.01, 1.89), (6.59, 2.06)),
    "uniform": ((1.77, 1.77), (1.85, 1.85), (1.65, 1.65)),
    "geometric": ((2.64, 2.64), (3.65, 3.65), (4.19, 4.19)),
    "constant": ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
}
WASTE = {
    "conversation": (0.28, 0.59, 1.21, 2.43, 4.81, 9.08),
    "code": (None, 0.35, None, 1.48, None, 5.89),
}
PAGES = (8, 16, 32, 64, 128, 256)


def compare(name: str, simulated: float, expected: float, error: float) -> None:
    off = (simulated / expected - 1) * 100
    print(
        f"{name:44s} {simulated:9.5g} {expected:9.5g}  {off:+5.2f} % ± {error / expected * 100:.2f}"
    )


def mean(values: list[float]) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def queues() -> None:
    print("\nOne slot, passes of 10 ms, ρ = 0.5, 4 × 100,000 requests: mean wait in s")
    moments = {"constant": (20, 400), "uniform": (20.5, 41 * 81 / 6), "geometric": (20, 780)}
    for law, (first, square) in moments.items():
        rate, waits = 0.5 / (first * PASS_S), []
        for seed in range(4):
            load = with_arrivals(draw_load(law, 100_000, seed, 16, 20), rate, seed)
            server = Server(1, ROOM)
            waits.append(
                reduce(simulate_inflight(load, PASSES, server), load, server).mean_wait_s - PASS_S
            )
        name = {"constant": "M/D/1"}.get(law, f"M/G/1 (Pollaczek, Khinchine), {law}")
        simulated, error = mean(waits)
        compare(name, simulated, rate * square * PASS_S**2 / 2 / 0.5, error)
    load, server = (
        with_arrivals(draw_load("constant", 100_000, 0, 16, 20), 5000.0, 0),
        Server(10**6, ROOM),
    )
    outcome = reduce(simulate_inflight(load, PASSES, server), load, server)
    error = math.sqrt(1 / 12 / len(load)) * outcome.requests_per_s * PASS_S
    compare(
        "M/D/∞ with passes, requests present",
        outcome.present,
        outcome.requests_per_s * 20.5 * PASS_S,
        error,
    )


def slots() -> None:
    print("\nStatic batches of 100,000 requests: slots used, and mean ÷ longest output")
    laws = {
        "uniform": (256.5, lambda n: min(1.0, n / 512)),
        "geometric": (256.0, lambda n: 1 - (255 / 256) ** n),
    }
    for law, (length, below) in laws.items():
        for batch in BATCHES:
            longest = sum(1 - below(n) ** batch for n in range(20_000))
            load, server = draw_load(law, 100_000 // batch * batch, 1, 16, 256), Server(batch, ROOM)
            used = reduce(simulate_static(load, PASSES, server, True), load, server).slots_used
            tops = [max(load.output[i : i + batch]) for i in range(0, len(load), batch)]
            compare(
                f"{law}, B = {batch}", used, length / longest, mean(tops)[1] * length / longest**2
            )
    load, server = draw_load("constant", 100_000, 1, 16, 256), Server(32, ROOM)
    compare(
        "constant",
        reduce(simulate_static(load, PASSES, server, True), load, server).slots_used,
        1,
        0,
    )


def speed() -> None:
    print("\nLlama-3-8B, conversation, 100,000 requests, 128 slots, pages of 16: CPU seconds")
    load = draw_load("conversation", 100_000, 0, 0, 0)
    server = Server(128, 845_638 // 16)
    runs = {
        "in-flight, closed": lambda: (load, simulate_inflight(load, MODEL, server)),
        "in-flight, 20 requests/s": lambda: (
            opened := with_arrivals(load, 20.0, 0),
            simulate_inflight(opened, MODEL, server),
        ),
        "static, padded, closed": lambda: (load, simulate_static(load, MODEL, server, True)),
    }
    for name, run in runs.items():
        start = time.process_time()
        served, log = run()
        simulated = time.process_time()
        outcome = reduce(log, served, server)
        reduced = time.process_time()
        print(
            f"{name:28s} simulated in {simulated - start:5.1f} s, "
            f"reduced in {reduced - simulated:4.1f} s; {outcome.tokens_per_s:6,.0f} tokens/s, "
            f"N ÷ λ·W = 1 {outcome.little:+.0e}"
        )


def waste() -> None:
    print("\nLast pages, 32 slots, 20,000 requests: % of the cache wasted")
    print("(formula; another simulation)")
    for trace, others in WASTE.items():
        load, cells = draw_load(trace, 20_000, 0, 0, 0), []
        pairs = list(zip(load.prompt, load.output, strict=True))
        length = sum(o * (p + o / 2) for p, o in pairs) / sum(o for _, o in pairs)
        for page, known in zip(PAGES, others, strict=True):
            server = Server(32, ROOM, page)
            share = reduce(simulate_inflight(load, MODEL, server), load, server).waste
            half = (page - 1) / 2
            cells.append(
                f"p {page}: {share * 100:.2f} ({half / (length + half) * 100:.2f}; {known or '–'})"
            )
        print(f"{trace:13s} " + "  ".join(cells))


def cache() -> None:
    print(
        "\nConversation, 128 slots, 4,096 requests at once, in-flight: a small cache, and a prefix"
    )
    load = draw_load("conversation", 4_096, 0, 0, 0)
    for room, prefix in ((845_638, 0), (200_000, 0), (100_000, 0), (50_000, 0), (845_638, 2_000)):
        server = Server(128, room // 16, prefix=prefix)
        o = reduce(simulate_inflight(load, MODEL, server), load, server)
        print(
            f"{room:7,} tokens, prefix {prefix:5,}: {o.tokens_per_s:6,.0f} tokens/s, "
            f"slots {o.slots_used * 100:4.1f} %, used {o.reserved / room * 100:4.1f} %, "
            f"{o.preemptions:5,} preemptions, {o.recomputed:9,} tokens computed again, "
            f"{o.saved:7,.0f} tokens saved by sharing"
        )


def factors(load: Load, batch: int) -> tuple[float, float, float]:
    """Return the slots used by static batches, and in-flight ÷ static padded and ragged."""
    server = Server(batch, ROOM)
    logs = [simulate_static(load, MODEL, server, padded) for padded in (True, False)]
    padded, ragged, flying = (
        reduce(log, load, server) for log in (*logs, simulate_inflight(load, MODEL, server))
    )
    return (
        padded.slots_used,
        flying.tokens_per_s / padded.tokens_per_s,
        flying.tokens_per_s / ragged.tokens_per_s,
    )


def gains(paths: list[str]) -> None:
    print("\nIn-flight ÷ static, 4,096 requests at once, R 780 TFLOP/s, 4.2 TB/s, 100 µs a pass:")
    print("slots used; ÷ padded ± standard deviation of a draw; ÷ ragged; (another simulation)")
    for trace, known in OTHER.items():
        for batch, (padded, ragged) in zip(BATCHES, known, strict=True):
            draws = [factors(draw_load(trace, 4_096, seed, 512, 256), batch) for seed in range(4)]
            used, over, over_ragged = (
                statistics.fmean(column) for column in zip(*draws, strict=True)
            )
            spread = statistics.stdev(draw[1] for draw in draws)
            print(
                f"{trace:13s} B {batch:3d}  {used:.3f}; {over:.2f} ± {spread:.2f} ({padded:.2f}); "
                f"{over_ragged:.2f} ({ragged:.2f})"
            )
    for path in paths:
        load = at_once(read_trace(Path(path)))
        trace = "code" if "code" in Path(path).name else "conversation"
        shuffled = random.Random(0).sample(range(len(load)), 4_096)
        for order, places in (("the first 4,096", range(4_096)), ("4,096 shuffled", shuffled)):
            chosen = load.chosen(places)
            for batch, (padded, ragged) in zip(BATCHES, OTHER[trace], strict=True):
                used, over, over_ragged = factors(chosen, batch)
                print(
                    f"{Path(path).name}, {order:15s} B {batch:3d}  {used:.3f}; "
                    f"{over:.2f} ({padded:.2f}); {over_ragged:.2f} ({ragged:.2f})"
                )


if __name__ == "__main__":
    print("simulated, closed form, difference ± standard error", end="")
    queues()
    slots()
    speed()
    waste()
    cache()
    gains(sys.argv[1:])
