"""The owner of one bucket, as pure arithmetic: the specification that `grant.lua` computes to the last bit.

`answer` settles, refills, counts k, lends and says when to come back. Time, state and chance are arguments; it never
does I/O and never changes the state that it is given.
"""

from __future__ import annotations

import math

import msgspec

from enforcer.core import quota, sizing
from enforcer.core.dials import LONGEST_US, Dials
from enforcer.core.sizing import MICRO
from enforcer.core.state import Bucket, Member, OpenGrant, Tombstone, copied, full_bucket, step_clock, unspent_stock
from enforcer.messages import Answer, Ask, Credit, Settlement
from enforcer.types import Grant

#: Open grants of one member beyond which it is lent nothing more: the protocol needs two and a lost one.
MOST_OPEN = 8
#: Given-back grants of one member that can still be settled; the oldest go first.
MOST_TOMBSTONES = 8


_STRANGER = Member(0, 0, (), ())


def answer(bucket: Bucket | None, ask: Ask, now_us: int, dials: Dials) -> tuple[Bucket, Answer]:
    """Answer one ask: the next state, and what the copy is told.

    Args:
        bucket: the state; None for a caller not seen before, or forgotten: its bucket is full.
        ask: already through `check_ask`.
        now_us: the owner's clock.
        dials: of the owner; the same for all asks.

    Raises:
        OutsideCalendar: the ask names turns, and `now_us` is not among them; there is no next state.
    """
    burst_micro = ask.plan.burst * MICRO
    work = full_bucket(burst_micro, now_us, dials) if bucket is None else copied(bucket)
    now_us = step_clock(work, now_us, dials)
    end_us = quota.turn(work, ask, now_us) if ask.turns else None
    # Of a quota only the present period's grants count: what an earlier one gives back is void.
    since_us = 0 if end_us is None else work.period_start_us
    elapsed_us = now_us - work.clock_us
    work.clock_us = now_us

    member = work.members.get(ask.member, _STRANGER)
    fresh = ask.ask_no > member.ask_no
    settled, credit = _settle(work, member, ask.settlements, reclaim=fresh, since_us=since_us)
    work.members[ask.member] = settled
    credited: list[Credit] = []
    if now_us >= work.next_scan_us + dials.grace_us:
        credited = _expire(work, ask, now_us, dials)
        credit += sum(given.size - given.spent for given in credited if given.grant_id >= since_us)
    work.tokens_micro = min(burst_micro, work.tokens_micro + credit * MICRO)
    adopted = _adopt(work, ask, member, now_us, dials, since_us=since_us) if fresh else 0
    _refill(work, ask, elapsed_us, dials, fresh=fresh)

    k = _count_k(work, member, now_us, dials, counts=fresh and ask.waiting + ask.want > 0)
    grant, wait_ms = _lend(work, ask, now_us, k, dials, fresh=fresh, end_us=end_us)
    _keep(work, ask, now_us, dials, end_us=end_us)
    told = Answer(
        grant,
        k,
        work.tokens_micro / MICRO,
        wait_ms,
        now_us,
        tuple(credited),
        adopted=adopted,
        clock_back=work.clock_back,
    )
    return work, told


def _settle(
    work: Bucket, member: Member, settlements: tuple[Settlement, ...], *, reclaim: bool, since_us: int
) -> tuple[Member, int]:
    """State the totals; give back what a newer ask does not name, for its answer never arrived."""
    credit = 0
    still_open: list[OpenGrant] = []
    for grant in member.open:
        named = [s for s in settlements if s.grant_id == grant.grant_id]
        spent = _total(grant.spent, named)
        work.stock_out -= unspent_stock(grant)
        if any(s.final for s in named) or (reclaim and not named):
            credit += grant.size - spent if grant.grant_id >= since_us else 0
        else:
            kept = OpenGrant(grant.grant_id, grant.expires_at_us, grant.size, grant.stock, spent)
            work.stock_out += unspent_stock(kept)
            still_open.append(kept)
    tombstones: list[Tombstone] = []
    for stone in member.tombstones:
        named = [s for s in settlements if s.grant_id == stone.grant_id]
        spent = _total(stone.spent, named)
        credit -= spent - stone.spent if stone.grant_id >= since_us else 0
        if not any(s.final for s in named):
            tombstones.append(Tombstone(stone.grant_id, stone.until_us, stone.size, spent))
    return Member(member.ask_no, member.seen_us, tuple(still_open), tuple(tombstones)), credit


def _total(known: int, named: list[Settlement]) -> int:
    """What was spent of a grant: the final total if it is stated (refunds may have lowered it), else the highest."""
    finals = [s.spent for s in named if s.final]
    return max(finals) if finals else max([known, *(s.spent for s in named)])


