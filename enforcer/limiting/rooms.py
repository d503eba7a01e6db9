"""What each limit of a request has left, by what this copy holds and by the owner's last answers.

Never asks an owner and changes nothing. Everything but `room_held` is called with the lock held, so that what is said
of several limits is of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from enforcer.core.account import Account
from enforcer.core.degrade import FailRule, Fallback, LocalBucket, fallback
from enforcer.core.rooms import Room, room_of_verdict, whole_seconds
from enforcer.limiting.lane import Lane
from enforcer.policies.model import FailMode
from enforcer.types import NEVER_NS, Source, Verdict

_NS_PER_S = 1_000_000_000


def room_held(account: Account, now_ns: int) -> Room:
    """What is left by the grants in hand and the owner's last answer; at `now_ns` of the copy's monotonic clock.

    Without the lock it may miss a grant that is just being turned to: it says too little then, never too much.
    """
    notice = account.notice
    current, upcoming = account.current, account.upcoming
    left = current.left
    left = left if left > 0 else 0
    if upcoming is not None:
        left += upcoming.held
    tokens = account.tokens
    if tokens >= 1:
        left += int(tokens)
    burst = notice.terms.plan.burst
    if left >= burst:
        return Room(notice, burst, 0)
    more_in_s = notice.more_in_s
    if left and more_in_s:
        return Room(notice, left, more_in_s)
    until_ns = current.ready_at_ns if more_in_s else account.turn_ns
    seconds = -((now_ns - until_ns) // _NS_PER_S) if until_ns > now_ns else 0
    return Room(notice, left, seconds if seconds > more_in_s else more_in_s)


def all_rooms(
    lane: Lane,
    verdict: Verdict,
    *,
    is_away: Callable[[Account, int], bool],
    rule: FailRule,
    open_capped: Mapping[Fallback, LocalBucket],
) -> tuple[Room, ...]:
    """The rooms of all limits of a lane, after this verdict; the one that refused is as the verdict says.

    Args:
        lane: of the verdict's caller and scope.
        verdict: on a request of it.
        is_away: whether an account's owner cannot be asked at that time.
        rule: how this copy decides alone.
        open_capped: the local buckets of this copy that all callers share.
    """
    now_ns = verdict.at_ns
    rooms = []
    for account in lane.accounts:
        if is_away(account, now_ns):
            rooms.append(_room_alone(account, lane.resolution.fail_mode, now_ns, rule=rule, open_capped=open_capped))
        else:
            rooms.append(room_held(account, now_ns))
    if verdict.allowed or verdict.source is Source.CAP:
        return tuple(rooms)
    if verdict.ready_at_ns == NEVER_NS:
        # No wait helps this request, so none may be named: a client takes the longest for when to try again.
        return tuple(Room(room.notice, room.left, 0) for room in rooms)
    told = room_of_verdict(verdict)
    number = next((number for number, room in enumerate(rooms) if room.notice.terms == told.notice.terms), None)
    if number is None:
        return (told,)
    # The verdict knows when, but of a large cost not how much: what is left at the owner was too little for it alone.
    left = told.left if verdict.source is Source.DEGRADED else min(rooms[number].left, verdict.cost - 1)
    rooms[number] = Room(told.notice, max(told.left, left), told.more_in_s)
    return tuple(rooms)


def _room_alone(
    account: Account,
    mode: FailMode,
    now_ns: int,
    *,
    rule: FailRule,
    open_capped: Mapping[Fallback, LocalBucket],
) -> Room:
    """What this copy would still admit while the owner is away: what it holds, or else its own bucket."""
    notice = account.notice
    kind = fallback(rule, account.plan, mode, k=account.k, per=account.due.per)
    bucket = (open_capped if mode is FailMode.OPEN_CAPPED else account.local).get(kind)
    first_left = kind.capacity if mode is FailMode.OPEN_CAPPED else min(kind.capacity, account.left_at_owner(now_ns))
    left = bucket.remaining if bucket is not None else int(first_left)
    for lease in (account.current, account.upcoming):
        if lease is not None and lease.left > 0 and (mode is not FailMode.CLOSED or now_ns < lease.until_ns):
            left = lease.left
            break
    burst = notice.terms.plan.burst
    more_in_s = whole_seconds(1 / kind.rate_per_s) if kind.rate_per_s > 0 and left < burst else 0
    return Room(notice, min(left, burst), more_in_s)
