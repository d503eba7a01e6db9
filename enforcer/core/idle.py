"""Whether a copy that spent nothing for a while gives back what it holds. Pure: the time is an argument.

Giving back one token costs a call, and asking for it again another; keeping many keeps them from other copies.
"""

from __future__ import annotations

from enforcer.core.account import STOCK_S, Account
from enforcer.core.dials import DEFAULT_DIALS

#: Longest time that an expired grant's total is left unsaid: half of what the owner waits for, unless told otherwise.
_UNSETTLED_NS = DEFAULT_DIALS.grace_us * 1_000 // 2


def goes_home(account: Account, next_look_ns: int) -> bool:
    """Whether an idle copy gives everything back now, or keeps it until `next_look_ns` at least.

    It keeps what its own rate would use, as much as it would ask for as stock. But no grant is kept for long past its
    expiry: the owner would give it back without knowing what was spent of it, and lend those tokens again.
    """
    if not account.holds_grant or account.held > account.rate_per_s * STOCK_S:
        return True
    latest_ns = next_look_ns - _UNSETTLED_NS
    upcoming = account.upcoming
    return account.current.until_ns < latest_ns or (upcoming is not None and upcoming.until_ns < latest_ns)
