"""Advice as a fragment of a policy, as values with stable keys, and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import yaml

from chalicelib.cli.advise.backtest import Advice, Proposal, Refusal, ScheduleOutcome
from chalicelib.cli.advise.history import DAY
from chalicelib.cli.advise.patterns import QUANTILE, days_text
from chalicelib.cli.output import Block, Table, one_line
from chalicelib.cli.policy_files import load_document, text_values, written
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.quantity import format_duration
from chalicelib.model.timestamps import format_time
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.reasons.words import counted

COMPUTED = "computed from ended operations and the prices of nodes"
REPLAYED = "replayed with recorded decisions"
_MOST_REFUSALS = 30
LIMITS = (
    (
        "A pod waits from the purchase until the node is usually ready; an operation names 50 pods "
        "at most."
    ),
    (
        "Nodes that a schedule, a rule or headroom of today buys are no evidence: what they serve "
        "is not proposed again."
    ),
)


def entry_of(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as in a policy document."""
    entry: dict[str, Any] = {"name": schedule.name}
    if schedule.groups:
        entry["groups"] = list(schedule.groups)
    entry |= {
        "cron": schedule.cron,
        "timeZone": schedule.time_zone,
        "duration": format_duration(schedule.duration),
    }
    if schedule.min is not None:
        return entry | {"min": schedule.min}
    return entry | {"headroom": f"{schedule.headroom}%"}


def validated(advice: Advice, text: str, cluster: str) -> Advice:
    """Return the advice with the schedules that a policy document accepts together; the others are
    refused. Raises InputErrors for a document that is not valid itself."""
    load_document(text, cluster)
    document = text_values(text)
    before = list(document["spec"].get("schedules") or [])

    def problem_of(proposals: Sequence[Proposal]) -> str:
        entries = [entry_of(proposal.schedule) for proposal in proposals]
        document["spec"]["schedules"] = [*before, *entries]
        try:
            load_document(written(document), cluster)
        except BadInput as error:
            return error.problems[0].problem if isinstance(error, InputErrors) else error.problem
        return ""

    if not problem_of(advice.proposals):
        return advice
    accepted: list[Proposal] = []
    refusals = list(advice.refusals)
    for proposal in advice.proposals:
        problem = problem_of([*accepted, proposal])
        if problem:
            text = f"{proposal.schedule.name}: the policy: {problem}"
            refusals.append(Refusal(proposal.history.facts.name, text))
        else:
            accepted.append(proposal)
    return msgspec.structs.replace(advice, proposals=tuple(accepted), refusals=tuple(refusals))


def with_schedules(policy: Policy, advice: Advice) -> Policy:
    """Return a policy with the proposed schedules."""
    proposed = (proposal.schedule for proposal in advice.proposals)
    return msgspec.structs.replace(policy, schedules=(*policy.schedules, *proposed))


def fragment(cluster: str, advice: Advice) -> str:
    """Return the schedules as YAML for spec.schedules of the policy, with
    the evidence as comments."""
    command = f"outscaler advise {one_line(cluster)}"
    lines = [f"# {command}: from {advice.days:.0f} days of history; add it to the policy"]
    if not advice.proposals:
        refusals = advice.refusals[:_MOST_REFUSALS]
        lines += [f"# nothing is proposed: {_refusal_text(refusal)}" for refusal in refusals]
        return "\n".join([*lines, "spec: {}", ""])
    lines += ["spec:", "  schedules:"]
    for proposal in advice.proposals:
        lines += [f"    # {one_line(sentence)}" for sentence in _evidence(proposal)]
        entries = [entry_of(proposal.schedule)]
        text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1000)
        lines += [f"    {line}" for line in text.splitlines()]
    return "\n".join([*lines, ""])


def _evidence(proposal: Proposal) -> Iterator[str]:
    pattern = proposal.pattern
    facts = proposal.history.facts
    tested = proposal.tested
    begin, end = pattern.quarters
    when = f"{days_text(pattern.weekdays)} {begin}-{end}"
    bought = f"{counted(pattern.bought, 'node')} of {facts.name} bought"
    on_days = f"on {pattern.hits} of {counted(pattern.days, 'day')}"
    in_weeks = f"in {pattern.hit_weeks} of {counted(pattern.weeks, 'week')}"
    yield f"{when}: {bought} for {counted(pattern.pods, 'pod')} {on_days}, {in_weeks}"
    source = "as it has learnt" if facts.learned else "maxNodeProvisionTime"
    lead = format_duration(round(facts.lead))
    yield f"opens {lead} earlier ({source}); enough on {QUANTILE:.0%} of these days"
    needless = f"needless on {tested.needless} of {counted(tested.openings, 'day')}"
    unneeded = f"{tested.unneeded_share:.0%} of node quarters not needed"
    missing = f"in {tested.missing_share:.0%} of quarters too few"
    yield f"tested: {needless}; {unneeded}, {missing}"
    cost = _cost(tested, facts.currency)
    saved = tested.per_day(tested.saved)
    waited = tested.per_day(tested.waited)
    yield f"tested: {cost} a day, {saved:.0f} of {waited:.0f} minutes of waiting saved a day"


def _cost(outcome: ScheduleOutcome, currency: str) -> str:
    if outcome.cost is None:
        return f"{outcome.per_day(outcome.node_hours):.1f} node hours"
    return f"{outcome.per_day(outcome.cost):.2f} {currency}".strip()


def _refusal_text(refusal: Refusal) -> str:
    return one_line(f"{refusal.name}: {refusal.problem}" if refusal.name else refusal.problem)


