"""``tallygate replay``: rebuilds derived tables beside those in use, compares them, and exchanges them.

Never writes into a table in use, but by exchanging it whole, with ``--swap``. Ended at any point before that, nothing
has happened; the next run begins anew.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.erasure.again import in_totals, remove
from aggregator.erasure.known import stated
from aggregator.logs import configure
from aggregator.replay.claim import Claim, Claimed, claimed
from aggregator.replay.compare import Compared, compare
from aggregator.replay.live import count_live
from aggregator.replay.rebuild import apart, holds, journaled, log_ends, record, settle
from aggregator.replay.register import LIVE, RAW
from aggregator.replay.shadow import NoShadow, attach, empty_shadow, find_shadow
from aggregator.replay.swap import swap, take_history, take_older
from aggregator.retention.apply import apply
from aggregator.retention.kept import kept
from aggregator.sql import load_queries
from aggregator.store import Store, StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import text_of
from enforcer.clock import SystemClock

_QUERIES = load_queries("aggregator.sql", "replay.sql")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_ANSWER_S = 3_600.0
_DAY_S, _MINUTE_S = 86_400, 60
_DIFFERS, _NOT_ASKED = 1, 3


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was rebuilt.

    Attributes:
        low_s, high_s: the span of the derived tables, in unix seconds.
        erased: which erasures there were when it was begun, each with how far it had come.
        raw_low_s: since when the raw record was rebuilt too; None if it was not.
        whole: whether that is all that the log ever held, and all that is on record; then `live` was rebuilt too.
    """

    low_s: int
    high_s: int
    erased: frozenset[tuple[int, str]]
    raw_low_s: int | None = None
    whole: bool = False


def main(words: Sequence[str]) -> int:
    """Run it on TALLYGATE_CLICKHOUSE: 0 done, 1 rows differ or it may not swap, 2 wrong call, 3 no answer.

    Raises:
        ConfigError: a setting is wrong.
    """
    options = _parser().parse_args(words)
    config = AggregatorConfig.from_env()
    try:
        with closing(ClickHouseStore.open(config.clickhouse, answer_timeout_s=_ANSWER_S)) as store:
            return _replay(options, config, store)
    except (NoShadow, Claimed) as fault:
        sys.stderr.write(f"tallygate replay: {fault}\n")
        return 2
    except (StoreUnavailable, StoreRefused, LogUnavailable) as fault:
        sys.stderr.write(f"tallygate replay: {fault}\n")
        return _NOT_ASKED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tallygate replay", description="Rebuild derived tables, compare, exchange.")
    parser.add_argument("--from", dest="source", choices=["log", "raw"], required=True, help="what to rebuild from")
    parser.add_argument("--into", type=_name, required=True, metavar="DATABASE", help="the shadow; made anew")
    parser.add_argument("--compare", action="store_true", help="say which rows differ from those in use")
    parser.add_argument("--swap", action="store_true", help="exchange the rebuilt tables with those in use")
    return parser


