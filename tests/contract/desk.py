"""An owner with a clock in the test's hand, in memory or on a server, behind one face for the contract suite."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from urllib.parse import urlsplit

import redis

from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.messages import Answer, Ask, AskFault, SettleCause, Settlement
from enforcer.owners.keys import bucket_key
from enforcer.owners.lua import grant_script
from enforcer.owners.memory import MemoryOwner
from enforcer.owners.port import Owner
from enforcer.owners.redis import RedisOwner
from enforcer.types import Plan

#: A day in 2026, unix microseconds: numbers as large as real ones.
START_US = 1_780_000_000_000_000
SECOND_US = 1_000_000
_CLOCK_IN_SCRIPT = "redis.call('TIME')"
_FORGOTTEN_IN_SCRIPT = "ceil((forget_at - now) / 1000)"


class Desk:
    """Owner, clock, and callers that no other test uses."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.caller = f"caller-{uuid.uuid4().hex}"
        self._ask_nos: dict[str, int] = {}
        self._now_us = START_US

    @property
    def now_us(self) -> int:
        """The owner's clock."""
        return self._now_us

    def set_clock(self, now_us: int) -> None:
        """Step the owner's clock, also backwards."""
        self._now_us = now_us

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.set_clock(self._now_us + round(seconds * SECOND_US))

    def lose_state(self) -> None:
        """Forget all buckets of this test's caller, as a restarted server does."""
        raise NotImplementedError

    def spoil(self) -> None:
        """Break this test's bucket until `lose_state`, as someone who writes under its key would."""
        raise NotImplementedError

    def refusing(self) -> Owner:
        """Another handle on the same owner, which lets it answer but not ask."""
        raise NotImplementedError

    def ask(
        self,
        member: str = "gw-1/1",
        *,
        plan: Plan,
        waiting: int = 0,
        want: int = 0,
        settlements: Sequence[Settlement] = (),
        ask_no: int | None = None,
        offered: int | None = None,
        rate_per_s: float = 0.0,
        jitter: float = 0.0,
        limit: str = "rate",
    ) -> Answer:
        """One ask of one copy; `ask_no` rises by itself."""
        next_no = self._ask_nos.get(member, 0) + 1 if ask_no is None else ask_no
        self._ask_nos[member] = max(self._ask_nos.get(member, 0), next_no)
        asked = Ask(
            caller=self.caller,
            limit=limit,
            plan=plan,
            member=member,
            ask_no=next_no,
            settlements=tuple(settlements),
            waiting=waiting,
            want=want,
            rate_per_s=rate_per_s,
            offered=waiting if offered is None else offered,
            jitter=jitter,
        )
        return answers(self.owner.ask([asked]))[0]

    def drain(self, tokens: int, *, plan: Plan, member: str = "gw-1/1") -> int:
        """Ask for tokens, spend what was given, and state it; how many that was."""
        grant = self.ask(member, plan=plan, waiting=tokens, offered=0).grant
        if grant is None:
            return 0
        self.ask(member, plan=plan, settlements=[total(grant.grant_id, grant.size)], offered=0)
        return grant.size

    def level(self, plan: Plan) -> float:
        """Tokens in the bucket, seen by a copy that takes none."""
        return self.ask("watcher/1", plan=plan).tokens


class MemoryDesk(Desk):
    """The owner in memory."""

    def __init__(self, dials: Dials = DEFAULT_DIALS) -> None:
        self._memory = MemoryOwner(now_us=lambda: self.now_us, dials=dials)
        super().__init__(self._memory)

    def lose_state(self) -> None:
        self._memory.lose_state()
        self._memory.spoiled.clear()

    def spoil(self) -> None:
        self._memory.spoiled[self.caller, "rate"] = "tested"

    def refusing(self) -> Owner:
        refusing = MemoryOwner(now_us=lambda: self.now_us)
        refusing.away = "asks are refused"
        return refusing


class RedisDesk(Desk):
    """The script on a server; only its clock is another: a key that the test sets."""

    def __init__(self, url: str, dials: Dials = DEFAULT_DIALS) -> None:
        self.client = redis.Redis.from_url(url)
        self._url = url
        self._users: list[str] = []
        self._clock_key = f"test-clock-{uuid.uuid4().hex}"
        self.script = script_with_clock(self._clock_key)
        super().__init__(RedisOwner(url, timeout_s=10.0, dials=dials, script=self.script))
        self.set_clock(START_US)

    def set_clock(self, now_us: int) -> None:
        super().set_clock(now_us)
        self.client.set(self._clock_key, now_us)

    def lose_state(self) -> None:
        self.client.delete(bucket_key(self.caller, "rate"))

    def spoil(self) -> None:
        self.client.set(bucket_key(self.caller, "rate"), "not ours", px=60_000)

    def refusing(self) -> Owner:
        user = f"test-{uuid.uuid4().hex}"
        self.client.acl_setuser(
            user, enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-evalsha"]
        )
        self._users.append(user)
        parts = urlsplit(self._url)
        address = parts._replace(netloc=f"{user}:any@{parts.netloc.rsplit('@', 1)[-1]}").geturl()
        return RedisOwner(address, timeout_s=10.0, script=self.script)

    def close(self) -> None:
        """End the connections."""
        for user in self._users:
            self.client.acl_deluser(user)
        self.client.delete(self._clock_key)
        self.lose_state()
        self.client.close()
        self.owner.close()


def answers(outcomes: Sequence[Answer | AskFault]) -> list[Answer]:
    """All of them; fails if the owner could not answer one."""
    assert [] == [outcome for outcome in outcomes if isinstance(outcome, AskFault)]
    return [outcome for outcome in outcomes if isinstance(outcome, Answer)]


def script_with_clock(clock_key: str) -> str:
    """``grant.lua`` with a key's value as its clock, and buckets that are forgotten ten minutes later.

    The server forgets by its own clock, which goes on while the test's stands still: on a slow machine it would forget
    a bucket that lives for seconds in the middle of a test.
    """
    script = grant_script()
    assert script.count(_CLOCK_IN_SCRIPT) == 1
    assert script.count(_FORGOTTEN_IN_SCRIPT) == 1
    script = script.replace(_FORGOTTEN_IN_SCRIPT, f"{_FORGOTTEN_IN_SCRIPT} + 600000")
    return script.replace(_CLOCK_IN_SCRIPT, f"{{0, redis.call('GET', '{clock_key}')}}")


def total(grant_id: int, spent: int, *, final: bool = True, cause: SettleCause = SettleCause.ASK) -> Settlement:
    """A stated total."""
    return Settlement(grant_id, spent, final, cause)
