"""The cap under any order of events: never above its bound, nothing leaks, and an adaptive bound stays in its range."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enforcer.cap.cap import Cap, Slot
from enforcer.core.adapting import Adapting, AdaptingDials
from enforcer.core.inflight import Priority, rooms_of

_SHARES = st.floats(min_value=0, max_value=0.49)
_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from(Priority)),
        st.tuples(st.sampled_from(["release", "drop", "twice"]), st.integers(0, 50)),
        st.tuples(st.just("resize"), st.integers(1, 30)),
    ),
    max_size=120,
)


@given(bound=st.integers(1, 30), normal=_SHARES, high=_SHARES, events=_EVENTS)
def test_cap_counts_exactly_what_is_held_and_lets_nothing_in_above_its_rooms(
    bound: int, normal: float, high: float, events: list[tuple[str, object]]
) -> None:
    """A model that holds a list of slots must agree with the count at every step."""
    rooms = rooms_of(bound, reserve_normal=normal, reserve_high=high)
    cap = Cap(rooms)
    held: list[Slot] = []
    dropped = 0
    for kind, value in events:
        if isinstance(value, Priority):
            had_room = len(held) < rooms.of(value)
            slot = cap.take(value)
            assert had_room is (slot is not None)
            if slot is not None:
                held.append(slot)
            del slot
        elif isinstance(value, int) and kind == "resize":
            rooms = rooms_of(value, reserve_normal=normal, reserve_high=high)
            cap.resize(rooms)
        elif isinstance(value, int) and held:
            one = held.pop(value % len(held))
            if kind == "drop":
                dropped += 1
            for _ in range({"release": 1, "twice": 2, "drop": 0}[kind]):
                one.release()
            del one
        assert len(held) == cap.in_flight
    assert dropped == cap.abandoned
    for slot in held:
        slot.release()
    assert 0 == cap.in_flight


@given(bound=st.integers(1, 1_000), normal=_SHARES, high=_SHARES)
def test_rooms_are_ordered_and_never_empty(bound: int, normal: float, high: float) -> None:
    """Whatever the shares, each priority has some room and no more than the one above it."""
    rooms = rooms_of(bound, reserve_normal=normal, reserve_high=high)
    assert 1 <= rooms.low <= rooms.normal <= rooms.high == bound


@given(
    least=st.integers(1, 20),
    more=st.integers(0, 100),
    requests=st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**10), st.integers(0, 200)), max_size=200),
)
def test_adaptive_bound_never_leaves_its_range(least: int, more: int, requests: list[tuple[int, int, int]]) -> None:
    """Whatever latencies it is told: the worst of measurements is still a bound between least and most."""
    dials = AdaptingDials(window_samples=2, window_s=0.001, remeasure_s=1, windows_at_least=2)
    adapting = Adapting(least=least, most=least + more, now_ns=0, dials=dials)
    now_ns = 0
    for gap_ns, latency_ns, in_flight in requests:
        now_ns += gap_ns
        adapting.finished(began_ns=max(0, now_ns - latency_ns), now_ns=now_ns, in_flight=in_flight)
        assert least <= adapting.bound <= least + more
        assert adapting.floor_ns >= 0