def _name(text: str) -> str:
    if _NAME.match(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: one name of A-Z a-z 0-9 _, no digit first")
    return text


def _replay(options: argparse.Namespace, config: AggregatorConfig, store: Store) -> int:
    if options.swap and (fault := _unfinished(store)):
        sys.stderr.write(f"tallygate replay: {fault}\n")
        return _DIFFERS
    find_shadow(store, config.clickhouse, options.into)
    with claimed(store, options.into, lambda: ClickHouseStore.open(config.clickhouse)) as claim:
        return _claimed(options, config, store, claim)


def _claimed(options: argparse.Namespace, config: AggregatorConfig, store: Store, claim: Claim) -> int:
    in_use, shadow = config.clickhouse.database, options.into
    empty_shadow(store, config.clickhouse, shadow)
    beside = apart(config, shadow)
    with closing(ClickHouseStore.open(beside.clickhouse)) as other:
        apply(other, config.keep, recounted_days=config.recounted_days)
    rebuilt = _from_raw(beside, store, shadow) if options.source == "raw" else _from_log(beside, store, shadow)
    differing: list[Compared] = []
    if options.compare:
        compared = compare(
            store, in_use, shadow, rebuilt.low_s, rebuilt.high_s, erased_s=_erased_s(store),
            raw_low_s=rebuilt.raw_low_s, live=rebuilt.whole,
        )  # fmt: skip
        sys.stdout.write(text_of(line for one in compared for line in one.lines))
        differing = [one for one in compared if one.rows]
    if not options.swap:
        return _DIFFERS if differing else 0
    raw = rebuilt.raw_low_s is not None
    if fault := _why_not(store, rebuilt, claim):
        sys.stderr.write(f"tallygate replay: {fault}\n")
        return _DIFFERS
    take_history(store, in_use, shadow, rebuilt.low_s, rebuilt.high_s)
    # That may take minutes, in which an erasure or another replay may have come.
    if fault := _why_not(store, rebuilt, claim):
        sys.stderr.write(f"tallygate replay: {fault}\n")
        return _DIFFERS
    names = swap(store, in_use, shadow, (*RAW, LIVE.table) if raw else ())
    _take_out_again(store, rebuilt)
    sys.stdout.write(
        f"exchanged {', '.join(names)}; what was in use is in {shadow} now. Restart the settler"
        f"{', the recorder and the workers' if raw else ''}: they go on from where the rebuilt tables end\n"
    )
    return 0


def _from_raw(config: AggregatorConfig, store: Store, shadow: str) -> Rebuilt:
    """Attach raw, take over what raw no longer holds, and settle the rest."""
    now_us, erased = SystemClock().unix_us(), _erasures(store)
    low_s = _recounted_s(config, now_us, _whole_s(store))
    _say(f"attached {', '.join(attach(store, shadow, raw=True))}")
    take_older(store, _database(store), shadow, low_s, erased_s=_erased_s(store))
    return Rebuilt(low_s, _settled(config, now_us, low_s), erased)


def _from_log(config: AggregatorConfig, store: Store, shadow: str) -> Rebuilt:
    """Record the log up to where it ends now, count its live totals, then settle it."""
    now_us, erased = SystemClock().unix_us(), _erasures(store)
    attach(store, shadow, raw=False)
    in_use = journaled(store)
    ends, whole = log_ends(config)
    log = configure("replay")
    record(config, ends, log, _say, unix_us=SystemClock().unix_us, monotonic_s=time.monotonic)
    begins_s = _whole_s(store)
    with closing(ClickHouseStore.open(config.clickhouse)) as other:
        recorded = journaled(other)
        whole = whole and holds(recorded, in_use)
        if not whole:
            begins_s = max(begins_s, int(other.rows(_QUERIES["log_begins"].sql)[0][0] or 0) // 1_000_000 + _MINUTE_S)
    if whole:
        count_live(config, recorded, _say)
    else:
        _say("live is not rebuilt: the log does not go back to the beginning of the record")
    low_s = _recounted_s(config, now_us, begins_s)
    take_older(store, _database(store), shadow, low_s, erased_s=_erased_s(store))
    return Rebuilt(low_s, _settled(config, now_us, low_s), erased, begins_s, whole)


def _recounted_s(config: AggregatorConfig, now_us: int, begins_s: int) -> int:
    """Since when (unix seconds) minutes are recounted; what is older is taken over."""
    low_s = max(now_us // 1_000_000 - config.settle_days * _DAY_S, begins_s)
    return -(-low_s // _MINUTE_S) * _MINUTE_S


def _settled(config: AggregatorConfig, now_us: int, low_s: int) -> int:
    """Settle, and return up to when (unix seconds) every minute is closed."""
    # By the same bound as what is taken over, however long recording took: a minute in neither would be lost.
    settle(config, configure("replay"), _say, unix_us=SystemClock().unix_us, from_us=low_s * 1_000_000)
    return (now_us // 1_000_000 - config.settle_grace_s) // _MINUTE_S * _MINUTE_S


def _whole_s(store: Store) -> int:
    """Since when (unix seconds) nothing of the raw record in use was dropped."""
    return kept(store).whole_from_us // 1_000_000


def _why_not(store: Store, rebuilt: Rebuilt, claim: Claim) -> str:
    """Why the rebuilt tables may not come into use; empty if they may."""
    if not claim.is_alone(store):
        return (
            "this replay stood still for so long that another may have begun on the same database: nothing was "
            "exchanged; allowed: the same again"
        )
    if rebuilt.raw_low_s is not None and not rebuilt.whole:
        return (
            "the log does not go back to the beginning of the record (its oldest messages are gone, or its topics were "
            "made anew), so the rebuilt record would lack what was before: nothing was exchanged; allowed: --from raw"
        )
    if _whole_s(store) > rebuilt.low_s or _erasures(store) != rebuilt.erased:
        return (
            "raw decisions of what was rebuilt were dropped, or a caller was erased, while the replay ran: nothing was "
            "exchanged; allowed: the same again"
        )
    return ""


def _unfinished(store: Store) -> str:
    """Why nothing can be exchanged now: what is being erased could be taken over, and come back; empty if it can."""
    if all(one.state == "done" for one in stated(store)):
        return ""
    return (
        "an erasure is not finished: nothing was begun, for an exchange could bring its caller back; allowed: the same "
        "once `tallygate audit erase` has said that it is erased"
    )


def _erasures(store: Store) -> frozenset[tuple[int, str]]:
    return frozenset((one.erasure.erasure_id, one.state) for one in stated(store))


def _take_out_again(store: Store, rebuilt: Rebuilt) -> None:
    """Delete what an exchange brought back of callers that were erased in the moment before it."""
    if _erasures(store) == rebuilt.erased:
        return
    for erasure, caller in in_totals(store, [one.erasure for one in stated(store)]):
        remove(store, caller, erasure, _say)


def _erased_s(store: Store) -> int:
    """The end of the minute (unix seconds) up to which a caller was last erased; 0 if none ever was."""
    last_us = max((one.erasure.erased_before_us for one in stated(store)), default=0)
    return -(-last_us // (_MINUTE_S * 1_000_000)) * _MINUTE_S


def _database(store: Store) -> str:
    return str(store.rows("SELECT currentDatabase()")[0][0])


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
