"""Who sends what in the demonstration: callers of several plans, some inside them, some far over. Pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemoCaller:
    """One customer of the demonstration.

    Attributes:
        name: the caller, as in the demonstration's policy file.
        share: its part of the whole request rate; all shares add up to 1.
        most_per_s: it never sends more than this, so that it stays inside its plan; None: it knows no bound, and
            takes what the bounded ones leave.
        reach: how many copies its connections reach; 0 for all of them.
        story: what a reader should expect to see on its page.
    """

    name: str
    share: float
    most_per_s: float | None
    reach: int
    story: str


#: Paths and how often they are called, of 10.
PATHS: tuple[tuple[str, int], ...] = (("/search?q=lamp", 5), ("/orders/{number}", 4), ("/reports/daily", 1))

CALLERS: tuple[DemoCaller, ...] = (
    DemoCaller("acme", 0.10, 70.0, 0, "standard plan, inside it, on every copy"),
    DemoCaller("birch", 0.01, 7.0, 1, "free plan, inside it, on one copy"),
    DemoCaller("cobalt", 0.15, None, 1, "free plan, far over it, on one copy"),
    DemoCaller("dahlia", 0.45, None, 0, "standard plan, far over it, on every copy"),
    DemoCaller("ember", 0.25, 1_500.0, 0, "enterprise plan, inside it, on every copy"),
    DemoCaller("fern", 0.04, None, 2, "free plan, over it, on two copies"),
)


def rates(total_per_s: float) -> dict[str, float]:
    """Requests per second of each caller; they add up to the whole rate."""
    bounded = {
        caller.name: min(caller.share * total_per_s, caller.most_per_s)
        for caller in CALLERS
        if caller.most_per_s is not None
    }
    free = [caller for caller in CALLERS if caller.most_per_s is None]
    left, shares = total_per_s - sum(bounded.values()), sum(caller.share for caller in free)
    return bounded | {caller.name: left * caller.share / shares for caller in free}


def path_of(number: int) -> str:
    """The path of a caller's request with this number: the same mix for everyone, in a fixed order."""
    place = number % sum(weight for _, weight in PATHS)
    for path, weight in PATHS:
        if place < weight:
            return path.format(number=number)
        place -= weight
    raise AssertionError("the weights of PATHS add up to the modulus")
