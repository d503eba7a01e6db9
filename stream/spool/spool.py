"""The spool of one copy, as its sink sees it: what a living copy keeps, what dead ones left, and what it says of both.

Without a folder there is none; and if it cannot be made, none until it can: it is tried again every minute. Until then
letters are in memory only, as its log says once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from enforcer.identity import CopyIdentity
from stream.config import StreamConfig
from stream.outbox import Letter, Outbox
from stream.spool.folder import make_folder
from stream.spool.heirs import Heirs
from stream.spool.spooler import READY_LETTERS, Spooler
from stream.spool.store import SpoolStore
from stream.spool.worker import ThreadWorker, Worker

log = logging.getLogger("tallygate.stream")

#: How long, each time, whoever closes waits for the disk.
_WAIT_S: Final = 0.05
#: How often a spool that could not be made is tried again.
OPEN_AGAIN_S: Final = 60.0


class Spool:
    """Owned by the shipping thread.

    Args:
        config: of the copy.
        identity: of the copy.
        outbox: its letters.
        on_unreadable: told decisions (first seq and how many) and facts that the disk has lost.
        found: makes the letter that says that a copy ended without saying it.
        worker: does what blocks.
        ready_letters: how many letters are in memory as well, ready to be sent.
    """

    def __init__(
        self,
        config: StreamConfig,
        identity: CopyIdentity,
        outbox: Outbox,
        *,
        on_unreadable: Callable[[list[tuple[int, int]], int], None],
        found: Callable[[CopyIdentity, int | None], Letter],
        worker: Worker | None = None,
        ready_letters: int = READY_LETTERS,
    ) -> None:
        self._config = config
        self._identity = identity
        self._outbox = outbox
        self._on_unreadable = on_unreadable
        self._worker: Worker = worker if worker is not None else ThreadWorker()
        self._ready_letters = ready_letters
        self._store: SpoolStore | None = None
        self._spooler: Spooler | None = None
        self._heirs: Heirs | None = None
        self._fault: OSError | None = None
        self._open_at_s = float("inf")
        if config.spool_dir is not None:
            self._heirs = Heirs(config.spool_dir, config.bootstrap, outbox, self._worker, found=found)
            self._worker.submit(partial(self._open, config.spool_dir), self._take_store)

    @property
    def is_open(self) -> bool:
        """Whether there is one."""
        return self._spooler is not None

    @property
    def is_busy(self) -> bool:
        """Whether the disk has not done yet what it was given last."""
        return self._worker.is_busy

    @property
    def bytes(self) -> int:
        """Bytes of this copy's files."""
        return self._store.bytes if self._store is not None else 0

    @property
    def decisions(self) -> int:
        """Decisions of this copy on disk that are not delivered."""
        return self._spooler.decisions if self._spooler is not None else 0

    @property
    def unread(self) -> int:
        """Letters of this copy that are only on disk."""
        return self._spooler.unread if self._spooler is not None else 0

    def age_s(self, now_s: float) -> float:
        """How long the oldest file of this copy has been there; 0 if there is none."""
        oldest_s = self._spooler.oldest_s if self._spooler is not None else None
        return 0.0 if oldest_s is None else max(now_s - oldest_s, 0.0)

    def turn(self, *, now_s: float, in_trouble: bool, partitions: int | None, inherits: bool = True) -> None:
        """One round: take what the disk has done, and give it what is due.

        Args:
            now_s: monotonic time.
            in_trouble: the courier cannot send.
            partitions: of the grants topic; None while nobody has said.
            inherits: more of what dead copies left may be taken; not by one that ends.
        """
        self._worker.settle()
        is_free = not self._worker.is_busy
        if self._spooler is None:
            if inherits and is_free:
                self._try_again(now_s)
            return
        is_free = not self._spooler.turn(now_s=now_s, in_trouble=in_trouble, partitions=partitions)
        if inherits and is_free and self._heirs is not None and partitions is not None and not in_trouble:
            self._heirs.turn(now_s=now_s, partitions=partitions)

    def keep_all(self, *, partitions: int | None, deadline_s: float) -> bool:
        """The copy ends: have all its letters on disk, if there is room and time for it.

        Returns:
            Whether every letter is there, or was delivered.
        """
        while self._outbox.bare_numbers is not None:
            self._worker.settle(_WAIT_S)
            if self._spooler is None:
                if not self._worker.is_busy:
                    break
            elif not self._worker.is_busy:
                tried = self._outbox.bare_numbers
                now_s = time.monotonic()
                self._spooler.turn(now_s=now_s, in_trouble=True, partitions=partitions, ends=True)
                self._worker.settle(max(deadline_s - now_s, _WAIT_S))
                if self._spooler.has_no_room and self._outbox.bare_numbers == tried:
                    break
            if time.monotonic() > deadline_s:
                break
        return self._outbox.bare_numbers is None

    def close(self, *, deadline_s: float) -> None:
        """Have it on disk whatever happens to the machine, and leave it to whoever starts next."""
        while self._worker.is_busy and time.monotonic() < deadline_s:
            self._worker.settle(_WAIT_S)
        if self._spooler is None:
            self._worker.stop()
            return
        if self._worker.is_busy:
            log.error("the disk of the spool does not answer: what is on it is left as it is")
            return
        if self._heirs is not None:
            self._heirs.release()
        if self.decisions:
            log.warning(
                "closed before Kafka had taken everything: %d decisions are in the spool (%s); they go to Kafka when "
                "this copy starts again, or by another one that runs on this machine",
                self.decisions,
                self._config.spool_dir,
            )
        self._spooler.end()
        try:
            self._worker.settle(max(deadline_s - time.monotonic(), _WAIT_S))
        finally:
            self._worker.stop()

    def after_fork(self) -> None:
        """In a child: it is the parent's, and the parent's alone."""
        if self._store is not None:
            self._store.after_fork()
        if self._heirs is not None:
            self._heirs.after_fork()

    def _open(self, root: Path) -> SpoolStore | OSError:
        config = self._config
        try:
            folder = make_folder(root, self._identity, bootstrap=config.bootstrap)
        except OSError as error:
            return error
        return SpoolStore(folder, max_bytes=config.spool_max_bytes, keep_free=config.spool_keep_free_bytes)

    def _try_again(self, now_s: float) -> None:
        """A disk that was full for a moment must not cost a copy its spool for all its life."""
        if self._config.spool_dir is None or self._fault is None:
            return
        if self._open_at_s == float("inf"):
            self._open_at_s = now_s + OPEN_AGAIN_S
        elif now_s >= self._open_at_s:
            self._open_at_s = float("inf")
            self._worker.submit(partial(self._open, self._config.spool_dir), self._take_store)

    def _take_store(self, store: SpoolStore | OSError) -> None:
        if isinstance(store, OSError):
            if self._fault is None:
                log.warning(
                    "no spool can be made in %s (TALLYGATE_SPOOL_DIR): %s. What Kafka does not take is in memory only, "
                    "and lost if this process is killed. It is tried again every minute.",
                    self._config.spool_dir,
                    store,
                )
            self._fault = store
            return
        if self._fault is not None:
            log.info("the spool is there now, in %s", self._config.spool_dir)
        self._fault = None
        self._store = store
        self._spooler = Spooler(
            self._config,
            self._outbox,
            store,
            self._worker,
            on_unreadable=self._on_unreadable,
            ready_letters=self._ready_letters,
        )
