"""Answer `gpuperf theory serve`: parse its options, simulate, print a table and draw a chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from gpuperf.theory.transformer.find import find_model
from gpuperf.theory.transformer.model import Model
from gpuperf.theory.transformer.step import (
    AUTO,
    KV,
    MEMORY_SHARE,
    WEIGHTS,
    Formats,
    Steps,
    check_groups,
    formats_of,
    gpus_that_fit,
    kv_bytes_per_token,
    roofs_of,
    tokens_that_fit,
    weight_bytes,
)
from gpuperf.units import format_bytes

POLICIES = {
    "static": ("static, padded", "static, ragged"),
    "static-padded": ("static, padded",),
    "static-ragged": ("static, ragged",),
    "inflight": ("in-flight",),
}
PARAMETERS = (
    Parameter("batch", "32", "slots: sequences at once", most=2**16, swept=True),
    Parameter("page", "16", "tokens of a page of the cache", most=2**16),
    Parameter("chunk", "8192", "prompt tokens of a pass", least=16, most=2**24),
    Parameter("policy", "static,inflight", "of batching", choices=(*POLICIES,), swept=True),
    Parameter("requests", "4096", "of the trace; of a file, the first", most=2**20),
    Parameter("prefix", "0", "tokens before every prompt that all share", least=0, most=2**24),
    Parameter("prompt", "512", f"tokens of a prompt, for {', '.join(LAWS)}", most=2**24),
    Parameter("output", "256", f"mean tokens of an output, for {', '.join(LAWS)}", most=2**23),
    Parameter("seed", "0", "of the lengths and the arrivals", least=0),
    Parameter("weights", AUTO, "format of the weights", choices=(AUTO, *WEIGHTS)),
    Parameter("kv", AUTO, "format of the cache", choices=(AUTO, *KV)),
    Parameter("group", "128", "weights that share a scale, for int4", most=2**16),
    Parameter(
        "fixed_us", "0", "time of each pass beside its operators, in µs", least=0, most=10**6
    ),
)
TEXTS = {  # options that are no numbers, with their defaults and meanings
    "model": ("llama-3-8b", "a name, or the path of a TOML or a config.json"),
    "trace": ("conversation", f"{', '.join(TRACES)}, or the path of a CSV"),
    "rate": ("closed,80%", "arrivals: closed, requests a second, % of the capacity, trace"),
}
OPTIONS = (*TEXTS, *(parameter.name for parameter in PARAMETERS))
DISTRIBUTIONS_ONLY = (
    "The trace {trace} has the published distributions of lengths alone: the order in time, the "
    "correlation of prompt and output (−0.11 in conversation), bursts, and the turns of a user are "
    "lost. Neighbours of the real trace are alike, which helps static batches. For a claim about "
    "serving, give a trace of your own."
)


def described() -> str:
    """Return the options with their defaults and meanings, for the help."""
    texts = [(name, default, meaning) for name, (default, meaning) in TEXTS.items()]
    numbers = [(p.name.replace("_", "-"), p.default, p.meaning) for p in PARAMETERS]
    listed = ", ".join(f"--{name} {value} ({meaning})" for name, value, meaning in texts + numbers)
    return f"Options of serve, with their defaults: {listed}."


@dataclass(frozen=True)
class Place:
    """A model on one device: its formats, and the memory in bytes."""

    model: Model
    formats: Formats
    capacity: float
    name: str


def serve(given: Mapping[str, str], chip: Chip, chart: Path | None, format: str) -> None:
    """Simulate the options *given* on *chip*, print the rows, and draw them to *chart*.

    Raises: UsageError.
    """
    if chart is not None:
        targets_of(chart)
    texts = {name: given.get(name, default) for name, (default, _) in TEXTS.items()}
    at: Any = parse_values(PARAMETERS, {k: v for k, v in given.items() if k not in TEXTS})
    rates = tuple(dict.fromkeys(parse_rate(part.strip()) for part in texts["rate"].split(",")))
    load = load_of(texts["trace"], at, given)
    if Rate("trace") in rates and texts["trace"] in TRACES:
        raise UsageError(
            f"--rate trace: {texts['trace']} has no times of arrival",
            "give a rate, such as 5.5, or a trace file",
        )
    bench, question = prepare(place_of(texts["model"], at, chip), chip, texts["trace"], load, at)
    policies = tuple(dict.fromkeys(name for key in at.policy for name in POLICIES[key]))
    rows = list(simulate(bench, policies, at.batch, rates))
    if chart is not None:
        from gpuperf.theory.serving.chart import draw_serve

        draw_serve(question, bench, rows, chart)
    put(render([serve_table(question, rows)], format, stdout_screen()))


def load_of(trace: str, at: Any, given: Mapping[str, str]) -> Load:
    """Return the requests of *trace*. Raises: UsageError."""
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


def place_of(name: str, at: Any, chip: Chip) -> Place:
    """Return the model *name* on *chip*. Raises: UsageError."""
    model, formats = find_model(name), formats_of(chip, at.weights, at.kv, at.group)
    check_groups(model, formats)
    capacity = chip.figure("memory_capacity")
    if capacity is None:
        raise UsageError(f"{chip.peaks.name} has no known memory", "choose another --device")
    return Place(model, formats, capacity, chip.peaks.name)


def prepare(place: Place, chip: Chip, trace: str, load: Load, at: Any) -> tuple[Bench, Question]:
    """Return the bench and its words. Raises: UsageError for a model that does not fit."""
    model, formats = place.model, place.formats
    room = tokens_that_fit(model, formats, place.capacity)
    shortest = at.prefix + min(map(sum, zip(load.prompt, load.output, strict=True))) - 1
    if room < max(shortest, at.page):
        raise does_not_fit(place, max(shortest, at.page))
    steps = ModelStep(Steps(model, formats, roofs_of(chip, formats, at.fixed_us * 1e-6)))
    server = Server(max(at.batch), room // at.page, at.page, at.chunk, at.prefix)
    bench = make_bench(load, steps, server, at.seed)
    return bench, question_of(place, trace, room, bench, at)


def does_not_fit(place: Place, tokens: int) -> UsageError:
    """Return the error of a model whose weights and one request need more than one device."""
    weights = format_bytes(weight_bytes(place.model, place.formats))
    count = gpus_that_fit(place.model, place.formats, place.capacity, tokens)
    share = f"{MEMORY_SHARE * 100:.0f} % of {format_bytes(place.capacity)}"
    return UsageError(
        f"{place.model.name} does not fit: its weights of {weights} and a request of {tokens:,} "
        f"tokens need {count} of {place.name} ({share} each)",
        "a server of one GPU is simulated; try --weights int4, a smaller model, another --device",
    )


def question_of(place: Place, trace: str, room: int, bench: Bench, at: Any) -> Question:
    """Return the words of the table."""
    model, formats = place.model, place.formats
    each = kv_bytes_per_token(model, formats)
    weights = format_bytes(weight_bytes(model, formats))
    lengths = [sum(of) / len(bench.load) for of in (bench.load.prompt, bench.load.output)]
    prompt, output = (f"{length:,.1f}" for length in lengths)
    lead = (
        f"{place.name} · {model.name} · weights {formats.weights}, {weights} · cache {formats.kv}, "
        f"{format_bytes(room * each)}, {room:,} tokens in pages of {at.page}",
        f"trace {trace}: {len(bench.load):,} requests, prompts of {prompt} and outputs of {output} "
        f"tokens on average · chunks of {at.chunk:,} · prefix {at.prefix:,} · seed {at.seed}",
    )
    remarks = list(model.doubts)
    if trace in MEASURED:
        remarks.append(DISTRIBUTIONS_ONLY.format(trace=trace))
    if bench.left_out:
        remarks.append(
            f"{bench.left_out:,} requests are left out: the cache does not hold one of them alone."
        )
    if at.fixed_us == 0:
        remarks.append(
            "Times are those of the roofs, a lower bound: real kernels are slower, above all for "
            "few sequences, and a pass has a fixed time besides (--fixed-us)."
        )
    return Question(QUESTIONS[SERVE], lead, tuple(remarks), room, each)
