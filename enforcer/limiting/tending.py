"""Which accounts have fallen idle, which owe, and which can be forgotten: bounded memory for a copy of many callers.

All are queues in order of time, so a round looks only at what is due. Never asks the owner itself.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable

from enforcer.core.account import CHASE_S, LATE_S, Account
from enforcer.core.idle import goes_home
from enforcer.messages import SettleCause
from enforcer.settings import LimiterSettings

#: How late a round may be.
_LATE_NS = round(LATE_S * 1e9)
_CHASE_NS = round(CHASE_S * 1e9)
#: Accounts looked at in one round, so that the lock is never held for long.
_GLANCE = 256


class Tending:
    """Kept under the limiter's lock. `forget` is called with each account that is to be forgotten.

    Accounts whose bucket has come to another node than `node` are that node's to tend: they are let go here. What was
    noted of one before its bucket moved counts no more, even if it came back.
    """

    def __init__(self, settings: LimiterSettings, *, node: str = "") -> None:
        self._node = node
        self.forget: Callable[[Account], None] = lambda _: None
        self._idle_ns = round(settings.idle_settle_s * 1e9)
        self._evict_ns = round(settings.evict_after_s * 1e9)
        self._unannounced: deque[Account] = deque()
        self._unheard: set[Account] = set()
        self._idle: deque[tuple[int, Account, int, int]] = deque()
        self._aging: deque[tuple[int, Account, int]] = deque()
        self._owing: list[tuple[int, int, Account, int]] = []
        self._order = itertools.count()

    def is_behind(self, now_ns: int, *, alone: bool) -> bool:
        """Whether more is due than one round could look at. `alone`: without the owner nothing is settled."""
        queues = (self._aging,) if alone else (self._aging, self._idle, self._owing)
        return any(queue and queue[0][0] <= now_ns for queue in queues) or (bool(self._unannounced) and not alone)

    def announce(self, accounts: Iterable[Account]) -> None:
        """Have the owner told what these hold: it may have lost its state, and must count that before it lends."""
        self._unannounced = deque(account for account in accounts if account.holds_grant)
        self._unheard = set(self._unannounced)

    def is_new_loss(self, adopted: Iterable[Account]) -> bool:
        """Whether the owner took in what these hold because of a loss that the announcing under way does not cover."""
        return not self._unheard.issuperset(adopted)

    def announced(self, accounts: Iterable[Account]) -> None:
        """The owner has been asked for these, for whatever reason: it knows what they hold."""
        if self._unannounced:
            self._unheard.difference_update(accounts)
        else:
            self._unheard.clear()

    def unannounced(self, busy: Collection[Account], *, room: int) -> list[Account]:
        """The next of them, but for those that are asked for anyway."""
        turn = [self._unannounced.popleft() for _ in range(min(room, len(self._unannounced)))]
        mine = [account for account in turn if account.node == self._node and not account.evicted]
        return [account for account in mine if account.holds_grant and account not in busy]

    def watch_idle(self, account: Account, now_ns: int) -> None:
        """Look for this account falling idle."""
        if not account.watched:
            account.watched = True
            self._idle.append((now_ns + self._idle_ns, account, account.moves, account.spent))

    def watch_debt(self, account: Account, now_ns: int) -> None:
        """Have the owner asked for what this account owes, again and again until it is paid."""
        if account.owed > 0 and not account.chased:
            account.chased = True
            self._chase(account, now_ns)

    def watch_age(self, account: Account, now_ns: int) -> None:
        """Forget this account once it has been left alone long enough. Once per account, and each time it moves."""
        self._aging.append((now_ns + self._evict_ns, account, account.moves))

    def fallen_idle(self, now_ns: int, *, busy: Collection[Account], room: int) -> list[Account]:
        """Close the grants of accounts that spent nothing for a while; returns those with totals to state."""
        owing: list[Account] = []
        for _ in range(min(_GLANCE, len(self._idle))):
            if self._idle[0][0] > now_ns or len(owing) >= room:
                break
            _, account, moves, mark = self._idle.popleft()
            if account.moves != moves or account.evicted:
                continue
            spent, next_look_ns = account.spent, now_ns + self._idle_ns
            is_left_alone = account not in busy and spent == mark and now_ns >= account.backoff.until_ns
            if is_left_alone and (account.finals or goes_home(account, next_look_ns + _LATE_NS)):
                if not account.close_all(SettleCause.IDLE, now_ns):
                    account.watched = False
                    continue
                owing.append(account)
            # Looked at again also when it owes: the owner may not hear it this time.
            self._idle.append((next_look_ns, account, moves, spent))
        return owing

    def in_debt(self, now_ns: int, *, busy: Collection[Account], room: int) -> list[Account]:
        """Accounts whose debt may be paid by now."""
        asking: list[Account] = []
        for _ in range(_GLANCE):
            if not self._owing or self._owing[0][0] > now_ns or len(asking) >= room:
                break
            _, _, account, moves = heapq.heappop(self._owing)
            if account.moves != moves:
                continue
            account.chased = account.owed > 0
            if account.chased:
                if account not in busy and now_ns >= max(account.refused_until_ns(1), account.backoff.until_ns):
                    asking.append(account)
                self._chase(account, now_ns)
        return asking

    def _chase(self, account: Account, now_ns: int) -> None:
        due_ns = max(now_ns + _CHASE_NS, account.refused_until_ns(1))
        heapq.heappush(self._owing, (due_ns, next(self._order), account, account.moves))

    def forget_old(self, now_ns: int, waited_for: Collection[Account], *, alone: bool) -> None:
        """Forget accounts without grants, debts or recent requests.

        While `alone`, also not those whose local bucket is not full, or that the owner left with nothing: they would
        come back to a new one.
        """
        for _ in range(min(_GLANCE, len(self._aging))):
            if self._aging[0][0] > now_ns:
                break
            _, account, moves = self._aging.popleft()
            if account.moves != moves or account.evicted:
                continue
            owes = account.holds_grant or account.finals or account.owed > 0
            in_use = owes or account.queued or account in waited_for
            if in_use or now_ns - account.touched_ns < self._evict_ns or (alone and _draws_on_itself(account, now_ns)):
                self._aging.append((now_ns + self._evict_ns, account, moves))
            else:
                self.forget(account)


def _draws_on_itself(account: Account, now_ns: int) -> bool:
    return now_ns < account.current.ready_at_ns or not all(
        bucket.is_full(kind, now_ns) for kind, bucket in account.local.items()
    )
