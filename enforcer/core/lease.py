"""What the fast path reads and writes of a grant, and nothing else.

The limiter spends from `left` without the lock: between reading and storing it there is no call. Whoever else changes
it, under the asker's lock, keeps to the same.
"""

from __future__ import annotations

from enforcer.types import Grant


class Lease:
    """One grant in a copy's hands. Small, because every decision touches it.

    Attributes:
        left: tokens not yet spent; an empty lease counts the tokens refused on it downwards from 0, so that a refusal
            costs what an admission costs. Never above 0 again once the grant's total has been stated as final.
        until_ns: when the copy stops spending it, by its own monotonic clock.
        low: below this many tokens the next grant is asked for; 0 for never.
        refused_until_ns: until when the copy refuses by itself what costs one token; 0 if it may ask.
        ready_at_ns: when there may be a token again, which is what such a refusal says; 0 if nobody knows. Never
            before `refused_until_ns`: the owner is asked again, whatever it said, long before a distant one.
        grant: the grant itself; None for the lease of a caller that never had one.
        adjusted: tokens charged to it after the fact, less those refunded.
    """

    __slots__ = ("adjusted", "grant", "left", "low", "ready_at_ns", "refused_until_ns", "until_ns")

    def __init__(self, grant: Grant | None, *, until_ns: int) -> None:
        self.grant = grant
        self.left = grant.size if grant is not None else 0
        self.until_ns = until_ns
        self.low = 0
        self.refused_until_ns = 0
        self.ready_at_ns = 0
        self.adjusted = 0

    def may_ask(self) -> None:
        """Refuse nothing by itself any more."""
        self.refused_until_ns = self.ready_at_ns = 0

    @property
    def held(self) -> int:
        """Tokens that can be spent."""
        return max(0, self.left)

    @property
    def refused(self) -> int:
        """Tokens that the fast path refused, since this was last taken in."""
        return max(0, -self.left)

    def give_back(self, tokens: int) -> int:
        """Take back tokens that were spent; under the asker's lock, so the grant is still open.

        Returns:
            Refusals counted on the lease meanwhile, which the caller must count elsewhere.
        """
        left = self.left
        self.left = left + tokens if left > 0 else tokens
        return -left if left < 0 else 0

    @property
    def spent(self) -> int:
        """Tokens spent so far; right only while the lease is open."""
        return self.grant.size - self.held if self.grant is not None else 0
