"""What stands behind the bases of a block: names and plans without repetition, and columns that point to them.

Standings, terms and texts of scopes are few long-lived objects behind many bases: each is read once a block. Nothing is
remembered from block to block. It would not pay: in a gateway with many callers a third of a block's lanes are new, and
what was remembered of the others has left the cache just as they have.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple, TypeVar

import numpy as np

from enforcer.types import Basis, Plan, Standing, Terms
from stream.contract.columns import Encoded, Ints, encode_array, encode_index
from stream.contract.layout import COLUMNS
from stream.contract.reading import Reader

_H = TypeVar("_H", bound=Hashable)

_POLICY_VERSION: Final = next(column for column in COLUMNS if column.name == "policy_version")


class Named(NamedTuple):
    """What stands behind the bases of a block.

    Attributes:
        callers, scopes, limits: the distinct ones.
        plans: the distinct ones, each with the calendar of a quota, or an empty text.
        columns: `caller`, `scope`, `limit` and `plan`, indexes into these lists; `policy_version`.
    """

    callers: list[str]
    scopes: list[str]
    limits: list[str]
    plans: list[tuple[Plan, str]]
    columns: tuple[Encoded, Encoded, Encoded, Encoded, Encoded]


def name_all(bases: list[Basis], reader: Reader) -> Named:
    """Read what stands behind the distinct bases of a block.

    Raises:
        UnencodableBlock: a policy version has no room in the log.
    """
    standings, standing = reader.distinct(bases, Basis.standing)
    texts, scope = reader.distinct(bases, Basis.scope)
    terms, terms_of_standing = reader.distinct(standings, Standing.terms)
    term = terms_of_standing.take(standing)
    callers, caller = _unequal([one.caller for one in standings], standing)
    scopes, scope = _unequal(texts, scope)
    limits, limit = _unequal([one.limit for one in terms], term)
    plans, plan = _unequal([(one.plan, one.per) for one in terms], term)
    version = reader.integers(terms, Terms.policy_version)
    columns = (
        encode_index(caller, len(callers)),
        encode_index(scope, len(scopes)),
        encode_index(limit, len(limits)),
        encode_index(plan, len(plans)),
        encode_array(_POLICY_VERSION, version.take(term) if len(terms) > 1 else version),
    )
    return Named(callers, scopes, limits, plans, columns)


def _unequal(values: list[_H], index: Ints) -> tuple[list[_H], Ints]:
    """The values without repetition, and the index into them that replaces the one into `values`."""
    if len(set(values)) == len(values):
        return values, index
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(numbers), np.array([numbers[value] for value in values]).take(index)
