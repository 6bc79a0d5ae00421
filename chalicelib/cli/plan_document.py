"""The stable JSON document of a plan, for scripts.

`FORMS` has the keys of each part; what stands below a part is encoded in the same way, and what has
no form as msgspec does it. Reason codes are combined with their sentences only here. Keys are only
ever added: `plan`, `cluster`, `at`, `assumed`, `notLookedAt`, `promises`, `groups`, `gaps`,
`notes`, `rules`, `headroom`, and `details` with the numbers were added to the original ones, as was
`unreadProviders`. Scaling rules, headroom, consolidation and restarts are omitted where they are
not used, so that existing output stays unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.managed_group import MachineChoice
from chalicelib.model.memory import Memory
from chalicelib.model.plan import (
    ConsolidationReport,
    GroupVerdict,
    HeadroomVerdict,
    Health,
    HorizonReport,
    IgnoredPods,
    LifecycleVerdict,
    Move,
    NodeVerdict,
    Plan,
    PodPlacement,
    Removal,
    Restart,
    RuleVerdict,
    ScaleUp,
    UnschedulablePods,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import Rule
from chalicelib.model.snapshot import MissingData
from chalicelib.model.timestamps import format_time
from chalicelib.plan.prices import MICRO
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.text import sentence, text
from chalicelib.views.cluster_view import cause_data
from chalicelib.views.lifecycle import verdict_data


def as_document(
    plan: Plan, timings: dict[str, float], assumed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the JSON document; timings in seconds; assumed: a sentence for each hypothetical
    change (cli/whatif.py)."""
    lifecycle = {due.node: due for due in plan.lifecycle}
    document: dict[str, Any] = encoded(
        {
            "plan": plan.id,
            "cluster": plan.cluster,
            "at": format_time(plan.at),
            "assumed": assumed,
            "scaleUps": plan.scale_ups,
            "unschedulable": [_unschedulable(pods, plan.gaps) for pods in plan.unschedulable],
            "fitsExisting": plan.fits_existing,
            "promises": plan.promises,
            "notLookedAt": plan.ignored,
            "scaleDowns": plan.removals,
            **_where_used(restarts=plan.restarts),
            "unneeded": plan.unneeded,
            "unremovable": plan.unremovable,
            "groups": plan.groups,
            **_where_used(rules=plan.rules, headroom=plan.headroom),
            **_where_used(consolidation=plan.consolidation, lifecycle=lifecycle),
            "notes": plan.notes,
            **_where_used(unreadProviders=unread_providers(plan)),
            "gaps": plan.gaps,
            "health": plan.health,
            "timings": {name: round(seconds, 4) for name, seconds in timings.items()},
        }
    )
    return document


def _where_used(**parts: Any) -> dict[str, Any]:
    return {key: part for key, part in parts.items() if part}


def unread_providers(plan: Plan) -> list[str]:
    """Return the names of providers none of whose node groups were read, sorted."""
    return sorted({gap.unread_provider for gap in plan.gaps} - {""})


def encoded(value: Any) -> Any:
    """Return a part of a plan under its stable keys."""
    form = FORMS.get(type(value))
    shown = form(value) if form is not None else value
    if isinstance(shown, dict):
        return {key: encoded(part) for key, part in shown.items()}
    if isinstance(shown, tuple | list):
        return [part if type(part) is str else encoded(part) for part in shown]
    return msgspec.to_builtins(shown)


def fields(part: msgspec.Struct, always: str, where_set: str = "") -> dict[str, Any]:
    """Return fields of a part by their names in JSON: those that are always there, and those that
    are there if they are not as usual."""
    known = _fields_of(type(part))
    shown = {key: getattr(part, known[key].name) for key in always.split()}
    for key in where_set.split():
        value = getattr(part, known[key].name)
        if value != known[key].default:
            shown[key] = value
    return shown


@cache
def _fields_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


# -- parts of a plan


def _unschedulable(pods: UnschedulablePods, gaps: Sequence[MissingData] = ()) -> dict[str, Any]:
    by_group = pods.reasons.items()
    why = no_place(pods, gaps=gaps)
    return {
        "pods": pods.pods,
        **cause_data(why),
        "reasons": {group: [text(reason) for reason in reasons] for group, reasons in by_group},
        "details": {group: [sentence(reason) for reason in reasons] for group, reasons in by_group},
        **_where_used(more=pods.more),
        "nodes": pods.nodes,
        "against": {text(reason): count for reason, count in pods.against},
        **sureness(pods),
    }


def _promise(placement: PodPlacement) -> dict[str, Any]:
    place = "node" if placement.node else "group number"
    return fields(placement, f"pods {place}") | sureness(placement)


def sureness(placement: PodPlacement | UnschedulablePods) -> dict[str, Any]:
    """Return {"promised": …}, and {"onePlaceAmong": {"places": …, "among": […]}} for
    pods that compete for places, and {"lacks": […]} for pods that wait for what
    their node does not have yet."""
    contest = placement.one_place_among
    answer: dict[str, Any] = {"promised": False}
    lacks: tuple[str, ...] = ()
    if isinstance(placement, PodPlacement):
        answer["promised"] = placement.promised
        lacks = placement.lacks
    if contest is not None and contest.places:
        answer["onePlaceAmong"] = {"places": contest.places, "among": list(contest.among)}
    if lacks:
        answer["lacks"] = list(lacks)
    return answer


