"""Trouble, kills, restarts and full disks in any order: what was spooled is on the log, or named as lost."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import defaultdict
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from enforcer.identity import CopyIdentity
from stream.config import StreamConfig
from stream.contract.codec import decode_block
from stream.contract.control import CopyFound, DecisionsLost, decode_control
from stream.contract.facts import decode_facts
from stream.contract.partition import grants_partition
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from stream.outbox import Letter
from stream.shipper import Shipper
from stream.spool import store
from stream.spool.heirs import LOOK_EVERY_S
from stream.spool.spool import Spool
from tests.inline_worker import InlineWorker
from tests.verdicts import grant, verdict

_WALL_US = 1_750_000_000_000_000
_BOOTSTRAP = "127.0.0.1:19092"


def _nothing_is_damaged(seqs: list[tuple[int, int]], facts: int) -> None:
    raise AssertionError(f"{seqs} and {facts} facts were on disk, and not found there")


class Copy:
    """One process's part of the record, from its start to its end."""

    def __init__(self, root: Path, epoch: int, *, now_s: float, max_bytes: int) -> None:
        config = StreamConfig(
            block_decisions=5,
            flush_s=0.5,
            max_held=60,
            spool_dir=root,
            spool_max_bytes=max_bytes,
            spool_keep_free_bytes=0,
        )
        self.identity = CopyIdentity(f"gw-{epoch % 2}", epoch)
        self.shipper = Shipper(config, self.identity, now_s=now_s, unix_us=_WALL_US)
        self.spool = Spool(
            config,
            self.identity,
            self.shipper.outbox,
            on_unreadable=_nothing_is_damaged,
            found=self.shipper.found,
            worker=InlineWorker(),
            ready_letters=4,
        )
        self.numbered = 0
        self.facts = 0

    def may_be_lost_by_a_kill(self) -> tuple[set[int], set[int]]:
        """Decisions that only memory has, and those whose loss only memory knows."""
        shipper = self.shipper
        held = {one.seq for one in shipper.captured}
        for run in shipper._buffer._runs:
            held.update(range(run.first_seq, run.first_seq + len(run.verdicts)))
        held.update(one.seq for one in shipper._buffer._ahead)
        named = {seq for one in shipper._buffer._losses for seq in range(one.first_seq, one.first_seq + one.count)}
        for _, letter in shipper.outbox.bare():
            held.update(range(letter.first_seq, letter.first_seq + letter.decisions))
            if letter.loss is not None:
                named.update(range(letter.loss.first_seq, letter.loss.first_seq + letter.loss.count))
        return held, named


