"""The sentences that stand first on a page, and the text that support can send on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from dashboard import formats
from dashboard.rows import Busiest, Counts, Decision, LimitTerms, PlanChange, PlanTerms
from enforcer.core.sentences import explain_refusal
from enforcer.types import Reason, Source

Tone: TypeAlias = Literal["plain", "strong", "refused", "degraded"]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A piece of a sentence; the tone is for the eye only, the words say it all."""

    text: str
    tone: Tone = "plain"


Sentence: TypeAlias = tuple[Phrase, ...]


def plain(sentence: Iterable[Phrase]) -> str:
    """The sentence as text."""
    return "".join(phrase.text for phrase in sentence)


def usage_sentence(
    totals: Counts, span_words: str, busiest: Busiest | None, plan: PlanTerms | None, zone: ZoneInfo, *, now_us: int
) -> Sentence:
    """What a customer reads first: sent, refused with its share, and the busiest second beside the plan."""
    return (
        Phrase("You sent "),
        *_sent_and_refused(totals, span_words),
        *_busiest(busiest, plan, "Your", zone, now_us=now_us),
    )


def arriving_sentence(whose: str, sent: int, refused: int, span_words: str) -> Sentence:
    """What stands first while the totals are behind the record: that they are, and what is known at least."""
    known = f"at least {formats.plural(sent, 'request', 'requests')} in {span_words}"
    of_them = (Phrase(", at least "), Phrase(f"{formats.count(refused)} of them refused", "refused"))
    return (
        Phrase(f"{whose} "),
        Phrase("totals are still arriving", "strong"),
        Phrase(f": so far {known}"),
        *(of_them if refused else ()),
        Phrase("."),
    )


def verdict_sentence(caller: str, totals: Counts, span_words: str) -> Sentence:
    """What support reads first: who, how much, and what was refused for which reason."""
    reasons = refusal_reasons(totals)
    # One reason needs no count of its own: it stands right before.
    alone = len(reasons) == 1 and reasons[0][1] == totals.refused
    causes = [_CAUSES[reason] if alone else f"{formats.count(number)} {_CAUSES[reason]}" for reason, number in reasons]
    return (
        Phrase(caller, "strong"),
        Phrase(" sent "),
        *_sent_and_refused(totals, span_words, causes, alone=alone),
    )


def context_sentence(
    plan: PlanTerms | None, busiest: Busiest | None, copies: int, totals: Counts, zone: ZoneInfo, *, now_us: int
) -> Sentence:
    """The second line for support: busiest second beside the plan, how many copies (k), what was decided degraded."""
    sentence = list(_busiest(busiest, plan, "Its", zone, now_us=now_us))
    if plan is None:
        sentence.append(Phrase(" Its plan is not known yet."))
    if copies:
        sentence.append(Phrase(f" Its traffic reaches {formats.plural(copies, 'server', 'servers')} (k)."))
    if totals.degraded:
        made = formats.plural(totals.degraded, "decision was made", "decisions were made")
        sentence += [Phrase(" "), Phrase(f"{made} in degraded mode", "degraded"), Phrase(_DEGRADED_MEANS)]
    elif totals.offered:
        sentence.append(Phrase(" No server had to decide alone (degraded mode)."))
    return (Phrase(sentence[0].text.lstrip()), *sentence[1:]) if sentence else ()


def plan_change_sentence(change: PlanChange | None, whose: str, zone: ZoneInfo, *, now_us: int) -> Sentence:
    """That the plan was another one before, so that nobody holds refusals of that time against the plan of today."""
    if change is None:
        return ()
    since = formats.minute_of(change.since_s * 1_000_000, zone, now_us=now_us)
    return (Phrase(f" {whose} plan changed about {since}: before, it was {_terms(change.before)}."),)


def reach_line(copies: int) -> str:
    """How many servers the traffic reaches (k), in words."""
    servers = "one" if copies == 1 else formats.count(copies)
    return f"Your traffic reaches {servers} of our servers."


def listed_line(refused: int, listed: int, *, arriving: bool = False) -> str:
    """Above a list of refusals: how many of how many it shows; of how many is not known while totals arrive."""
    if arriving:
        return "Those that have arrived so far, newest first." if listed else "None has arrived so far."
    if not refused and not listed:
        return "None in this span."
    if listed >= refused:
        return "All of them, newest first." if listed > 1 else "The only one."
    return f"The last {formats.count(listed)} of {formats.count(refused)}, newest first."


def refusal_reasons(totals: Counts) -> list[tuple[Reason, int]]:
    """The reasons that occurred with their counts, most frequent first."""
    found = [
        (Reason.SPENT, totals.refused_spent),
        (Reason.NEVER, totals.refused_never),
        (Reason.EMERGENCY, totals.refused_emergency),
        (Reason.CLOSED, totals.refused_closed),
        (Reason.CEILING, totals.refused_ceiling),
    ]
    return sorted(((reason, number) for reason, number in found if number), key=lambda pair: -pair[1])


def advice(reason: Reason) -> str:
    """What a customer can do about refusals of one reason."""
    return _ADVICE[reason]


def source_words(source: Source) -> str:
    """Who decided, in words."""
    return _SOURCES[source]


