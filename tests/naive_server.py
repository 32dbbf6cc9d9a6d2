"""Serve requests pass by pass and sequence by sequence, without shortcuts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gpuperf.theory.serving.inflight import KEPT_FREE
from gpuperf.theory.serving.load import Load, Server
from gpuperf.theory.serving.steps import StepTime


@dataclass
class Request:
    """A request: its tokens in the cache and to compute, and when it wrote its tokens."""

    number: int
    arrival_s: float
    prompt: int
    output: int
    cached: int = 0
    left: int = 0
    room: int = 0  # tokens
    wrote_s: list[float] = field(default_factory=list)


@dataclass
class Served:
    """All requests, the means over the time of the passes, and the preemptions."""

    requests: list[Request]
    stored: float
    reserved: float
    busy_s: float
    preemptions: int = 0

    @property
    def gaps_s(self) -> list[float]:
        """All times between two tokens of a request, in their order."""
        return sorted(
            later - earlier
            for r in self.requests
            for earlier, later in zip(r.wrote_s, r.wrote_s[1:], strict=False)
        )


def requests_of(load: Load, prefix: int) -> list[Request]:
    columns = zip(load.arrival_s, load.prompt, load.output, strict=True)
    return [Request(i, at, prefix + p, o) for i, (at, p, o) in enumerate(columns)]


def serve_inflight(load: Load, steps: StepTime, server: Server) -> Served:
    shared = server.prefix // server.page * server.page
    everyone = requests_of(load, server.prefix)
    coming, waiting, running = list(everyone), [], []  # in order
    served, now = Served(everyone, 0.0, 0.0, 0.0), 0.0

    def pages(tokens: int) -> int:
        return math.ceil(tokens / server.page)

    def used(more: int = 0) -> int:
        own = sum(pages(max(r.room, 0 if r.left else r.cached - shared + more)) for r in running)
        return shared // server.page + own

    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now:
            waiting.append(coming.pop(0))
        budget = server.chunk - sum(r.left for r in running)
        while waiting and budget > 0 and len(running) < server.slots:
            r = waiting[0]
            tokens = r.prompt - shared + len(r.wrote_s)
            kept = math.ceil(KEPT_FREE * server.pages) if running else 0
            if used() + pages(tokens) + kept > server.pages:
                break
            waiting.pop(0)
            r.left, r.cached, r.room = tokens, shared, tokens
            running.append(r)
            budget -= tokens
        while used(more=1) > server.pages:
            served.preemptions += 1
            r = running.pop()
            r.left = r.room = 0
            waiting.insert(0, r)
        decoding, budget, chunks, done = [r for r in running if not r.left], server.chunk, [], []
        for r in running:
            if r.left and budget:
                tokens = min(r.left, budget)
                chunks.append((tokens, r.cached))
                r.left, r.cached, budget = r.left - tokens, r.cached + tokens, budget - tokens
                done += [r] if not r.left else []
        duration = steps.step_s(chunks, len(decoding), sum(r.cached for r in decoding))
        for r in decoding:
            r.cached, r.room = r.cached + 1, 0
        tokens = sum(r.room if r not in decoding else r.cached - shared for r in running)
        served.stored += (tokens + shared) * duration
        served.reserved += used() * server.page * duration
        served.busy_s += duration
        now += duration
        for r in done + decoding:
            r.room = 0
            r.wrote_s.append(now)
            if len(r.wrote_s) == r.output:
                running.remove(r)
    return served


def serve_static(load: Load, steps: StepTime, server: Server, padded: bool) -> Served:
    everyone = requests_of(load, server.prefix)
    coming, now, served = list(everyone), 0.0, Served(everyone, 0.0, 0.0, 0.0)
    while coming:
        now = max(now, coming[0].arrival_s)
        batch: list[Request] = []
        for r in coming[: server.slots]:
            size = [*batch, r]
            prompts = (
                [max(x.prompt for x in size)] * len(size) if padded else [x.prompt for x in size]
            )
            room = sum(prompts) + len(size) * (max(x.output for x in size) - 1)
            if r.arrival_s > now or (batch and room > server.pages * server.page):
                break
            batch = size
        coming = coming[len(batch) :]
        lengths = (
            [max(r.prompt for r in batch)] * len(batch) if padded else [r.prompt for r in batch]
        )
        most = max(r.output for r in batch)
        room = sum(lengths) + len(batch) * (most - 1)
        for i in range(most):
            if i == 0:
                duration = steps.step_s([(length, 0) for length in lengths], 0, 0)
            else:
                duration = steps.step_s((), len(batch), sum(lengths) + len(batch) * (i - 1))
            now += duration
            for r in batch:
                if i < r.output:
                    r.wrote_s.append(now)
                    served.stored += (r.prompt + i) * duration
            served.reserved += room * duration
            served.busy_s += duration
    return served
