"""``tallygate audit ACTION``: reads the words, opens the database, and hands over to the action's own module.

Holds no question and no arithmetic. An action is a module with `HELP` (one line), ``add_arguments(parser)`` and
``run(options, store) -> int``, which prints what it found and returns 0 if all is well, 1 if the record does not agree.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Protocol, cast

from aggregator.config import AggregatorConfig
from aggregator.store import Store, StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore

#: Each action and its module.
ACTIONS: dict[str, str] = {
    "as-of": "aggregator.audit.as_of",
    "bill": "aggregator.audit.bill",
    "erase": "aggregator.audit.erase",
    "export": "aggregator.audit.export",
    "fairness": "aggregator.audit.fairness",
    "gaps": "aggregator.audit.gaps",
    "lag": "aggregator.audit.lag.action",
    "ledger": "aggregator.audit.ledger",
    "recompute": "aggregator.audit.recompute",
    "reconcile": "aggregator.audit.counts.reconcile",
    "revisions": "aggregator.audit.revisions",
    "verify": "aggregator.audit.proof.verify",
}
#: An audit may read all that is recorded: half a minute for fourteen million decisions on two busy cores.
_ANSWER_S = 300.0
_NOT_ASKED = 3


class Action(Protocol):
    """What a module of an action offers."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say which words it takes."""
        ...

    def run(self, options: argparse.Namespace, store: Store) -> int:
        """Ask the record, print the answer, and return the exit code: 0 all is well, 1 the record does not agree."""
        ...


def main(words: Sequence[str]) -> int:
    """Run one action on the database of TALLYGATE_CLICKHOUSE.

    Returns the action's exit code, or 3 if the database could not be asked.

    Raises:
        ConfigError: a setting is wrong.
    """
    parser = argparse.ArgumentParser(prog="tallygate audit", description="Ask the exact record whether it agrees.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    loaded = {name: cast(Action, importlib.import_module(module)) for name, module in ACTIONS.items()}
    for name, action in loaded.items():
        action.add_arguments(actions.add_parser(name, help=action.HELP, description=action.HELP))
    options = parser.parse_args(words)
    dsn = AggregatorConfig.from_env().clickhouse
    try:
        with closing(ClickHouseStore.open(dsn, answer_timeout_s=_ANSWER_S)) as store:
            return loaded[options.action].run(options, store)
    except (StoreUnavailable, StoreRefused) as fault:
        sys.stderr.write(f"tallygate audit: {fault}\n")
        return _NOT_ASKED
