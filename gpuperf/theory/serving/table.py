"""Make the table of simulated servers: a row for each policy, number of slots and rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuperf.show.table import Column, Note, Table, fill
from gpuperf.theory.serving.outcome import SHARES, Outcome
from gpuperf.theory.serving.question import Question
from gpuperf.theory.serving.study import Row
from gpuperf.units import format_bytes, format_number, format_percent, format_time

UNKNOWN = "–"
LEAST = 1e-4  # the least share that is written as it is
QUANTILES = tuple(f"p{share * 100:g}" for share in SHARES)
NOTES = (
    (
        "slots used",
        "tokens written ÷ slots × passes, of the passes that write a token; the first token of a "
        "request is written by the pass that completes its prompt",
    ),
    ("TTFT, TBT", "time from arrival to the first token, and between two tokens of a request"),
    (
        "KV used, peak",
        "tokens for which the cache has reserved room, mean over the time and most, as a share of "
        "the cache; wasted: the share of the reserved tokens that no unfinished request needs",
    ),
    (
        "static",
        "a batch is what waits when the last one has ended; it ends with its longest output, which "
        "the cache is reserved for and a real server cannot know; finished sequences cost as much "
        "as before",
    ),
    (
        "in-flight",
        "prompts join in the order of arrival, in chunks beside the decoding sequences; if pages "
        "are short, the sequence that joined last is preempted, and computed again later",
    ),
    (
        "load",
        "rate ÷ requests a second of the same policy in a closed run, where all requests are there "
        "at once; at other rates they arrive as a Poisson process",
    ),
    (
        "Source",
        "static and in-flight batching: Yu et al., Orca (OSDI 2022); pages, watermark and "
        "recomputation: Kwon et al., PagedAttention (SOSP 2023); chunked prefill: Agrawal et al., "
        "Sarathi-Serve (OSDI 2024)",
    ),
)


def serve_table(question: Question, rows: Sequence[Row]) -> Table:
    """Make the table of *rows*, the answers to *question*."""
    slots = {row.slots for row in rows}
    columns = [
        Column("policy", left=True, identity=True),
        *([Column("slots")] if len(slots) > 1 else []),
        Column("rate"),
        Column("load", "%", keep=3),
        Column("output", "tokens/s"),
        Column("× static", "padded", keep=7),
        Column("slots", "used %", keep=8),
        *(Column("TTFT", name, keep=5 if name == "p90" else 9) for name in QUANTILES),
        *(Column("TBT", name, keep=4 if name == "p90" else 9) for name in QUANTILES),
        Column("KV", "used %", keep=6),
        Column("KV", "peak %", keep=1),
        Column("KV", "wasted %", keep=6),
        Column("pre-", "empted", keep=2),
    ]
    cells = [_cells(row, rows, question, len(slots) > 1) for row in rows]
    return Table(
        columns=fill(columns, cells),
        title=f"serve: {question.title}",
        lead=question.lead,
        footnotes=tuple(_doubts(rows)),
        notes=(*(("", text) for text in _remarks(question, rows)), *NOTES),
        rows=[_data(row, rows, question) for row in rows],
    )


def _cells(row: Row, rows: Sequence[Row], question: Question, with_slots: bool) -> list[str]:
    outcome, room = row.outcome, question.room
    gain = speed_up(row, rows)
    return [
        row.policy,
        *([f"{row.slots:,}"] if with_slots else []),
        _rate(row),
        UNKNOWN if row.load is None else _percent(row.load),
        _count(outcome.tokens_per_s),
        UNKNOWN if gain is None else format_number(gain),
        _percent(outcome.slots_used),
        *(format_time(value, 3) for value in outcome.ttft_s),
        *(_times(outcome.tbt_s)),
        _percent(outcome.reserved / room),
        _percent(outcome.peak / room),
        _percent(outcome.waste),
        f"{outcome.preemptions:,}",
    ]


def _rate(row: Row) -> str:
    """Write a rate; for a share of the capacity, the requests a second that it is."""
    if row.rate.kind != "capacity" or row.arriving_per_s is None:
        return row.rate.text
    return f"{format_number(row.arriving_per_s)}/s"


def _times(quantiles: Sequence[float]) -> list[str]:
    return [format_time(value, 3) for value in quantiles] or [UNKNOWN] * len(SHARES)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else format_number(value)


def _percent(share: float) -> str:
    return f"<{LEAST * 100:g}" if 0 < share < LEAST else format_percent(share).removesuffix(" %")


def speed_up(row: Row, rows: Sequence[Row]) -> float | None:
    """Return the tokens a second over those of the static policy with padded prompts at the same
    slots in a closed run; None at other rates."""
    if row.rate.kind != "closed":
        return None
    for other in rows:
        if (other.policy, other.slots, other.rate) == ("static, padded", row.slots, row.rate):
            return row.outcome.tokens_per_s / other.outcome.tokens_per_s
    return None


def _doubts(rows: Sequence[Row]) -> list[Note]:
    caveats = dict.fromkeys(caveat for row in rows for caveat in row.caveats)
    return [("Caveat", f"{caveat.message}; {caveat.hint}") for caveat in caveats]


def _remarks(question: Question, rows: Sequence[Row]) -> list[str]:
    remarks = list(question.remarks)
    if not any(row.outcome.caveats for row in rows):
        worst = max(abs(row.outcome.little) for row in rows)
        remarks.append(
            f"Little's law N = λ·W on the requests holds within {worst:.1g} in every run: the "
            "server's own count of requests agrees with their times."
        )
    saved = [row for row in rows if row.outcome.saved]
    for row in saved[:1]:
        mean = row.outcome.saved * question.token_bytes
        remarks.append(
            f"The shared pages of the prefix save {format_bytes(mean)} of the cache on average "
            f"({row.policy}, {row.slots} slots, rate {row.rate.text})."
        )
    return remarks


def _data(row: Row, rows: Sequence[Row], question: Question) -> dict[str, Any]:
    outcome = row.outcome
    return {
        "policy": row.policy,
        "slots": row.slots,
        "rate": row.rate.text,
        "arriving_per_s": row.arriving_per_s,
        "load": row.load,
        "requests": outcome.requests,
        "duration_s": outcome.duration_s,
        "tokens_per_s": outcome.tokens_per_s,
        "requests_per_s": outcome.requests_per_s,
        "times_static_padded": speed_up(row, rows),
        "slots_used": outcome.slots_used,
        **_named("ttft", outcome.ttft_s),
        **_named("tbt", outcome.tbt_s),
        **_cache(outcome, question),
        "preemptions": outcome.preemptions,
        "recomputed_tokens": outcome.recomputed,
        "mean_requests": outcome.present,
        "little_error": outcome.little,
        "caveats": [caveat.kind for caveat in row.caveats],
    }


def _named(name: str, quantiles: Sequence[float]) -> dict[str, float | None]:
    known = dict(zip(QUANTILES, quantiles, strict=False))
    return {f"{name}_{q}_s": known.get(q) for q in QUANTILES}


def _cache(outcome: Outcome, question: Question) -> dict[str, float]:
    each = question.token_bytes
    return {
        "kv_bytes": outcome.reserved * each,
        "kv_peak_bytes": outcome.peak * each,
        "kv_share": outcome.reserved / question.room,
        "kv_wasted": outcome.waste,
        "kv_saved_by_sharing_bytes": outcome.saved * each,
    }