class SpoolMachine(RuleBasedStateMachine):
    """Copies of two process slots, one after the other, on one disk and one log."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(store, "write_all", self._write)
        self.root = Path(tempfile.mkdtemp())
        self.now_s = 1_000.0
        self.room: int | None = None
        self.in_trouble = False
        self.partitions: int | None = 4
        self.epoch = 0
        self.recorded: defaultdict[int, set[int]] = defaultdict(set)
        self.named: defaultdict[int, set[int]] = defaultdict(set)
        self.order: defaultdict[int, list[int]] = defaultdict(list)
        self.found: defaultdict[int, list[int | None]] = defaultdict(list)
        self.excused: defaultdict[int, set[int]] = defaultdict(set)
        self.numbered: dict[int, int] = {}
        self.killed: set[int] = set()
        self.copy = self._start(10_000)

    @rule(count=st.integers(1, 30))
    def capture(self, count: int) -> None:
        copy = self.copy
        for seq in range(copy.numbered, copy.numbered + count):
            copy.shipper.captured.append(verdict(seq, at_ns=int(self.now_s * 1e9)))
        copy.numbered += count

    @rule(caller=st.integers(0, 9))
    def learn_of_a_grant(self, caller: int) -> None:
        self.copy.facts += 1
        self.copy.shipper.facts.append(grant(f"acct-{caller}", grant_id=self.copy.facts))

    @rule(wait_ms=st.integers(0, 2_500))
    def tick(self, wait_ms: int) -> None:
        self.now_s += wait_ms / 1_000
        self._step()
        self._turn()

    @rule(count=st.integers(1, 60), delivers=st.integers(0, 4))
    def go_on_for_a_while(self, count: int, delivers: int) -> None:
        """Decisions keep coming, round after round, and the broker takes some."""
        for _ in range(4):
            self.capture(count // 4 + 1)
            self.tick(600)
            self.deliver(delivers)

    @rule(in_trouble=st.sampled_from([True, True, False]), knows=st.booleans())
    def change_the_weather(self, in_trouble: bool, knows: bool) -> None:
        self.in_trouble = in_trouble
        self.partitions = 4 if knows or not in_trouble else None

    @rule(room=st.none() | st.integers(0, 1_500))
    def change_the_disk(self, room: int | None) -> None:
        self.room = room

    @rule(count=st.integers(1, 9))
    def hand_to_the_client(self, count: int) -> None:
        for number, _ in self.copy.shipper.outbox.waiting(count):
            self.copy.shipper.outbox.handed_over(number)

    @rule()
    def fail(self) -> None:
        self.copy.shipper.outbox.reset()

    @rule(count=st.integers(1, 9))
    def deliver(self, count: int) -> None:
        if self.partitions is None:
            return
        outbox = self.copy.shipper.outbox
        for number, _ in list(islice(outbox, min(count, outbox.ready))):
            letter = outbox.remove(number)
            assert letter is not None
            self.copy.shipper.settle(letter)
            self._read(letter)

    @rule(max_bytes=st.sampled_from([1_000, 3_000, 100_000]))
    def kill(self, max_bytes: int) -> None:
        """The process is gone, and its locks with it; what the disk had not confirmed may be there or not."""
        held, named = self.copy.may_be_lost_by_a_kill()
        self.excused[self.epoch] = held | named
        self.killed.add(self.epoch)
        # What the worker has just locked must not stay so: here nobody's process ends.
        self.copy.spool._worker.settle()
        self.copy.spool.after_fork()
        self.copy = self._start(max_bytes)

    @rule(max_bytes=st.sampled_from([1_000, 3_000, 100_000]))
    def restart(self, max_bytes: int) -> None:
        self._end()
        self.copy = self._start(max_bytes)

    @precondition(lambda self: not self.in_trouble)
    @rule()
    def ship_all(self) -> None:
        self._ship_all()

    @invariant()
    def counts_agree(self) -> None:
        shipper, spool = self.copy.shipper, self.copy.spool
        assert self.copy.numbered == shipper.delivered + shipper.lost + shipper.queued + spool.decisions
        bare = [letter for _, letter in shipper.outbox.bare()]
        assert shipper.outbox.bytes == sum(len(letter.value) for letter in bare)
        assert shipper.outbox.decisions == sum(letter.decisions for letter in bare)
        for epoch, named in self.named.items():
            assert named.isdisjoint(self.recorded[epoch])

    def teardown(self) -> None:
        """The weather clears, and copies start until nothing is left on disk; then look at every seq."""
        try:
            self.room, self.in_trouble, self.partitions = None, False, 4
            self._ship_all()
            self._end()
            self.copy = self._start(100_000)
            self._ship_all()
            self._end()
            assert [] == [path for path in self.root.rglob("*") if path.is_file()]
            self._check()
        finally:
            self.patch.undo()
            shutil.rmtree(self.root)

    def _check(self) -> None:
        for epoch, numbered in self.numbered.items():
            settled = self.recorded[epoch] | self.named[epoch]
            assert set(range(numbered)) - settled <= self.excused[epoch]
            assert settled <= set(range(numbered))
            assert self.order[epoch] == sorted(self.order[epoch])
            if epoch not in self.killed:
                assert not self.excused[epoch]
            else:
                assert self.found[epoch], "nobody heard that it was killed"

    def _start(self, max_bytes: int) -> Copy:
        self.epoch += 1
        self.numbered[self.epoch] = 0
        copy = Copy(self.root, self.epoch, now_s=self.now_s, max_bytes=max_bytes)
        # Its folder is open: of one that is killed before, nobody would learn.
        copy.spool._worker.settle()
        return copy

    def _end(self) -> None:
        """As the sink closes: what is not on the log goes to disk, and what finds no room is named there."""
        shipper, spool = self.copy.shipper, self.copy.spool
        self._step(everything=True)
        for _ in range(0 if self.in_trouble else 3):
            self.deliver(9)
            self._turn()
        if not spool.keep_all(partitions=self.partitions, deadline_s=float("inf")):
            shipper.give_up(unix_us=_WALL_US)
            spool.keep_all(partitions=self.partitions, deadline_s=float("inf"))
        for loss in shipper.abandon(now_s=self.now_s):
            # Its process's log says it, and nobody else.
            self.named[self.epoch].update(range(loss.first_seq, loss.first_seq + loss.count))
        spool.close(deadline_s=float("inf"))
        assert self.copy.numbered == shipper.delivered + shipper.lost + spool.decisions

    def _ship_all(self) -> None:
        for _ in range(400):
            self.now_s += LOOK_EVERY_S
            self._step()
            self._turn()
            self.deliver(9)
            if not len(self.copy.shipper.outbox) and not self.copy.spool.unread and not self._others():
                return
        raise AssertionError("something stays behind")

    def _others(self) -> bool:
        own = self.root / self.copy.identity.copy_id / str(self.epoch)
        return any(path.is_file() and own not in path.parents for path in self.root.rglob("*"))

    def _step(self, *, everything: bool = False) -> None:
        self.copy.shipper.step(
            now_ns=int(self.now_s * 1e9),
            unix_us=_WALL_US,
            partitions=self.partitions,
            everything=everything,
            to_disk=self.copy.spool.is_open and (everything or self.in_trouble),
        )
        self.numbered[self.epoch] = self.copy.numbered

    def _turn(self) -> None:
        self.copy.spool.turn(now_s=self.now_s, in_trouble=self.in_trouble, partitions=self.partitions)

    def _write(self, descriptor: int, data: bytes) -> None:
        """A disk with so much room: it takes part of what does not fit, as real ones do."""
        if self.room is not None and len(data) > self.room:
            os.write(descriptor, data[: self.room])
            self.room = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room = None if self.room is None else self.room - len(data)
        os.write(descriptor, data)

    def _read(self, letter: Letter) -> None:
        if letter.topic == DECISIONS.name:
            block = decode_block(letter.value)
            seqs = range(block.first_seq, block.first_seq + block.count)
            if block.count and not self.recorded[block.epoch].issuperset(seqs):
                self.order[block.epoch].append(block.first_seq)
            self.recorded[block.epoch].update(seqs)
        elif letter.topic == CONTROL.name:
            event = decode_control(letter.value)
            if isinstance(event, DecisionsLost):
                self.named[event.epoch].update(range(event.first_seq, event.first_seq + event.count))
            elif isinstance(event, CopyFound):
                self.found[event.epoch].append(event.next_seq)
        elif letter.topic == GRANTS.name:
            assert {letter.partition} == {grants_partition(one.caller, 4) for one in decode_facts(letter.value).grants}


SpoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestSpoolMachine = SpoolMachine.TestCase
