"""Shows the scaling rules and headroom of a plan as JSON and as tables.

All of it is omitted where rules and headroom are not used, so that existing output stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chalicelib.command.tables import Table
from chalicelib.model.memory import Memory
from chalicelib.model.plan import HeadroomVerdict, Plan, RuleVerdict, ScaleUp
from chalicelib.model.policy import Policy
from chalicelib.model.reason import ReasonCode
from chalicelib.model.scaling_rules import Rule
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import sentence


def as_data(plan: Plan) -> dict[str, Any]:
    """Return `rules` and `headroom`, each only where it is not empty."""
    return {
        **({"rules": [rule_data(verdict) for verdict in plan.rules]} if plan.rules else {}),
        **({"headroom": [_headroom_data(verdict) for verdict in plan.headroom]} if plan.headroom else {}),
    }


def rule_data(verdict: RuleVerdict, following: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return one rule on one pool: due and next as RFC 3339, rate in percent, each only where it exists. following: see
    `following`."""
    data: dict[str, Any] = {
        "rule": verdict.rule,
        "pool": verdict.pool,
        "source": verdict.source,
        "nodes": verdict.nodes,
    }
    if verdict.due:
        data["due"] = format_time(verdict.due)
    if verdict.rate is not None:
        data["rate"] = round(verdict.rate, 2)
    if verdict.reason is not None:
        data |= {"code": verdict.reason.code.value, "message": sentence(verdict.reason)}
    upcoming = (following or {}).get(key_of(verdict)) or next_time(verdict)
    return {**data, **({"next": upcoming} if upcoming else {})}


def next_time(verdict: RuleVerdict) -> str:
    """Return when an inactive cron rule is due next, as RFC 3339; empty where the plan does not say."""
    reason = verdict.reason
    if reason is None or reason.code is not ReasonCode.RULE_NOT_DUE or "until" not in reason.params:
        return ""
    return format_time(float(reason.params["until"]))


def key_of(verdict: RuleVerdict) -> str:
    """Return the key of a verdict's rule (model/scaling_rules.Rule.key)."""
    return Rule(verdict.rule, source=verdict.source).key


def following(verdicts: Iterable[RuleVerdict], policy: Policy, memory: Memory, now: float) -> dict[str, str]:
    """Return when the cron rules are next due after now (epoch seconds), by rule; memory: the memory after the plan."""
    from chalicelib.schedules.cron import LocalClock

    wanted, clock, found = {key_of(verdict) for verdict in verdicts}, LocalClock(now), {}
    zone = policy.scale_up.cron_time_zone
    timed = [(rule, rule.time_zone) for rule in policy.rules]
    timed += [(rule, zone) for each in memory.rule_objects.values() if not each.disabled for rule in each.rules]
    for rule, place in timed:
        if rule.cron and rule.key in wanted and (at := clock.times(rule.cron, place).following):
            found[rule.key] = format_time(at)
    return found


def growth_data(up: ScaleUp) -> dict[str, Any]:
    """Return the causes of a scale-up other than pods."""
    named = {"rules": list(up.rules), "headroom": list(up.headroom)}
    return {key: names for key, names in named.items() if names}


def causes(up: ScaleUp) -> str:
    """Return the causes of a scale-up other than pods as `rules a, b; headroom c`; empty where pods are the only
    cause."""
    named = (("rule", up.rules), ("headroom", up.headroom))
    return "; ".join(
        f"{word}{'s' if word == 'rule' and len(names) > 1 else ''} {', '.join(names)}" for word, names in named if names
    )


def rules_table(verdicts: Iterable[RuleVerdict], following: Mapping[str, str] | None = None) -> Table:
    """Return one row per rule and pool, with a column for the next time where `following` is given."""
    rows = tuple(
        (
            verdict.rule,
            verdict.pool,
            verdict.source or "policy",
            f"+{verdict.nodes}" if verdict.nodes else "-",
            _measured(verdict),
            *(() if following is None else (following.get(key_of(verdict), "-"),)),
            sentence(verdict.reason) if verdict.reason is not None else "-",
        )
        for verdict in verdicts
    )
    upcoming = () if following is None else ("next",)
    return Table(("rule", "pool", "from", "nodes", "due or rate", *upcoming, "why not (more)"), rows, title="Rules")


def headroom_table(verdicts: Sequence[HeadroomVerdict]) -> Table:
    """Return one row per headroom."""
    rows = tuple(
        (
            verdict.name,
            str(verdict.wanted),
            str(verdict.held),
            f"+{verdict.added}" if verdict.added else "-",
            "; ".join(f"{group}: {sentence(reason)}" for group, reason in sorted(verdict.reasons.items())) or "-",
        )
        for verdict in verdicts
    )
    return Table(("headroom", "virtual pods", "have room", "on new nodes", "why not all"), rows, title="Headroom")


def _headroom_data(verdict: HeadroomVerdict) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "wanted": verdict.wanted,
        "held": verdict.held,
        "added": verdict.added,
        "reasons": {
            group: {"code": reason.code.value, "message": sentence(reason)}
            for group, reason in sorted(verdict.reasons.items())
        },
    }


def _measured(verdict: RuleVerdict) -> str:
    if verdict.due:
        return f"due {format_time(verdict.due)}"
    return "-" if verdict.rate is None else f"{verdict.rate:.1f}%"
