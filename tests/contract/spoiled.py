"""What someone else may have written under a bucket's key: hashes that the owner's rules never write."""

from __future__ import annotations

import struct

_STATE = ("tokens", "clock", "clock_back", "stock_out", "lent", "offered", "window", "k_now", "k_before", "next_scan",
          "last_id", "forget_at", "start", "capacity")  # fmt: skip


def _state(**numbers: float) -> bytes:
    """The field 'bucket' of a hash, long out of date."""
    return struct.pack("<14d", *(numbers.get(name, 0.0) for name in _STATE))


def _member(open_grants: int = 0, stones: int = 0, *, ask_no: float = 0.0, rest: bytes = b"") -> bytes:
    return struct.pack("<ddBB", ask_no, 1.0, open_grants, stones) + rest


def _grant(grant_id: float = 1.0, expires_us: float = 1.0, size: int = 5, stock: int = 5, spent: int = 0) -> bytes:
    return struct.pack("<ddIII", grant_id, expires_us, size, stock, spent)


def _stone(grant_id: float = 1.0, until_us: float = 1.0) -> bytes:
    return struct.pack("<ddII", grant_id, until_us, 5, 0)


NAN, INF = float("nan"), float("inf")
#: By what is wrong with them; None for a key of another type.
SPOILED: dict[str, dict[str, bytes] | None] = {
    "wrong type": None,
    "short": {"bucket": b"short"},
    "long": {"bucket": _state() + b"x"},
    "member": {"bucket": _state(), "gw-1/1": b"short"},
    "grants": {"bucket": _state(), "gw-1/1": _member(200)},
    "stones": {"bucket": _state(), "gw-1/1": _member(0, 1)},
    "more than it says": {"bucket": _state(), "gw-1/1": _member(rest=_grant())},
    "ask number": {"bucket": _state(), "gw-1/1": _member(ask_no=NAN)},
    "grant's id": {"bucket": _state(stock_out=5), "gw-1/1": _member(1, rest=_grant(NAN))},
    "grant's expiry": {"bucket": _state(stock_out=5), "gw-1/1": _member(1, rest=_grant(1, -INF))},
    "grant's stock": {"bucket": _state(stock_out=5), "gw-1/1": _member(1, rest=_grant(size=4))},
    "stone": {"bucket": _state(), "gw-1/1": _member(0, 1, rest=_stone(1, NAN))},
    "sum": {"bucket": _state(), "gw-1/1": _member(1, rest=_grant())},
    "member without a state": {"gw-1/1": _member()},
    "last of those that expire": {
        "bucket": _state(stock_out=10),
        **{f"gw-{number}/1": _member(1, rest=_grant(number)) for number in (2, 3)},
        "gw-9/1": _member(1, rest=_grant(NAN)),
    },
    "other member": {"bucket": _state(), "gw-2/1": b"short"},
    "other member's grants": {"bucket": _state(), "gw-2/1": _member(200)},
    "other member's grant": {"bucket": _state(stock_out=5), "gw-2/1": _member(1, rest=_grant(0.5))},
    "other member's stone": {"bucket": _state(), "gw-2/1": _member(0, 1, rest=_stone(NAN))},
    "other member's sum": {"bucket": _state(), "gw-2/1": _member(1, rest=_grant())},
    **{f"{name} nan": {"bucket": _state(**{name: NAN})} for name in _STATE},
    **{f"{name} inf": {"bucket": _state(**{name: INF})} for name in _STATE},
    **{f"{name} 1e300": {"bucket": _state(**{name: 1e300})} for name in _STATE if name != "offered"},
    **{f"{name} below 0": {"bucket": _state(**{name: -1.0})} for name in _STATE[1:]},
    **{f"{name} part": {"bucket": _state(**{name: 0.5})} for name in _STATE[1:] if name != "offered"},
}  # fmt: skip
