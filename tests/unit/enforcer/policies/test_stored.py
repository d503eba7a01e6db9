"""A policy under a key of Redis, by a server that is played: what is no policy is said, once, and so is an outage."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from enforcer.errors import OwnerUnavailable, PolicyAway, PolicyError
from enforcer.policies.addresses import read_policy_address
from enforcer.policies.loader import MAX_POLICY_BYTES
from enforcer.policies.stored import Command, StoredPolicy, digest_of
from enforcer.policies.watching import PolicyWatcher
from enforcer.sink import PolicyChanged
from tests.unit.enforcer.harness import Fleet, make_policy

POLICY = "version: {version}\nplans: {{standard: {{rate_per_s: {rate}, burst: 200}}}}\ndefault_plan: standard\n"


class PlayedServer:
    """Answers for one hash; counts the documents that it sent."""

    def __init__(self) -> None:
        self.hash: dict[str, bytes] = {}
        self.away: Exception | None = None
        self.refusal: ResponseError | None = None
        self.size: int | None = None
        self.sent = 0
        self.closed = False

    def hold(self, version: int, rate: float) -> None:
        """What `policy push` writes."""
        document = POLICY.format(version=version, rate=rate).encode()
        self.hash = {"version": b"%d" % version, "digest": digest_of(document).encode(), "document": document}

    def call(self, *commands: Command) -> list[Any]:
        if self.away is not None:
            raise self.away
        return [self.refusal or self._reply(command) for command in commands]

    def _reply(self, command: Command) -> Any:
        name, _, *fields = command
        if name == "HSTRLEN":
            return len(self.hash.get("document", b"")) if self.size is None else self.size
        self.sent += "document" in fields
        return [self.hash.get(str(field)) for field in fields]

    def close(self) -> None:
        self.closed = True


class Followed:
    """A fleet of one copy that goes by version 1 of a key."""

    def __init__(self) -> None:
        self.server = PlayedServer()
        self.server.hold(1, 100)
        self.fleet = Fleet(make_policy())
        source = StoredPolicy(read_policy_address("redis://u:secret@a?key=p"), server=self.server)
        self.watcher = PolicyWatcher(source, self.fleet.limiter)
        self.watcher.look()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.watcher.look()

    @property
    def changes(self) -> list[PolicyChanged]:
        return [fact for fact in self.fleet.sink.events if isinstance(fact, PolicyChanged)]

    @property
    def in_force(self) -> tuple[int, float]:
        basis = self.fleet.limiter.check("acme").basis
        return basis.policy_version, basis.plan.rate_per_s


def test_what_is_pushed_is_in_force_after_the_next_look_and_fetched_once() -> None:
    """Every copy looks once a second: a policy of a megabyte must not be sent each time."""
    followed = Followed()
    followed.server.hold(2, 50)
    followed.look(5)
    assert (2, 50.0) == followed.in_force
    assert 2 == followed.server.sent
    assert [(2, (), "redis://a:6379/0?key=p")] == [
        (one.policy_version, one.faults, one.source) for one in followed.changes
    ]


def _write(text: bytes) -> dict[str, bytes]:
    return {"version": b"2", "digest": digest_of(text).encode(), "document": text}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ({"hash": {}}, "there is no policy"),
        ({"hash": _write(b"version: [")}, "is not YAML"),
        ({"hash": {**_write(b"version: 2"), "digest": b"0" * 32}}, "not the one of its digest"),
        ({"hash": {"document": b"version: 2"}}, "not the one of its digest"),
        ({"size": MAX_POLICY_BYTES + 1}, "allowed: at most 16,777,216"),
        ({"refusal": ResponseError("WRONGTYPE Operation against a key")}, "is no policy"),
        ({"hash": _write(POLICY.format(version=1, rate=7).encode())}, "with other content"),
    ],
)
def test_what_is_no_policy_keeps_the_last_good_one_and_is_said_once(spoil: dict[str, Any], said: str) -> None:
    """E19, in Redis as in a file: a wrong keystroke must not let everybody in, or nobody."""
    followed = Followed()
    for name, value in spoil.items():
        setattr(followed.server, name, value)
    followed.look(4)
    assert (1, 100.0) == followed.in_force
    (change,) = followed.changes
    assert said in change.faults[0]
    followed.server.size = followed.server.refusal = None
    followed.server.hold(4, 10)
    followed.look()
    assert (4, 10.0) == followed.in_force


def test_an_older_version_is_refused_and_said_once() -> None:
    """A restored backup must not take a fleet back to last month's prices."""
    followed = Followed()
    followed.server.hold(5, 50)
    followed.look()
    followed.server.hold(4, 10)
    followed.look(3)
    assert (5, 50.0) == followed.in_force
    assert ["which was in force before" in fault for change in followed.changes for fault in change.faults] == [True]


