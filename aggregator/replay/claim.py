"""The claim that a replay holds on its shadow database while it works there: one replay at a time.

ClickHouse has no locks. A claim is a row that is written again every few seconds; one that is not is no claim any more,
so that a replay that was killed holds up nobody for long. Never decides by this machine's clock.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

from aggregator.sql import load_queries
from aggregator.store import Store, StoreRefused, StoreUnavailable

_QUERIES = load_queries("aggregator.sql", "replay.sql")
#: The table of claims in a shadow; stays when everything else there is made anew.
CLAIMS = "replay_claims"
_BEAT_S = 5.0
#: After so long without a sign of life a claim has lapsed.
LAPSES_S = 30


def make_claims(store: Store, shadow: str) -> None:
    """Make the table of claims, if it is not there."""
    store.command(_sql("make_claims", shadow))


def _sql(name: str, shadow: str) -> str:
    # The database's name cannot be bound; it was checked to be one.
    return _QUERIES[name].sql.replace(CLAIMS, f"{shadow}.{CLAIMS}")


class Claimed(Exception):
    """Another replay works on the shadow; says which."""


class Claim:
    """One replay's claim on one shadow; see `claimed`."""

    def __init__(self, shadow: str, run: str) -> None:
        self._shadow = shadow
        self._run = run
        self._who = f"process {os.getpid()} on {socket.gethostname()}"

    def is_alone(self, store: Store) -> bool:
        """Whether this claim has held all the time, and no other does.

        One that had lapsed and holds again is not enough: another may have come, worked and ended meanwhile.
        """
        held = {run for run, *_ in self._held(store)}
        ((silent_s,),) = store.rows(_sql("claim_silence", self._shadow), {"run": self._run})
        return held == {self._run} and float(silent_s) < LAPSES_S

    def take(self, store: Store) -> None:
        """Claim the shadow.

        Raises:
            Claimed: somebody else holds it. Of two that claim it in the same moment both may be told so, never neither.
        """
        self.beat(store)
        others = [row for row in self._held(store) if row[0] != self._run]
        if others:
            self.let_go(store)
            _, who, since = others[0]
            raise Claimed(
                f"another replay ({who}) is working on {self._shadow} since {since} UTC; allowed: another name, or the "
                f"same once it has ended. If it was killed, its claim lapses after {LAPSES_S} s"
            )

    def beat(self, store: Store) -> None:
        """Say that this replay lives."""
        self._write(store, ended=False)

    def let_go(self, store: Store) -> None:
        """Say that this replay has ended."""
        self._write(store, ended=True)

    def _write(self, store: Store, *, ended: bool) -> None:
        values = {"run": self._run, "who": self._who, "ended": int(ended)}
        store.command(_sql("claim", self._shadow), values)

    def _held(self, store: Store) -> list[tuple[str, str, str]]:
        found = store.rows(_sql("claims_held", self._shadow), {"lapses_s": LAPSES_S})
        return [(str(run), str(who), str(since)) for run, who, since in found]


@contextmanager
def claimed(store: Store, shadow: str, open_store: Callable[[], Store], *, beat_s: float = _BEAT_S) -> Iterator[Claim]:
    """Hold the claim on a shadow, which has its table of claims, as long as the block runs.

    Args:
        store: the server.
        shadow: the database's name.
        open_store: a connection of the beating thread's own.
        beat_s: how often the claim is written again.

    Raises:
        Claimed: another replay holds it.
    """
    claim = Claim(shadow, uuid.uuid4().hex)
    claim.take(store)
    stop = threading.Event()

    def beat() -> None:
        with ExitStack() as opened:
            own: Store | None = None
            while not stop.wait(beat_s):
                # Said by whatever the replay itself asks; before an exchange the claim is looked at.
                with suppress(StoreUnavailable, StoreRefused):
                    if own is None:
                        own = opened.enter_context(closing(open_store()))
                    claim.beat(own)

    thread = threading.Thread(target=beat, name="replay-claim", daemon=True)
    thread.start()
    try:
        yield claim
    finally:
        stop.set()
        thread.join(beat_s)
        with suppress(StoreUnavailable, StoreRefused):  # it lapses by itself
            claim.let_go(store)
