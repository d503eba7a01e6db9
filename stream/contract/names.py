"""What stands behind the bases of a block: names and plans without repetition, and columns that point to them.

Standings, terms and texts of scopes are few long-lived objects behind many bases: each is read once a block. Nothing is
remembered from block to block. It would not pay: in a gateway with many callers a third of a block's lanes are new, and
what was remembered of the others has left the cache just as they have.
"""

from __future__ import annotations

from enforcer.types import Basis, Charge, Standing, Terms
from stream.contract.canonical import unequal_values
from stream.contract.reading import Reader
from stream.contract.writing import BaseColumns, ChargeRow, PlanRow


def name_all(bases: list[Basis], reader: Reader) -> BaseColumns:
    """Read what the distinct bases of a block say, in the order in which they are given.

    Raises:
        UnencodableBlock: a number has no room in the log.
    """
    standings, standing = reader.distinct(bases, Basis.standing)
    texts, scope = reader.distinct(bases, Basis.scope)
    terms, terms_of_standing = reader.distinct(standings, Standing.terms)
    others, charged = reader.distinct(bases, Basis.also)
    term = terms_of_standing.take(standing)
    callers, caller = unequal_values([one.caller for one in standings], standing)
    scopes, scope = unequal_values(texts, scope)
    limits, limit = unequal_values([one.limit for one in terms], term)
    plans, plan = unequal_values([_plan_row(one) for one in terms], term)
    charges, charged = unequal_values([_charge_rows(also) for also in others], charged)
    return BaseColumns(
        callers=callers,
        scopes=scopes,
        limits=limits,
        plans=plans,
        charges=charges,
        caller=caller,
        scope=scope,
        limit=limit,
        plan=plan,
        policy_version=reader.integers(terms, Terms.policy_version).take(term),
        grant_id=reader.integers(bases, Basis.grant_id),
        k=reader.integers(bases, Basis.k),
        charged=charged,
    )


def _plan_row(terms: Terms) -> PlanRow:
    plan = terms.plan
    return plan.name, plan.rate_per_s, plan.burst, terms.per


def _charge_rows(also: tuple[Charge, ...]) -> tuple[ChargeRow, ...]:
    return tuple((charge.subject, charge.limit, charge.grant_id) for charge in also)
