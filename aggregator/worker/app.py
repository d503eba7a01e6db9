"""Builds the Faust app of either stage; no logic, and nothing is contacted.

No Faust table and no Faust window: their state and their offsets can disagree after a crash. State is the rows in
ClickHouse, written in one INSERT with the offset that they cover.
"""

from __future__ import annotations

import asyncio
from typing import Any

import faust
from mode import CrashingSupervisor

from aggregator.config import AggregatorConfig
from aggregator.worker.agents import add_agent
from aggregator.worker.faust_guard import guard
from aggregator.worker.ports import FaustJob

_MIB = 1024 * 1024


def build_app(config: AggregatorConfig, job: FaustJob, *, group: str, topic: str, agent: str) -> faust.App:
    """The app that feeds `job` from a topic, as a member of the consumer group `group`; `agent` names it in the log.

    To be called inside the running event loop, and started there with ``await app.start()``.
    """
    session_s = config.session_timeout_ms / 1000
    app = faust.App(
        group,
        broker=";".join(f"kafka://{server.strip()}" for server in config.kafka.split(",")),
        loop=asyncio.get_running_loop(),
        store="memory://",
        datadir=config.state_dir,
        agent_supervisor=CrashingSupervisor,
        broker_session_timeout=session_s,
        broker_heartbeat_interval=session_s / 4,
        broker_rebalance_timeout=3 * session_s,
        broker_max_poll_interval=300.0,
        broker_max_poll_records=500,
        broker_commit_interval=1.0,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=4 * _MIB,
        stream_buffer_maxsize=256,
        stream_wait_empty=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        web_enabled=False,
    )
    source = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    add_agent(app, source, job.take, name=agent)

    async def drop(*_: Any, **__: Any) -> None:
        job.drop_all()

    app.on_partitions_revoked.connect(drop, weak=False)
    guard(app, job.durable, fetch_wait_ms=config.fetch_wait_ms or None)
    return app