def _removal(removal: Removal) -> dict[str, Any]:
    """Return a removal; with its reason and its replacement, where its node is needed."""
    shown = fields(removal, "node group kind evict")
    shown["destinations"] = dict(sorted(removal.destinations.items()))
    if removal.reason is not DisruptionReason.UNNEEDED:
        shown |= fields(removal, "reason", "replacement")
    return shown


def _group(verdict: GroupVerdict) -> dict[str, Any]:
    shown = fields(verdict, "group provider min max target ready upcoming")
    if verdict.coming_for:
        shown["comingFor"] = [{"owner": owner, "pods": pods} for owner, pods in verdict.coming_for]
    if verdict.option_nodes:
        shown["option"] = option_data(verdict)
    return shown | fields(verdict, "", "skipped")


def option_data(verdict: GroupVerdict) -> dict[str, Any]:
    """Return what a group could have provided."""
    data: dict[str, Any] = {
        "nodes": verdict.option_nodes,
        "pods": verdict.option_pods,
        "waste": round(verdict.waste or 0.0, 4),
    }
    if verdict.expected_price:
        data["pricePerHour"] = verdict.price / MICRO
        data["expectedPerHour"] = verdict.expected_price / MICRO
    return data


def _consolidation(report: ConsolidationReport) -> dict[str, Any]:
    shown = fields(report, "mode moves pools") | {"stays": report.verdicts}
    if report.gap is not None:
        shown["gap"] = round(report.gap, 6)
    return shown | fields(report, "", "horizon")


def _move(move: Move) -> dict[str, Any]:
    return (
        {"nodes": move.nodes, "buys": move.purchases}
        | fields(move, "price saves disruption gain score state")
        | fields(move, "", "pool replacement currency")
    )


def _coded(reason: Reason) -> dict[str, str]:
    return {"code": reason.code.value, "message": sentence(reason)}


# -- scaling rules


def rule_data(verdict: RuleVerdict, next_times: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return one rule on one pool: `due` and `next` as RFC 3339, `rate` in percent, each
    only where it exists. next_times: see the function; without it, `next` is known of a cron
    rule whose reason says it."""
    data = fields(verdict, "rule pool source nodes")
    reason = verdict.reason
    if verdict.due:
        data["due"] = format_time(verdict.due)
    if verdict.rate is not None:
        data["rate"] = round(verdict.rate, 2)
    until = None
    if reason is not None:
        data |= _coded(reason)
        if reason.code is ReasonCode.RULE_NOT_DUE:
            until = reason.params.get("until")
    next_time = (next_times or {}).get(rule_key(verdict))
    if not next_time and until is not None:
        next_time = format_time(float(until))
    if next_time:
        data["next"] = next_time
    return data


def rule_key(verdict: RuleVerdict) -> str:
    """Return the key of a verdict's rule."""
    return Rule(verdict.rule, source=verdict.source).key


def next_times(
    verdicts: Iterable[RuleVerdict], policy: Policy, memory: Memory, now: float
) -> dict[str, str]:
    """Return when the cron rules are next due after now (epoch seconds), by rule; memory:
    the memory after the plan."""
    from chalicelib.schedules.cron import LocalClock

    keys = {rule_key(verdict) for verdict in verdicts}
    clock = LocalClock(now)
    rules = [(rule, rule.time_zone) for rule in policy.rules]
    for rule_object in memory.rule_objects.values():
        if not rule_object.disabled:
            rules += [(rule, policy.scale_up.cron_time_zone) for rule in rule_object.rules]
    times: dict[str, str] = {}
    for rule, time_zone in rules:
        if not rule.cron or rule.key not in keys:
            continue
        following = clock.times(rule.cron, time_zone).following
        if following:
            times[rule.key] = format_time(following)
    return times


# -- all parts

FORMS: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {
        Reason: _coded,
        MachineChoice: lambda choice: {
            "declaration": choice.declaration,
            "type": choice.instance_type,
            "zone": choice.zone,
            "market": choice.market,
        },
        ScaleUp: lambda up: fields(
            up, "group from to pods", "rules headroom replacement choice opens price currency"
        ),
        UnschedulablePods: _unschedulable,
        PodPlacement: _promise,
        IgnoredPods: lambda ignored: fields(ignored, "pods") | _coded(ignored.reason),
        Removal: _removal,
        Restart: lambda restart: fields(restart, "node group condition evict"),
        NodeVerdict: lambda verdict: (
            fields(verdict, "node") | _coded(verdict.reason) | fields(verdict, "", "pod")
        ),
        GroupVerdict: _group,
        RuleVerdict: rule_data,
        HeadroomVerdict: lambda verdict: (
            fields(verdict, "name wanted held added")
            | {"reasons": dict(sorted(verdict.reasons.items()))}
        ),
        ConsolidationReport: _consolidation,
        Move: _move,
        HorizonReport: lambda horizon: (
            fields(horizon, "id price end currency going marked levels")
            | {"since": format_time(horizon.since)}
        ),
        LifecycleVerdict: verdict_data,
        Health: msgspec.structs.asdict,
    }
)
"""The keys of each part, with the parts below them."""
