"""Answer `gpuperf theory serve`: parse its options, simulate, print a table and draw a chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuperf.errors import UnknownName, UsageError
from gpuperf.show.figure import targets_of
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.theory.serving.load import Load, Server
from gpuperf.theory.serving.question import Question
from gpuperf.theory.serving.rate import Rate, parse_rate
from gpuperf.theory.serving.steps import ModelStep
from gpuperf.theory.serving.study import Bench, make_bench, simulate
from gpuperf.theory.serving.table import serve_table
from gpuperf.theory.serving.trace import LAWS, MEASURED, TRACES, draw_load
from gpuperf.theory.serving.tracefile import read_trace
from gpuperf.theory.theory import QUESTIONS, SERVE, Chip, Parameter, parse_values
from gpuperf.theory.transformer.measured import MeasuredTimes
from gpuperf.theory.transformer.setting import PARAMETERS, Setting, setting_of
from gpuperf.theory.transformer.step import (
    MEMORY_SHARE,
    kv_bytes_per_token,
    tokens_that_fit,
    weight_bytes,
)
from gpuperf.units import format_bytes
from gpuperf.verb.progress import say

POLICIES = {
    "static": ("static, padded", "static, ragged"),
    "static-padded": ("static, padded",),
    "static-ragged": ("static, ragged",),
    "inflight": ("in-flight",),
}
OPTIONS = (
    *PARAMETERS,
    Parameter("trace", "conversation", f"{', '.join(TRACES)}, or the path of a CSV", kind="text"),
    Parameter(
        "rate",
        "closed,80%",
        "arrivals: closed, requests a second, % of the capacity, trace",
        kind="text",
        swept=True,
    ),
    Parameter("policy", "static,inflight", "of batching", choices=(*POLICIES,), swept=True),
    Parameter("batch", "32", "slots: sequences at once", most=2**16, swept=True),
    Parameter("page", "16", "tokens of a page of the cache", most=2**16),
    Parameter("chunk", "8192", "prompt tokens of a pass", least=16, most=2**24),
    Parameter("requests", "4096", "of the trace; of a file, the first", most=2**20),
    Parameter("prefix", "0", "tokens before every prompt that all share", least=0, most=2**24),
    Parameter("prompt", "512", f"tokens of a prompt, for {', '.join(LAWS)}", most=2**24),
    Parameter("output", "256", f"mean tokens of an output, for {', '.join(LAWS)}", most=2**23),
    Parameter("seed", "0", "of the lengths and the arrivals", least=0),
)
MANY = 200_000  # requests of all simulations together, from which on the time is announced
REQUEST_S = 5e-5  # CPU time of a simulated request: 2e-5 to 7e-5 s in docs/measured/serve.txt
DISTRIBUTIONS_ONLY = (
    "The trace {trace} has the published distributions of lengths alone: the order in time, the "
    "correlation of prompt and output (−0.11 in conversation), bursts, and the turns of a user are "
    "lost. Neighbours of the real trace are alike, which helps static batches. For a claim about "
    "serving, give a trace of your own."
)


def serve(given: Mapping[str, str], chip: Chip, chart: Path | None, format: str) -> None:
    """Simulate the options *given* on *chip*, print the rows, and draw them to *chart*.

    Raises: UsageError.
    """
    if chart is not None:
        targets_of(chart)
    at: Any = parse_values(OPTIONS, given)
    rates = tuple(dict.fromkeys(map(parse_rate, at.rate)))
    load = load_of(at, given)
    if Rate("trace") in rates and at.trace in TRACES:
        raise UsageError(
            f"--rate trace: {at.trace} has no times of arrival",
            "give a rate, such as 5.5, or a trace file",
        )
    bench, question = prepare(setting_of(at, chip), chip, load, at)
    policies = tuple(dict.fromkeys(name for key in at.policy for name in POLICIES[key]))
    if (count := len(load) * len(policies) * len(at.batch) * len(rates)) >= MANY:
        say(f"simulating {count:,} requests: about {count * REQUEST_S:.0f} s of CPU time")
    rows = list(simulate(bench, policies, at.batch, rates))
    if chart is not None:
        from gpuperf.theory.serving.chart import draw_serve

        draw_serve(question, bench, rows, chart)
    put(render([serve_table(question, rows)], format, stdout_screen()))


def load_of(at: Any, given: Mapping[str, str]) -> Load:
    """Return the requests of the trace *at.trace*. Raises: UsageError."""
    trace: str = at.trace
    for name in ("prompt", "output") if trace not in LAWS else ():
        if name in given:
            raise UsageError(
                f"--{name} is a length for the traces {', '.join(LAWS)}, and {trace!r} has its own",
                f"leave --{name} out",
            )
    if trace in TRACES:
        return draw_load(trace, at.requests, at.seed, at.prompt, at.output)
    if "/" not in trace and not trace.endswith(".csv"):
        raise UnknownName("trace", trace, TRACES, f"one of {', '.join(TRACES)}, or a file FILE.csv")
    load = read_trace(Path(trace))
    return load.chosen(range(min(at.requests, len(load)))) if "requests" in given else load


def prepare(setting: Setting, chip: Chip, load: Load, at: Any) -> tuple[Bench, Question]:
    """Return the bench and its words. Raises: UsageError for a model that does not fit."""
    model, formats, name = setting.model, setting.formats, chip.peaks.name
    if setting.capacity is None:
        raise UsageError(f"{name} has no known memory", "choose another --device")
    room = tokens_that_fit(model, formats, setting.capacity)
    shortest = at.prefix + min(map(sum, zip(load.prompt, load.output, strict=True))) - 1
    least = -(-shortest // at.page) * at.page  # tokens of its pages
    if room < least:
        weights = format_bytes(weight_bytes(model, formats))
        share = f"{MEMORY_SHARE * 100:.0f} % of {format_bytes(setting.capacity)}"
        raise UsageError(
            f"{model.name} does not fit: its weights of {weights} and a request of {shortest:,} "
            f"tokens need {setting.gpus(least)} of {name} ({share} each)",
            "a server of one GPU is simulated; try --weights int4, a smaller model or --device",
        )
    server = Server(max(at.batch), room // at.page, at.page, at.chunk, at.prefix)
    bench = make_bench(load, ModelStep(setting.steps), server, at.seed)
    return bench, question_of(setting, chip, room, bench, at)


def question_of(setting: Setting, chip: Chip, room: int, bench: Bench, at: Any) -> Question:
    """Return the words of the table."""
    model, formats = setting.model, setting.formats
    each = kv_bytes_per_token(model, formats)
    weights = format_bytes(weight_bytes(model, formats))
    lengths = [sum(of) / len(bench.load) for of in (bench.load.prompt, bench.load.output)]
    prompt, output = (f"{length:,.1f}" for length in lengths)
    prefix = f" · shared prefix of {at.prefix:,}" if at.prefix else ""
    lead = (
        f"{chip.peaks.name} · {model.name} · weights {formats.weights}, {weights} · "
        f"cache {formats.kv}, {format_bytes(room * each)}, {room:,} tokens in pages of {at.page}",
        f"trace {Path(at.trace).name}: {len(bench.load):,} requests, prompts of {prompt} and "
        f"outputs of {output} tokens on average · chunks of {at.chunk:,}{prefix}",
    )
    return Question(QUESTIONS[SERVE], lead, tuple(_remarks(setting, chip, bench, at)), room, each)


def _remarks(setting: Setting, chip: Chip, bench: Bench, at: Any) -> Iterator[str]:
    """Yield what is doubtful about the model, its times, and the trace."""
    yield from setting.model.doubts
    lengths = zip(bench.load.prompt, bench.load.output, strict=True)
    longest = at.prefix + max(map(sum, lengths))
    if 0 < (positions := setting.model.positions) < longest:
        yield (
            f"The model has {positions:,} positions and the longest request {longest:,} tokens: "
            "its times are arithmetic."
        )
    measured = setting.steps.measured
    if isinstance(measured, MeasuredTimes):
        yield from measured.remarks(chip.peaks)
    elif at.fixed_us == 0:
        yield (
            "Times are those of the roofs, a lower bound: real kernels are slower, above all for "
            "few sequences, and a pass has a fixed time besides (--fixed-us, --measured)."
        )
    if at.trace in MEASURED:
        yield DISTRIBUTIONS_ONLY.format(trace=at.trace)
    if bench.left_out:
        yield (
            f"{bench.left_out:,} requests are left out: the cache does not hold one of them alone."
        )
