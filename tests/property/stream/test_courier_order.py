"""Whatever the client reports, and whatever it delivers without a report: a copy's blocks stand in order on the log."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.config import StreamConfig
from stream.contract.topics import DECISIONS
from stream.courier import Courier
from stream.outbox import Letter, Outbox
from tests.unit.stream.fake_producer import FakeProducer, fault

_FAULTS = [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN, KafkaError._TIMED_OUT, KafkaError._UNKNOWN_TOPIC]


class Broker:
    """One partition, and producers that write to it as gap-less ones do: nothing after what was refused."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.producer = FakeProducer({})
        self.stands_still = False

    def make(self, settings: dict[str, Any]) -> FakeProducer:
        self.producer = FakeProducer(settings)
        self.stands_still = False
        return self.producer

    def append(self, count: int, *, acknowledged: bool) -> None:
        """Take the oldest messages; without acknowledgement the producer will believe them lost."""
        if self.stands_still:
            return
        messages = self.producer.pending[:count]
        self.log += [message["value"] for message in messages]
        if acknowledged:
            self.producer.deliver(len(messages))
        else:
            self.stands_still = True

    def refuse(self, count: int, code: int) -> None:
        if self.producer.pending and not self.stands_still:
            self.stands_still = True
            self.producer.fail(min(count, len(self.producer.pending)), fault(code))


_STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 5)),
    st.tuples(st.just("pump"), st.integers(0, 15)),
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("append unheard"), st.integers(1, 5)),
    st.tuples(st.just("refuse"), st.integers(1, 3)),
    st.tuples(st.just("die"), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(_STEPS, max_size=40), code=st.sampled_from(_FAULTS))
def test_first_copies_of_blocks_stand_in_order(steps: list[tuple[str, int]], code: int) -> None:
    """Live totals pass over a block that comes behind a later one: it would count for nothing."""
    broker, outbox, delivered = Broker(), Outbox(), list[Letter]()
    courier = Courier(
        StreamConfig(),
        "gw-017",
        outbox,
        on_delivered=delivered.append,
        on_refused=delivered.append,
        make_producer=broker.make,
    )
    number, now_s = 0, 0.0
    for what, size in [*steps, *[("pump", 15), ("pump", 15), ("append", 10**6)] * 2]:
        if what == "put":
            for _ in range(size):
                outbox.put(Letter(DECISIONS.name, b"k", b"%d" % number, [], first_seq=number, decisions=1))
                number += 1
        elif what == "pump":
            now_s += size / 10
            courier.pump(now_s=now_s)
        elif what == "refuse":
            broker.refuse(size, code)
        elif what == "die":
            broker.producer.die()
        else:
            broker.append(size, acknowledged=what == "append")
            if broker.stands_still and what == "append unheard":
                broker.producer.die()
    firsts = list(dict.fromkeys(broker.log))
    assert [b"%d" % at for at in range(number)] == firsts
    assert (number, 0) == (len(delivered), len(outbox))
