"""Simulate static batching: a batch starts together, and ends with its longest output.

When a batch has ended, the server takes the requests that wait, in their order. It keeps all slots
of a batch to its end: a sequence that has written its last token costs as much as before. Prompts
are padded to the longest, or computed at their own lengths (ragged). The cache of a batch is
reserved for its longest output, which a real server cannot know before.
"""

from __future__ import annotations

from gpuperf.theory.serving.load import Load, Server
from gpuperf.theory.serving.log import Clock, Log
from gpuperf.theory.serving.steps import StepTime


def simulate_static(load: Load, steps: StepTime, server: Server, padded: bool) -> Log:
    """Return what a server with static batching did with *load*, whose requests fit alone."""
    return Static(load, steps, server, padded).run()


class Static:
    """A server that serves one batch after the other."""

    def __init__(self, load: Load, steps: StepTime, server: Server, padded: bool) -> None:
        self.load, self.steps, self.server, self.padded = load, steps, server, padded
        self.log = Log.of(len(load))
        self.clock = Clock(load.arrival_s, self.log)

    def run(self) -> Log:
        """Serve all requests, to the last token."""
        while self.clock.ended < len(self.load):
            if self.clock.arrived == self.clock.ended:
                self.clock.idle()
            self.serve(self.batch())
        return self.log

    def batch(self) -> range:
        """Return the requests of the next batch, which have a slot and fit into the cache."""
        begin, room = self.clock.ended, self.server.pages * self.server.page
        most = min(self.clock.arrived, begin + self.server.slots)
        total = longest = output = 0
        for request in range(begin, most):
            prompt = self.server.prefix + self.load.prompt[request]
            total, longest = total + prompt, max(longest, prompt)
            output = max(output, self.load.output[request] - 1)
            size = request - begin + 1
            if size > 1 and size * output + (size * longest if self.padded else total) > room:
                return range(begin, request)
        return range(begin, most)

    def serve(self, batch: range) -> None:
        """Compute the prompts of *batch*, then decode until its longest output ends."""
        prompts = [self.server.prefix + self.load.prompt[request] for request in batch]
        own = sum(prompts)
        if self.padded:
            prompts = [max(prompts)] * len(prompts)
        size, context = len(prompts), sum(prompts)
        passes = max(self.load.output[request] for request in batch) - 1
        reserved = context + size * passes
        self.log.peak = max(self.log.peak, reserved)
        first = self.steps.step_s([(prompt, 0) for prompt in prompts], 0, 0)
        start = self.clock.now
        self.clock.advance(first)
        self.log.stretches.append((start, first, 1, first, 0.0, 0, size, size, own, reserved))
        for request in batch:
            self.log.first_s[request] = self.clock.now
        if passes:
            self.decode(batch, context, own, reserved)
        else:
            self.leave(batch)

    def decode(self, batch: range, context: int, stored: int, reserved: int) -> None:
        """Decode the tokens of *batch* after the first, a stretch between two ends of outputs."""
        output, size = self.load.output, len(batch)
        order = sorted(batch, key=output.__getitem__)
        passes = output[order[-1]] - 1
        first = self.steps.step_s((), size, context)
        last = self.steps.step_s((), size, context + size * (passes - 1))
        slope = (last - first) / max(1, passes - 1)
        done = ended = 0
        while ended < size:
            until, writers = output[order[ended]] - 1, size - ended
            if (count := until - done) > 0:
                begin = first + slope * done
                duration = count * begin + slope * (count * (count - 1) / 2)
                start, tokens = self.clock.now, stored + writers * (count + 1) / 2
                self.clock.advance(duration)
                self.log.stretches.append(
                    (
                        start,
                        duration,
                        count,
                        begin,
                        slope,
                        writers,
                        writers * count,
                        size,
                        tokens,
                        reserved,
                    )
                )
                stored += writers * count
                done = until
            while ended < size and output[order[ended]] - 1 == until:
                request = order[ended]
                stored -= self.server.prefix + self.load.prompt[request] + until
                self.leave([request])
                ended += 1

    def leave(self, requests: range | list[int]) -> None:
        """Let *requests* leave, with their last token."""
        for request in requests:
            self.log.finish_s[request] = self.clock.now
            self.clock.ended += 1
