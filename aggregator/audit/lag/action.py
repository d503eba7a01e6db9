"""The action ``tallygate audit lag``: asks how far every reader is, and says which one stands.

Unlike the other actions it asks for the time: of the same record it says something else a minute later.
"""

from __future__ import annotations

import argparse

from aggregator.audit.lag.judging import Night, judged
from aggregator.audit.lag.reading import LagReading
from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.store import ColumnStore
from aggregator.words import Answer, add_json

HELP = "which reader of the log is behind, by how much and since when; dead letters; whether a replay runs"
_WITHIN_S = 60
_MOST_S = 86_400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `aggregator.audit.command.Action`."""
    parser.add_argument(
        "--within", type=_within_s, default=_WITHIN_S, metavar="SECONDS",
        help=f"a reader may be behind by so much ({_WITHIN_S})",
    )  # fmt: skip
    parser.add_argument("--log", action="store_true", help="ask Kafka (TALLYGATE_KAFKA), too, where the log ends")
    add_json(parser)


def run(options: argparse.Namespace, store: ColumnStore) -> int:
    """See `aggregator.audit.command.Action`: 1 if a reader is behind by more than ``--within``; 3 if nobody can say."""
    return find(store, AggregatorConfig.from_env(), within_s=options.within, log=options.log).tell(options)


def find(
    store: ColumnStore, config: AggregatorConfig, *, within_s: int = _WITHIN_S, log: bool = False,
    now_us: int | None = None,
) -> Answer:  # fmt: skip
    """How far every reader is.

    Args:
        store: the record.
        config: its settings: where the log is, the settler's grace.
        within_s: what is behind by more than this is called behind.
        log: whether to ask the log itself, too. If it does not answer that is a finding, and the record's word stands.
        now_us: the time to judge by; the database's clock if None.

    Raises:
        StoreUnavailable, StoreRefused: the record could not be asked.
    """
    reading = LagReading(store, config, now_us=now_us)
    fault = ""
    try:
        readers = reading.of_the_log(reading.look() if log else None)
    except LogUnavailable as error:
        fault = str(error)
        readers = reading.of_the_log(None)
    night = Night(
        reading.now_us, (*readers, reading.settler()), reading.copies(), reading.letters(), reading.replays(),
        reading.newest_us, log, fault,
    )  # fmt: skip
    return judged(night, within_s=within_s)


def _within_s(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_S:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number of seconds from 1 to {_MOST_S:,}")
    return int(text)