def _adopt(work: Bucket, ask: Ask, known: Member, now_us: int, dials: Dials, *, since_us: int) -> int:
    """Take in grants that this copy holds and the owner has no record of: it has lost its state. Returns how many."""
    ids = {grant.grant_id for grant in known.open} | {stone.grant_id for stone in known.tombstones}
    burst_micro = ask.plan.burst * MICRO
    before = len(work.members[ask.member].open)
    for stated in ask.settlements:
        member, grant_id = work.members[ask.member], stated.grant_id
        if stated.final or stated.size == 0 or grant_id in ids or len(member.open) >= MOST_OPEN:
            continue
        # An id further ahead than a grant lasts is of another clock: no later one could be above it.
        if not since_us <= grant_id <= now_us + dials.expiry_us:
            continue
        named = [s for s in ask.settlements if s.grant_id == grant_id]
        # One past its expiry would be given back at once.
        if any(s.final for s in named) or now_us >= stated.expires_at_us + dials.grace_us:
            continue
        ids.add(grant_id)
        spent = _total(0, named)
        stock = max(0, stated.size - spent)
        # What was spent of a quota is used up in this period, whoever remembers it.
        debit = max(stated.size, spent) if ask.turns else stock
        work.tokens_micro = max(min(work.tokens_micro, -burst_micro), work.tokens_micro - debit * MICRO)
        work.stock_out += stock
        work.lent += stock
        work.last_grant_id = max(work.last_grant_id, grant_id)
        expires_us = min(stated.expires_at_us, now_us + dials.expiry_us)
        work.next_scan_us = min(work.next_scan_us, expires_us)
        adopted = OpenGrant(grant_id, expires_us, stated.size, stock, spent)
        work.members[ask.member] = msgspec.structs.replace(member, open=(*member.open, adopted))
    return len(work.members[ask.member].open) - before


def _expire(work: Bucket, ask: Ask, now_us: int, dials: Dials) -> list[Credit]:
    """Give back all grants that expired unsettled, forget idle members, and note when to look again.

    A quota takes them for spent instead, until their total says otherwise: nothing would make up for what was given
    back and had been spent.
    """
    credited: list[Credit] = []
    next_us = now_us + dials.keep_us
    for name, member in list(work.members.items()):
        still_open: list[OpenGrant] = []
        stones = [stone for stone in member.tombstones if now_us < stone.until_us <= now_us + dials.keep_us]
        for grant in member.open:
            # An expiry further off than any grant lasts was set by a clock that has since been put back.
            if now_us < grant.expires_at_us + dials.grace_us and grant.expires_at_us <= now_us + dials.expiry_us:
                still_open.append(grant)
                next_us = min(next_us, grant.expires_at_us)
                continue
            work.stock_out -= unspent_stock(grant)
            spent = max(grant.size, grant.spent) if ask.turns else grant.spent
            credited.append(Credit(grant.grant_id, name, grant.size, spent))
            stones.append(Tombstone(grant.grant_id, now_us + dials.keep_us, grant.size, spent))
        stones = stones[-MOST_TOMBSTONES:]
        idle = not now_us - dials.keep_us < member.seen_us <= now_us
        if idle and not still_open and not stones and name != ask.member:
            del work.members[name]
        else:
            work.members[name] = Member(member.ask_no, member.seen_us, tuple(still_open), tuple(stones))
    work.next_scan_us = next_us
    return sorted(credited, key=lambda given: given.grant_id)


def _refill(work: Bucket, ask: Ask, elapsed_us: int, dials: Dials, *, fresh: bool) -> None:
    """Let time pass: lent tokens count less, the bucket fills, the average of the offered load moves."""
    plan = ask.plan
    if ask.turns:
        work.lent = work.offered_per_s = 0.0
        return
    work.lent = min(work.lent * sizing.decay(elapsed_us, dials.lent_decay_us), float(work.stock_out))
    work.tokens_micro = sizing.refilled(
        work.tokens_micro, rate_per_s=plan.rate_per_s, burst=plan.burst, lent=work.lent, elapsed_us=elapsed_us
    )
    constant_us = sizing.offered_constant_us(rate_per_s=plan.rate_per_s, burst=plan.burst, dials=dials)
    work.offered_per_s *= sizing.decay(elapsed_us, constant_us)
    if fresh:
        work.offered_per_s += ask.offered / constant_us * 1_000_000.0