@pytest.mark.parametrize("refused", [False, True])
def test_a_server_that_is_away_is_told_once_and_the_policy_followed_again(
    refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The last good policy stays; one look without an answer is a hiccup, two are an alarm, sixty still one."""
    caplog.set_level("INFO")
    followed = Followed()
    if refused:
        followed.server.refusal = NoPermissionError("NOPERM this user has no permissions")
    else:
        followed.server.away = OwnerUnavailable("no answer: timed out", where="at redis://a:6379/0")
    followed.look()
    assert [] == followed.changes
    followed.look(60)
    (change,) = followed.changes
    assert "cannot be read" in change.faults[0]
    assert (1, 100.0) == followed.in_force
    followed.server.away = followed.server.refusal = None
    followed.server.hold(2, 50)
    followed.look(2)
    assert (2, 50.0) == followed.in_force
    actions = [getattr(record, "action", None) for record in caplog.records]
    assert ["policy_load_error", "policy_loaded", "policy_read_again"] == actions
    assert ["ERROR", "INFO", "WARNING"] == [record.levelname for record in caplog.records]
    assert "no policy could be read, version 1 stays in force: redis://a:6379/0?key=p" in caplog.text
    assert "secret" not in caplog.text


def test_a_push_that_is_not_taken_says_that_it_cannot_be_pushed() -> None:
    """Whoever reads "cannot be read" looks at his file."""
    server = PlayedServer()
    server.refusal = NoPermissionError("NOPERM this user has no permissions")
    stored = StoredPolicy(read_policy_address("redis://u:secret@a?key=p"), server=server)
    with pytest.raises(PolicyAway, match=r"cannot be pushed: .*NOPERM"):
        stored.push(POLICY.format(version=1, rate=1).encode(), source="policy.yaml")


def test_a_server_that_goes_away_between_the_look_and_the_document_is_read_at_the_next_look() -> None:
    """Half a look must not count as one, or the version would be missed until the next push."""
    followed = Followed()
    followed.server.hold(2, 50)
    marked = followed.server.call

    def call(*commands: Command) -> list[Any]:
        if len(commands) == 1:
            raise OwnerUnavailable("no answer: reset")
        return marked(*commands)

    followed.server.call = call  # type: ignore[method-assign]  # played
    followed.look()
    assert (1, 100.0) == followed.in_force
    followed.server.call = marked  # type: ignore[method-assign]  # played
    followed.look()
    assert (2, 50.0) == followed.in_force


def test_the_connection_ends_with_the_watcher() -> None:
    """A gateway that reloads its workers must not leave connections behind."""
    followed = Followed()
    followed.watcher.start()
    followed.watcher.stop()
    assert followed.server.closed


def test_at_the_start_a_server_that_is_away_is_an_error_of_its_own() -> None:
    """Without a policy there is nothing to go by: whoever starts gateways must tell it from a faulty one."""
    server = PlayedServer()
    stored = StoredPolicy(read_policy_address("redis://a?key=p"), server=server)
    with pytest.raises(PolicyError, match=r"redis://a:6379/0\?key=p: the key 'p' is empty"):
        stored.read()
    server.away = OwnerUnavailable("no answer: refused")
    with pytest.raises(PolicyAway, match=r"redis://a:6379/0\?key=p: cannot be read: no answer: refused"):
        stored.read()