# -- for programs


def as_data(cluster: str, advice: Advice, until: float, zone: str) -> dict[str, Any]:
    """Return the advice under its stable keys."""
    return {
        "cluster": cluster,
        "since": format_time(until - advice.days * DAY),
        "until": format_time(until),
        "days": round(advice.days, 2),
        "testedSince": format_time(advice.split),
        "timeZone": zone,
        "quantile": QUANTILE,
        "source": COMPUTED,
        "proposals": [_proposal_data(proposal) for proposal in advice.proposals],
        "notProposed": [
            {"group": refusal.name, "why": refusal.problem} for refusal in advice.refusals
        ],
        "notes": list(LIMITS),
    }


def _proposal_data(proposal: Proposal) -> dict[str, Any]:
    pattern = proposal.pattern
    facts = proposal.history.facts
    begin, end = pattern.quarters
    evidence = {
        "weekdays": days_text(pattern.weekdays),
        "from": begin,
        "until": end,
        "days": pattern.days,
        "daysWithPurchases": pattern.hits,
        "weeks": pattern.weeks,
        "weeksWithPurchases": pattern.hit_weeks,
        "nodesBought": pattern.bought,
        "podsWaited": pattern.pods,
        "size": pattern.size,
        "leadSeconds": facts.lead,
        "leadLearned": facts.learned,
    }
    return {
        "schedule": entry_of(proposal.schedule),
        "group": facts.group,
        "evidence": evidence,
        "tested": _outcome_data(proposal.tested, facts.currency),
        "allDays": _outcome_data(proposal.recorded, facts.currency),
    }


def _outcome_data(outcome: ScheduleOutcome, currency: str) -> dict[str, Any]:
    cost = None if outcome.cost is None else round(outcome.per_day(outcome.cost), 6)
    return {
        "openings": outcome.openings,
        "needlessOpenings": outcome.needless,
        "notNeeded": round(outcome.unneeded_share, 4),
        "missing": round(outcome.missing_share, 4),
        "nodeHoursPerDay": round(outcome.per_day(outcome.node_hours), 4),
        "costPerDay": cost,
        "currency": currency if cost is not None else "",
        "waitedMinutesPerDay": round(outcome.per_day(outcome.waited), 2),
        "savedMinutesPerDay": round(outcome.per_day(outcome.saved), 2),
    }


# -- for people


def blocks(cluster: str, advice: Advice, until: float, zone: str) -> Iterator[Block]:
    """Yield the tables, and the fragment at the end."""
    day = datetime.fromtimestamp(until, ZoneInfo(zone)).date()
    yield f"{cluster}: {advice.days:.0f} days of history until {day}, times in {zone}"
    yield Table(
        ("group", "days", "bought at", "on days", "in weeks", "nodes", "pods", "proposed", "open"),
        tuple(_pattern_row(proposal) for proposal in advice.proposals),
        right=frozenset({5, 6}),
        empty="Nothing is proposed.",
    )
    if advice.proposals:
        last_days = round((until - advice.split) / DAY)
        first_days = advice.days - last_days
        fitted = f"Fitted to the first {first_days:.0f} days"
        yield _tests_table(
            [(proposal, proposal.tested) for proposal in advice.proposals],
            f"{fitted}, tested on the last {last_days} ({COMPUTED})",
        )
        yield _tests_table(
            [(proposal, proposal.recorded) for proposal in advice.proposals],
            "The proposed schedules on all days, which they have seen",
        )
    refusals = advice.refusals[:_MOST_REFUSALS]
    rows = [(refusal.name or "(all)", refusal.problem) for refusal in refusals]
    more = len(advice.refusals) - len(refusals)
    if more:
        rows.append(("", f"and {more} more; -o json has all"))
    yield Table(("group", "because"), tuple(rows), title="Not proposed")
    if advice.proposals:
        yield "\n".join(LIMITS)
        yield fragment(cluster, advice)


def _pattern_row(proposal: Proposal) -> tuple[str, ...]:
    pattern = proposal.pattern
    schedule = proposal.schedule
    value = f"min {schedule.min}" if schedule.min is not None else f"headroom {schedule.headroom}%"
    return (
        proposal.history.facts.name,
        days_text(pattern.weekdays),
        "-".join(pattern.quarters),
        f"{pattern.hits} of {pattern.days}",
        f"{pattern.hit_weeks} of {pattern.weeks}",
        str(pattern.bought),
        str(pattern.pods),
        value,
        f"{schedule.cron}, {format_duration(schedule.duration)}",
    )


def _tests_table(outcomes: Sequence[tuple[Proposal, ScheduleOutcome]], title: str) -> Table:
    columns = (
        "schedule",
        "needless",
        "not needed",
        "missing",
        "cost a day",
        "minutes saved a day",
        "of",
    )
    rows = tuple(_test_row(proposal, outcome) for proposal, outcome in outcomes)
    return Table(columns, rows, title=title, right=frozenset(range(1, 7)))


def _test_row(proposal: Proposal, outcome: ScheduleOutcome) -> tuple[str, ...]:
    return (
        proposal.schedule.name,
        f"{outcome.needless} of {outcome.openings}",
        f"{outcome.unneeded_share:.0%}",
        f"{outcome.missing_share:.0%}",
        _cost(outcome, proposal.history.facts.currency),
        f"{outcome.per_day(outcome.saved):.0f}",
        f"{outcome.per_day(outcome.waited):.0f}",
    )
