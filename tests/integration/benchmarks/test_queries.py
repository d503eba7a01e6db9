"""The benchmark of queries asks questions that have answers, of a record like one that grew."""

from __future__ import annotations

import time
from contextlib import closing

from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from benchmarks.queries.asking import Questions, inserting, measured
from benchmarks.queries.filling import CALLERS, DAY_S, Sizes, fill


def test_questions_find_what_was_filled_in_alone_and_beside_a_writer(database_dsn: str) -> None:
    """A question about nothing is answered in no time, and says nothing of one about a month."""
    until_s = int(time.time()) // DAY_S * DAY_S
    migrate(database_dsn)
    sizes = Sizes(decisions=20_000, rolled=100_000, days=2)
    with closing(ClickHouseStore.connect(database_dsn)) as store:
        fill(store, sizes, until_s - 2 * DAY_S)
        usage, all_usage, callers, decided, busiest = store.rows(
            "SELECT (SELECT count() FROM live FINAL WHERE kind = 'usage'), "
            "(SELECT count() FROM live WHERE kind = 'usage'), (SELECT uniqExact(caller) FROM live), "
            "(SELECT count() FROM decisions FINAL), "
            "(SELECT countIf(caller = 'caller-1') / count() FROM live WHERE kind = 'usage')"
        )[0]
        assert (52_000, 52_000, 20_000) == (usage, all_usage, decided)
        assert 1_000 < callers < CALLERS
        assert 0.03 < busiest < 0.06
        with (
            closing(Questions(database_dsn, store, sizes, until_s)) as questions,
            inserting(database_dsn, 2_000, sizes.decisions, until_s) as rate,
        ):
            results = measured(questions, 1)
            assert rate() > 0
    assert {"page_30d_p95_ms", "request_id_p50_ms", "as_of_30d_p95_ms"} <= {one.name for one in results}
    assert all(one.value > 0 and one.must is not None for one in results)