def why(decision: Decision, terms: LimitTerms | None, zone: ZoneInfo, *, at: bool = False) -> str:
    """The one sentence about a decision by a limit of these terms; `at` puts its time into it.

    Where the limit's figures have not arrived yet, only the reason is said: never figures that are not known.
    """
    when = formats.clock_ms(decision.at_us, zone) if at else None
    if decision.allowed:
        return f"Admitted at {when}." if when else "Admitted."
    if terms is None:
        return f"Refused{f' at {when}' if when else ''} {_CAUSES[decision.reason]}."
    return explain_refusal(
        reason=decision.reason,
        cost=decision.cost_tokens,
        rate_per_s=terms.rate_per_s,
        burst=terms.burst,
        retry_after_ms=decision.retry_after_ms,
        at=when,
        per=terms.per,
    )


def reply_text(
    caller: str,
    totals: Counts,
    *,
    span: tuple[str, str],
    plan: PlanTerms | None,
    busiest: Busiest | None,
    refusals: Sequence[str],
    changed: str = "",
) -> str:
    """A reply that support can copy and send: the numbers, the plan, and the refusals that were asked about."""
    lines = [
        "Hello,",
        "",
        f"From {span[0]} to {span[1]} your account {caller} sent {_told(totals)}.",
    ]
    if plan is not None:
        lines.append(f"Your plan is {_terms(plan)}.{changed}")
    if busiest is not None:
        lines.append(f"Your busiest {busiest.unit} had {formats.plural(busiest.requests, 'request', 'requests')}.")
    if refusals:
        lines += ["", *refusals]
    lines += [""] + [advice(reason) for reason, _ in refusal_reasons(totals)[:2]]
    return "\n".join(lines).rstrip() + "\n"


def _sent_and_refused(totals: Counts, span_words: str, causes: Sequence[str] = (), *, alone: bool = False) -> Sentence:
    if not totals.offered:
        return (Phrase("no requests", "strong"), Phrase(f" in {span_words}."))
    sent = Phrase(formats.plural(totals.offered, "request", "requests"), "strong")
    ending = f"{' ' if alone else ': '}{', '.join(causes)}." if causes else "."
    if totals.offered == 1:
        fate = Phrase("refused", "refused") if totals.refused else Phrase("admitted", "strong")
        return (sent, Phrase(f" in {span_words}, and it was "), fate, Phrase(ending))
    if not totals.refused:
        return (sent, Phrase(f" in {span_words}; "), Phrase("none", "strong"), Phrase(" were refused."))
    return (sent, Phrase(f" in {span_words}; "), Phrase(_refused_words(totals), "refused"), Phrase(ending))


def _told(totals: Counts) -> str:
    sent = formats.plural(totals.offered, "request", "requests")
    if totals.offered == 1:
        return f"{sent}, and it was {'refused' if totals.refused else 'admitted'}"
    if not totals.offered:
        return "no requests"
    return f"{sent}; {_refused_words(totals) if totals.refused else 'none of them was refused'}"


def _refused_words(totals: Counts) -> str:
    were = "was" if totals.refused == 1 else "were"
    return f"{formats.count(totals.refused)} ({formats.share(totals.refused, totals.offered)}) {were} refused"


def _busiest(busiest: Busiest | None, plan: PlanTerms | None, whose: str, zone: ZoneInfo, *, now_us: int) -> Sentence:
    if busiest is None:
        return ()
    time = formats.moment if busiest.unit == "second" else formats.minute_of
    return (
        Phrase(f" {whose} busiest {busiest.unit} was "),
        Phrase(formats.count(busiest.requests), "strong"),
        Phrase(f", at {time(busiest.at_us, zone, now_us=now_us)}{_beside(plan, whose)}."),
    )


def _beside(plan: PlanTerms | None, whose: str) -> str:
    """The plan's figures after the busiest second: a bar of a minute can be under the plan while a second was not."""
    return "" if plan is None else f"; {whose.lower()} plan is {formats.plan_figures(plan.rate_per_s, plan.burst)}"


def _terms(plan: PlanTerms) -> str:
    return formats.plan_terms(plan.name, plan.rate_per_s, plan.burst)


_CAUSES: dict[Reason, str] = {
    Reason.NONE: "for no reason that was recorded",
    Reason.SPENT: "because a limit was used up",
    Reason.NEVER: "because of a cost above what a limit can ever hold",
    Reason.EMERGENCY: "because the limiter could not be reached and the emergency budget was spent",
    Reason.CLOSED: "because the limiter could not be reached and the route fails closed",
    Reason.CEILING: "because the server had as much to do as it can take",
}

_DEGRADED_MEANS = (
    ": the server could not reach the limiter and decided alone, by the fallback that the policy names for that case."
)

_SOURCES: dict[Source, str] = {
    Source.LOCAL: "local: this server, from its own share",
    Source.SHARED: "shared: the owner, asked for this request",
    Source.DEGRADED: "degraded: this server alone, the owner was away",
    Source.CAP: "cap: this server’s in-flight ceiling",
}

_ADVICE: dict[Reason, str] = {
    Reason.NONE: "Send us the request id.",
    Reason.SPENT: "Limit used up: wait as long as Retry-After says, spread requests, or ask for a larger plan.",
    Reason.NEVER: "Cost above the limit: split the request or ask for a larger plan; waiting will not help.",
    Reason.EMERGENCY: "Limiter not reached: this was on our side; retry after the time in Retry-After.",
    Reason.CLOSED: "Limiter not reached: this was on our side; retry after the time in Retry-After.",
    Reason.CEILING: "Server full: this was not your plan; retry after the time in Retry-After.",
}
