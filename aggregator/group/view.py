"""What the broker says of a consumer group. Reads only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from aggregator.broker import LogUnavailable
from stream.admin import admin_client, fault_of

#: How the name of a member ends, with every client: a UUID. Where Apache Kafka names an assignor, the embedded broker
#: names the group's leader.
_MEMBER = re.compile(r".*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORDS = {
    ConsumerGroupState.UNKNOWN: "being formed",
    ConsumerGroupState.PREPARING_REBALANCING: "waiting for its members",
    ConsumerGroupState.COMPLETING_REBALANCING: "dealing out its partitions",
    ConsumerGroupState.STABLE: "stable",
    ConsumerGroupState.EMPTY: "empty",
    ConsumerGroupState.DEAD: "gone",
}


@dataclass(frozen=True, slots=True)
class GroupNow:
    """A group at one moment.

    Attributes:
        said: its state, in words.
        leader: the member that deals out partitions, if the broker tells; only the embedded one does.
        forming: whether a leader that leaves now would be waited for, for ever: the embedded broker, while the group is
            being formed. Never true on Apache Kafka, whose coordinator chooses another leader.
        members: how many it has, None where the broker does not list them.
    """

    said: str
    leader: str | None
    forming: bool
    members: int | None

    def leader_other_than(self, member: str) -> str | None:
        """Who leads the group although it is not this member, and deals out nothing; None if that cannot be said."""
        return self.leader if self.leader != member and self.said != _WORDS[ConsumerGroupState.STABLE] else None


class GroupView:
    """Asks one broker about one group. Blocking.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        group: its id.
        timeout_s: longest wait for an answer.
    """

    def __init__(self, bootstrap: str, group: str, *, timeout_s: float) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self._timeout_s = timeout_s

    @cached_property
    def _admin(self) -> AdminClient:
        return admin_client(self.bootstrap, timeout_s=self._timeout_s)

    def look(self) -> GroupNow:
        """Ask.

        Raises:
            LogUnavailable: the broker does not say.
        """
        future = self._admin.describe_consumer_groups([self.group], request_timeout=self._timeout_s)[self.group]
        try:
            # The client's stubs say a dictionary of these; it is one of these.
            found = cast("ConsumerGroupDescription", future.result(self._timeout_s))
        except (KafkaException, TimeoutError) as error:
            why = fault_of(error).str() if isinstance(error, KafkaException) else "no answer in time"
            raise LogUnavailable(
                f"Kafka at {self.bootstrap} (TALLYGATE_KAFKA) did not say how the group {self.group} is: {why}"
            ) from error
        leader = found.partition_assignor if _MEMBER.fullmatch(found.partition_assignor or "") else None
        return GroupNow(
            said=_WORDS.get(found.state, "in no state that is known here"),
            leader=leader,
            forming=found.state is ConsumerGroupState.UNKNOWN,
            members=len(found.members) if leader is None else None,
        )
