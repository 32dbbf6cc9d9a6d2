"""Count the pages of a cache whose sequences all grow by one token a pass."""

from __future__ import annotations


class Pages:
    """The pages in use, without a loop over sequences.

    A sequence of length x at pass d needs a page when x is a multiple of the page size, so its next
    page falls on the passes that are −(x − d) modulo the page size: one count for each residue.
    """

    def __init__(self, page: int) -> None:
        self.page = page
        self.used = 0
        self.sequences = 0
        self._due = [0] * page

    def need(self, tokens: int) -> int:
        """Return the pages of *tokens* tokens."""
        return -(-tokens // self.page)

    def enter(self, tokens: int, at: int) -> None:
        """Let a sequence of *tokens* tokens, whose pages are in use already, grow from pass *at*
        on."""
        self.sequences += 1
        self._due[(at - tokens) % self.page] += 1

    def leave(self, tokens: int, at: int) -> None:
        """End the growth of a sequence, of *tokens* tokens before pass *at*."""
        self.sequences -= 1
        self._due[(at - tokens) % self.page] -= 1

    def due(self, at: int) -> int:
        """Return the pages that pass *at* needs."""
        return self._due[at % self.page]

    def fitting(self, at: int, passes: int, free: int) -> int:
        """Return how many of *passes* passes from *at* on need at most *free* pages together."""
        if self.sequences * -(-passes // self.page) <= free:
            return passes
        for done in range(passes):
            free -= self._due[(at + done) % self.page]
            if free < 0:
                return done
        return passes

    def advance(self, at: int, passes: int) -> float:
        """Take the pages of *passes* passes from *at* on into use; return the mean use in them."""
        added = area = 0
        for done in range(min(passes, self.page)):
            due = self._due[(at + done) % self.page]
            if due:
                left = passes - done  # passes with this page in use, this one included
                times = (left - 1) // self.page + 1
                added += due * times
                area += due * (times * left - self.page * times * (times - 1) // 2)
        mean = self.used + area / passes
        self.used += added
        return mean