def _count_k(work: Bucket, member: Member, now_us: int, dials: Dials, *, counts: bool) -> int:
    """Distinct copies that asked in this window or in the one before, whichever are more."""
    window = now_us // dials.k_window_us
    if window != work.window:
        work.k_before = work.k_now if window == work.window + 1 else 0
        work.k_now = 0
        work.window = window
    if counts and member.seen_us // dials.k_window_us != window:
        work.k_now += 1
    return max(work.k_now, work.k_before)


def _lend(
    work: Bucket, ask: Ask, now_us: int, k: int, dials: Dials, *, fresh: bool, end_us: int | None
) -> tuple[Grant | None, int]:
    """Serve the waiting, then lend stock; and say how long to refuse once that is spent."""
    plan = ask.plan
    press = sizing.pressure(work.offered_per_s, rate_per_s=plan.rate_per_s, dials=dials)
    overdraft = sizing.overdraft_micro(work.stock_out, burst=plan.burst, dials=dials) if end_us is None else 0.0
    give = stock = 0
    open_to_all = end_us is None or quota.may_lend(work, now_us, end_us)
    if fresh and open_to_all and len(work.members[ask.member].open) < MOST_OPEN:
        give = min(ask.waiting, sizing.whole_tokens(work.tokens_micro + overdraft))
        work.tokens_micro -= give * MICRO
        if give == ask.waiting and ask.want > 0:
            stock = _stock(work, ask, k, press, dials)
            work.tokens_micro -= stock * MICRO
    grant = _record(work, ask, dials, give=give, stock=stock, now_us=now_us, k=k, fresh=fresh, end_us=end_us)
    if end_us is not None:
        elsewhere = work.stock_out - sum(unspent_stock(held) for held in work.members[ask.member].open)
        return grant, quota.refused_for_ms(
            work, elsewhere=elsewhere, now_us=now_us, end_us=end_us, jitter=ask.jitter, dials=dials
        )
    wait_ms = sizing.refused_for_ms(
        work.tokens_micro,
        overdraft=overdraft,
        rate_per_s=plan.rate_per_s,
        k=k,
        press=press,
        jitter=ask.jitter,
        dials=dials,
    )
    return grant, wait_ms


def _stock(work: Bucket, ask: Ask, k: int, press: float, dials: Dials) -> int:
    """Tokens to lend beyond what waits. Of a quota all that is lent is debited, so its sum needs no bound."""
    plan = ask.plan
    if ask.turns:
        return max(0, math.floor(sizing.share(work.tokens_micro, want=ask.want, burst=plan.burst, k=k, dials=dials)))
    return sizing.stock_size(
        work.tokens_micro,
        want=ask.want,
        rate_per_s=plan.rate_per_s,
        burst=plan.burst,
        own_rate_per_s=ask.rate_per_s,
        k=k,
        stock_out=work.stock_out,
        press=press,
        dials=dials,
    )


def _record(
    work: Bucket,
    ask: Ask,
    dials: Dials,
    *,
    give: int,
    stock: int,
    now_us: int,
    k: int,
    fresh: bool,
    end_us: int | None,
) -> Grant | None:
    """Write the grant down, and that this member asked."""
    member = work.members[ask.member]
    open_grants = member.open
    grant = None
    if give + stock > 0:
        expires_us = now_us + dials.expiry_us
        if end_us is None:
            work.last_grant_id = max(now_us, work.last_grant_id + 1)
        else:
            expires_us = min(expires_us, end_us)
            work.last_grant_id = quota.next_grant_id(work, now_us)
        work.stock_out += stock
        work.lent += stock if end_us is None else 0
        grant = Grant(work.last_grant_id, give + stock, k, now_us, expires_us)
        work.next_scan_us = min(work.next_scan_us, expires_us)
        open_grants = (*open_grants, OpenGrant(grant.grant_id, expires_us, grant.size, stock, 0))
    seen_us = now_us if fresh and ask.waiting + ask.want > 0 else member.seen_us
    work.members[ask.member] = Member(max(member.ask_no, ask.ask_no), seen_us, open_grants, member.tombstones)
    return grant


def _keep(work: Bucket, ask: Ask, now_us: int, dials: Dials, *, end_us: int | None) -> None:
    """Note how long the state is needed: until it says no more than a new one would."""
    if end_us is None:
        full_us = min(float(LONGEST_US), (ask.plan.burst * MICRO - work.tokens_micro) / ask.plan.rate_per_s)
    else:
        full_us = min(float(LONGEST_US), float(end_us - now_us))
    needed_us = now_us + max(math.ceil(full_us), dials.expiry_us + dials.grace_us + dials.keep_us)
    if needed_us > work.forget_at_us:
        work.forget_at_us = needed_us + dials.keep_us
