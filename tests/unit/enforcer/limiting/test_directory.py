"""Who is known and who is forgotten: bounded for whoever comes, and nobody leaves the limits that are named for him."""

from __future__ import annotations

from enforcer.clock import ManualClock
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.memory import MemoryOwner
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from tests.unit.enforcer.harness import Fleet, MovingOwners, make_policy

_SITE = {"site": {"by": "everyone", "rate_per_s": 1e6, "burst": 1_000_000}}
_SEARCH = {"search": {"by": "caller", "scopes": ["search"], "rate_per_s": 0.001, "burst": 1}}


def test_a_limit_for_everyone_remembers_only_who_is_known() -> None:
    """Every caller that ever came would stay in memory for ever, though long forgotten."""
    fleet = Fleet(make_policy(limits=_SITE), evict_after_s=2)
    for number in range(600):
        fleet.limiter.check(f"caller-{number}")
        if number % 20 == 0:
            fleet.advance(1)
    site = next(account for account in fleet.limiter._directory.accounts if account.limit == "site")
    assert len(site.lanes) == len(fleet.limiter._directory.lanes) < 200


def test_a_scope_that_a_limit_names_is_never_taken_for_another() -> None:
    """However often its bucket is forgotten, and however many scopes a caller makes up, it is held to that limit."""
    fleet = Fleet(make_policy(limits=_SEARCH, scopes={"search": {}}), evict_after_s=2)
    rate = None
    for _ in range(300):
        assert "search" == fleet.limiter.check("acme", "search").basis.scope
        for _ in range(4):
            fleet.advance(1, step_s=1)
            fleet.limiter.check("acme", "other", cost=0)
        rate = next(account for account in fleet.limiter._directory.accounts if account.limit == "rate")
    assert rate is not None
    assert rate.lanes <= {("acme", "search"), ("acme", "other")}
    for number in range(400):
        fleet.limiter.check("acme", f"made-up-{number}")
    fleet.limiter.apply(make_policy(version=2, limits=_SEARCH, scopes={"search": {}}))
    for number in range(400):
        fleet.limiter.check("acme", f"made-up-{number}")
    assert "(unmatched)" == fleet.limiter.check("acme", "one-more").basis.scope
    verdicts = [fleet.limiter.check("acme", "search") for _ in range(2)]
    assert ["search", "search"] == [verdict.basis.scope for verdict in verdicts]
    assert not verdicts[1].allowed


class _Node(MemoryOwner):
    """A node that stays open when its asker retires: the test has it again later."""

    def close(self) -> None:
        """Stay open."""


class _Placed(MovingOwners):
    """A limiter whose owners are changed by the test, as a cluster's table is by another thread."""

    def __init__(self, *names: str) -> None:
        self.clock = ManualClock()
        super().__init__({name: _Node(now_us=self.clock.unix_us) for name in names}, where=names[0])
        settings = LimiterSettings(threaded=False, jitter=lambda: 0.5)
        policy = make_policy(rate_per_s=0.001, burst=1_000)
        identity = new_identity("copy", unix_ms=1, pid=1)
        self.limiter = Limiter(policy, self, RecordingSink(), identity, settings=settings, clock=self.clock)

    def move(self, where: str) -> None:
        super().move(where)
        self.limiter._askers.look_again()

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            self.clock.advance(0.25)
            self.limiter.tend()

    @property
    def known(self) -> list[str]:
        return [account.caller for account in self.limiter._directory.accounts]


def test_a_bucket_that_moved_away_and_back_is_forgotten_once_and_its_caller_kept_when_it_comes_again() -> None:
    """Forgotten twice, the second time would drop what a caller in use holds, or end the round."""
    placed = _Placed("here", "there")
    placed.limiter.check("acme")
    placed.advance(15)
    placed.move("there")
    placed.move("here")
    placed.clock.advance(15.2)
    placed.limiter.tend()
    for _ in range(400):
        placed.limiter.check("acme")
        placed.advance(0.25)
        assert ["acme"] == placed.known
    placed.advance(70)
    assert [] == placed.known


def test_a_bucket_that_moved_away_and_back_is_asked_for_once_in_a_round() -> None:
    """The second of two asks disowns the grant that answers the first."""
    placed = _Placed("here", "there")
    limiter = placed.limiter
    lane = limiter._new_lane("acme", "default")
    limiter._slow(lane, 1, placed.clock.monotonic_ns(), None)
    placed.move("there")
    placed.move("here")
    placed.clock.advance(0.25)
    with limiter._lock:
        assert [lane.account] == limiter._askers._askers["here"]._drain(None, placed.clock.monotonic_ns())


def test_a_caller_at_a_node_that_only_the_table_knows_is_served() -> None:
    """A cluster's table changes before every asker has heard of it: no request may fail for that."""
    placed = _Placed("here")
    placed.limiter.check("acme")
    placed.nodes = {**placed.nodes, "new": _Node(now_us=placed.clock.unix_us)}
    placed.where, placed.version = "new", 1
    assert placed.limiter.check("globex").allowed
    placed.limiter._askers.look_again()
    assert placed.limiter.check("acme").allowed
    assert {"new"} == {account.node for account in placed.limiter._directory.accounts}
