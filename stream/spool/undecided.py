"""Grants and settlements that were sealed while nobody knew how many partitions there are: shared out once it is known.

Pure. What has a place, or has none to be decided, stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from enforcer.identity import CopyIdentity
from enforcer.sink import CostChanged, GrantIssued, GrantSettled
from stream.contract.envelope import Headers
from stream.contract.facts import decode_facts, encode_facts
from stream.contract.partition import grants_partition
from stream.outbox import Letter


def is_undecided(letter: Letter) -> bool:
    """Whether it holds facts of callers that belong to different partitions."""
    return letter.facts > 0 and letter.partition is None


def share_out(letter: Letter, *, partitions: int) -> list[Letter]:
    """One letter for each partition that its callers belong to; the same ones however often it is done.

    Raises:
        CorruptBlock: its value is not facts.
    """
    found = decode_facts(letter.value)
    shares: defaultdict[int, tuple[list[GrantIssued], list[GrantSettled], list[CostChanged]]]
    shares = defaultdict(lambda: ([], [], []))
    for grant in found.grants:
        shares[grants_partition(grant.caller, partitions)][0].append(grant)
    for settlement in found.settlements:
        shares[grants_partition(settlement.caller, partitions)][1].append(settlement)
    for cost in found.costs:
        shares[grants_partition(cost.caller, partitions)][2].append(cost)
    identity = CopyIdentity(found.copy_id, found.epoch)
    return [
        replace(
            letter,
            value=encode_facts(identity, *share),
            headers=_named(letter.headers, partition),
            partition=partition,
            facts=sum(len(facts) for facts in share),
        )
        for partition, share in sorted(shares.items())
    ]


def _named(headers: Headers, partition: int) -> Headers:
    """The headers, with an id of its own for each share."""
    return [(name, value + b"-%d" % partition if name == "ce_id" else value) for name, value in headers]
