"""Facts that were sealed while nobody knew the partitions find theirs when it is known."""

from __future__ import annotations

from collections import Counter

from enforcer.sink import CostChanged
from stream.contract.facts import decode_facts
from stream.contract.partition import grants_partition
from stream.fault_log import FaultLog
from stream.sealing import Fact, Sealer
from stream.spool.undecided import is_undecided, share_out
from tests.unit.stream.spool.letters import block
from tests.verdicts import IDENTITY, grant, settlement


def test_every_fact_is_in_one_share_in_the_callers_partition() -> None:
    """A reader of one partition has all of a caller, and only its own callers."""
    facts: list[Fact] = [grant(f"acct-{number}", grant_id=number) for number in range(20)]
    facts += [settlement(f"acct-{number}", grant_id=number) for number in range(20)]
    facts += [CostChanged("acct-3", "GET /", 1, 2, 0, 5)]
    ((whole,), lost) = Sealer(IDENTITY, max_message_bytes=10**6, faults=FaultLog()).facts(facts, partitions=None)
    assert (None, True, 41, 0) == (whole.partition, is_undecided(whole), whole.facts, lost)
    shares = share_out(whole, partitions=4)
    found: Counter[str] = Counter()
    for share in shares:
        read = decode_facts(share.value)
        members: list[Fact] = [*read.grants, *read.settlements, *read.costs]
        assert {share.partition} == {grants_partition(one.caller, 4) for one in members}
        assert (len(members), IDENTITY.copy_id, IDENTITY.epoch) == (share.facts, read.copy_id, read.epoch)
        found.update(map(repr, members))
    assert Counter(map(repr, facts)) == found
    ids = [dict(share.headers)["ce_id"] for share in shares]
    assert len(set(ids)) == len(shares) == 4
    assert ids == [dict(share.headers)["ce_id"] for share in share_out(whole, partitions=4)]


def test_block_of_decisions_is_never_undecided() -> None:
    """Its key says where it goes."""
    assert not is_undecided(block(0))
