"""Simulate in-flight batching: sequences join and leave between two passes.

A pass computes at most `chunk` tokens of waiting prompts, in the order of arrival, and one token of
each sequence that decodes. A prompt joins if a slot is free and its pages leave a hundredth of the
cache free. When no page is free, the sequence that joined last is preempted: its pages are freed,
and it waits at the front, to compute its prompt and its tokens so far again.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from gpuperf.theory.serving.load import Load, Server
from gpuperf.theory.serving.log import Clock, Log
from gpuperf.theory.serving.pages import Pages
from gpuperf.theory.serving.steps import Chunk, StepTime

KEPT_FREE = 0.01  # share of the pages: vLLM's default watermark (vllm/core/block_manager.py, 0.6)


def simulate_inflight(load: Load, steps: StepTime, server: Server) -> Log:
    """Return what a server with in-flight batching did with *load*, whose requests fit alone."""
    return InFlight(load, steps, server).run()


class InFlight:
    """A server with its sequences, before the pass number `at`."""

    def __init__(self, load: Load, steps: StepTime, server: Server) -> None:
        self.load, self.steps, self.server = load, steps, server
        self.log = Log.of(len(load))
        self.clock = Clock(load.arrival_s, self.log)
        self.at = 0
        self.begun = 0  # requests that have left the queue of arrivals
        self.preempted: deque[int] = deque()  # requests that wait before the arrivals
        self.joining: deque[list[int]] = deque()  # request, tokens to compute, tokens in the cache
        self.running: dict[int, int] = {}  # request → its tokens in the cache less `at`
        self.ends: list[tuple[int, int]] = []  # heap of the pass before which a request ends
        self.context = 0  # tokens in the cache of all running
        self.prefilled = 0  # tokens that the joining prompts reserve
        self.pages = Pages(server.page)
        self.shared = server.shared_pages * server.page
        self.pages.used = server.shared_pages
        self.written: dict[int, int] = {}  # tokens of a request before it was preempted
        self.stopped_s: dict[int, float] = {}  # when it wrote the last of them
        self.kept = math.ceil(KEPT_FREE * server.pages)

    def run(self) -> Log:
        """Serve all requests, to the last token."""
        clock = self.clock
        while clock.ended < len(self.load):
            self.admit()
            if self.joining:
                self.mixed_pass()
            elif self.running:
                self.decode_passes()
            else:
                clock.idle()
        return self.log

    @property
    def waits(self) -> bool:
        """Whether a request waits for its slot or its pages."""
        return bool(self.preempted) or self.begun < self.clock.arrived

    def admit(self) -> None:
        """Let waiting prompts join, while the coming pass has tokens for them."""
        server, pages = self.server, self.pages
        budget = server.chunk - sum(left for _, left, _ in self.joining)
        while budget > 0 and self.waits and len(self.running) + len(self.joining) < server.slots:
            request = self.preempted[0] if self.preempted else self.begun
            tokens = self.tokens_to_compute(request)
            need = pages.need(tokens)
            kept = self.kept if self.running or self.joining else 0
            if pages.used + need + kept > server.pages:
                return
            if self.preempted:
                self.preempted.popleft()
            else:
                self.begun += 1
            self.joining.append([request, tokens, self.shared])
            self.prefilled += tokens
            pages.used += need
            budget -= tokens

    def tokens_to_compute(self, request: int) -> int:
        """Return the tokens of a prompt beyond the shared pages, with those written so far."""
        prompt = self.server.prefix + self.load.prompt[request] - self.shared
        return prompt + self.written.get(request, 0)

    def mixed_pass(self) -> None:
        """Compute prompts, and one token of each running sequence beside them."""
        self.make_room()
        budget, chunks, complete = self.server.chunk, [], 0
        for entry in self.joining:
            tokens = min(entry[1], budget)
            chunks.append((tokens, entry[2]))
            entry[1] -= tokens
            entry[2] += tokens
            budget -= tokens
            complete += entry[1] == 0
            if budget == 0:
                break
        self.step(1, chunks, complete)
        for _ in range(complete):
            self.begin(self.joining.popleft()[0])
        self.end()

    def decode_passes(self) -> None:
        """Decode until a sequence ends, a request can join, or pages are short."""
        self.make_room()
        free = len(self.running) < self.server.slots and not self.waits
        self.step(self.ends[0][0] - self.at, (), 0, self.clock.next_s if free else math.inf)
        self.end()

    def make_room(self) -> None:
        """Preempt sequences until the next pass has its pages, which keeps the preempted out."""
        while self.pages.used + self.pages.due(self.at) > self.server.pages:
            self.preempt()

    def preempt(self) -> None:
        """Free the pages of the sequence that joined last."""
        if self.joining:
            request, left, cached = self.joining.pop()
            tokens = left + cached - self.shared
            self.prefilled -= tokens
            computed = cached - self.shared
        else:
            request, base = self.running.popitem()
            cached = base + self.at
            tokens = computed = cached - self.shared
            self.pages.leave(cached, self.at)
            self.context -= cached
            self.written[request] = cached - self.server.prefix - self.load.prompt[request] + 1
            self.stopped_s[request] = self.clock.now
            self.ends = [end for end in self.ends if end[1] != request]
            heapify(self.ends)
        self.pages.used -= self.pages.need(tokens)
        self.log.preemptions += 1
        self.log.recomputed += computed
        self.preempted.appendleft(request)

    def begin(self, request: int) -> None:
        """Let a sequence decode whose prompt is computed and has given its first token."""
        tokens = self.tokens_to_compute(request)
        self.prefilled -= tokens
        cached = tokens + self.shared
        self.context += cached
        self.pages.enter(cached, self.at)
        self.running[request] = cached - self.at
        written = self.written.get(request, 0)
        if written:
            self.log.gaps_s.append(self.clock.now - self.stopped_s.pop(request))
        else:
            self.log.first_s[request] = self.clock.now
        heappush(self.ends, (self.at + self.load.output[request] - written - 1, request))

    def end(self) -> None:
        """Let the sequences leave that have written all their tokens."""
        ends, at = self.ends, self.at
        while ends and ends[0][0] == at:
            request = heappop(ends)[1]
            cached = self.running.pop(request) + at
            self.context -= cached
            self.pages.leave(cached, at)
            self.pages.used -= self.pages.need(cached - self.shared)
            self.log.finish_s[request] = self.clock.now
            self.clock.ended += 1

    def step(
        self, most: int, chunks: Sequence[Chunk], begun: int, until_s: float = math.inf
    ) -> None:
        """Take *most* passes, fewer if pages are short or one ends after *until_s*, and log them.

        The passes compute *chunks* of prompts, of which *begun* end.
        """
        pages, context, at, now = self.pages, self.context, self.at, self.clock.now
        writers, held = len(self.running), len(self.running) + len(self.joining)
        first, slope, passes = self.steps.step_s(chunks, writers, context), 0.0, most
        if most > 1:
            passes = pages.fitting(at, most, self.server.pages - pages.used)
        if passes > 1:
            last = self.steps.step_s(chunks, writers, context + writers * (passes - 1))
            slope = (last - first) / (passes - 1)
            passes = passes_until(until_s - now, first, slope, passes)
        duration = passes * first + slope * (passes * (passes - 1) / 2)
        reserved = pages.advance(at, passes) * pages.page
        private = context - writers * self.shared + writers * (passes + 1) / 2
        stored = self.prefilled + self.shared + private
        tokens = writers * passes + begun
        self.log.stretches.append(
            (now, duration, passes, first, slope, writers, tokens, held, stored, reserved)
        )
        self.log.peak = max(self.log.peak, pages.used * pages.page)
        self.at = at + passes
        self.context = context + writers * passes
        self.clock.advance(duration)


def passes_until(wait_s: float, first_s: float, slope_s: float, most: int) -> int:
    """Return how many passes, *most* at most, until one ends after *wait_s* seconds or at it."""
    if wait_s == math.inf:
        return most
    return 1 + bisect_left(
        range(1, most), wait_s, key=lambda n: n * first_s + slope_s * (n * (n - 1) / 2)
    )
