"""A topic that was deleted and made anew under a running worker: both stages end, and go on once they are started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stream.contract.topics import DECISIONS, USAGE
from tests.integration.aggregator.counting import PARTITIONS, Counting, counting, expected_callers
from tests.logfill import Fill, send
from tests.services import KafkaService
from tests.topics import make_anew

FIRST = Fill(decisions=20_000, block=100, callers=50)
#: Longer than the first: the place up to which that was acknowledged is in its middle.
SECOND = Fill(decisions=60_000, block=100, callers=50, epoch=2)


@pytest.fixture
def scene(kafka_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Counting]:
    """A broker, a database and no worker yet, on each kind of broker."""
    with counting(kafka_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


def test_both_stages_end_on_a_new_log_and_count_all_of_it_after_a_restart(scene: Counting) -> None:
    """The worker once stood still for ever, zero messages behind; its supervisor starts it again."""
    stages = {"aggregator.worker": DECISIONS.name, "aggregator.signals": USAGE.name}
    ran = [scene.worker(module=module) for module in stages]
    send(scene.bootstrap, FIRST)
    scene.wait_for(FIRST.total)
    for one in ran:
        one.wait_for_log("counting" if one is ran[0] else "watching")
    for topic in stages.values():
        make_anew(scene.bootstrap, topic, partitions=PARTITIONS)
    assert [1, 1] == [one.wait(30) for one in ran], [one.log for one in ran]
    assert all("was deleted and made anew" in one.log for one in ran)

    send(scene.bootstrap, SECOND)
    again = scene.worker()
    scene.wait_for(FIRST.total + SECOND.total)

    first, second = (expected_callers(fill.totals()) for fill in (FIRST, SECOND))
    both = {name: tuple(map(sum, zip(first[name], second[name], strict=True))) for name in first}
    assert both == scene.by_caller()
    assert again.stop() == 0, again.log
