"""Reads HorizontalNodeAutoscaler objects of a cluster as scaling rules.

These objects are often hand-written, so every mistake is reported at once, with its path and a correction; an object
with one mistake is refused as a whole. Keys and enumerations are case-insensitive, because the vendor's own pages write
them in several ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Policy
from chalicelib.model.scaling_rules import Metric, Rule, RuleObject
from chalicelib.model.timestamps import parse_time
from chalicelib.policy.object_fields import Fields, Told, shown

KIND, GROUP, VERSION = "HorizontalNodeAutoscaler", "autoscaling.cce.io", "v1alpha1"
PLURAL, NAMESPACE = "horizontalnodeautoscalers", "kube-system"
MOST_RULES, MOST_TARGETS, MOST_NODES, LONGEST_NAME = 10, 100, 100_000, 253
AUTOMATIC = "-1"
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_RULE = ("ruleName", "type", "disable", "cronTrigger", "metricTrigger", "action")
_TRIGGERS = {"cron": "cronTrigger", "metric": "metricTrigger"}
_VENDOR = "huaweicloud"


def read_object(raw: Mapping[str, Any]) -> RuleObject:
    """Read one object, as decoded from JSON or YAML; never raises, for any input.

    problems: why it is refused (it then has no rules); warnings: what is ignored. The rules have `source`
    namespace/name, the object's targets as groups, and time zone UTC (the caller replaces it by the policy's). A
    disabled object stays disabled even if it has mistakes: refusing it would leave its last version in force.
    """
    told = Told()
    top = Fields.of(raw, "", _TOP, told)
    if top is None:
        return RuleObject("", "", problems=told.problems)
    meta = Fields.of(top.get("metadata") or {}, "metadata", None, told) or Fields({}, "metadata", told)
    name, namespace = (_text(meta.get(key)) for key in ("name", "namespace"))
    namespace = namespace or NAMESPACE
    _identity(top, name, namespace, told)
    known = not told.problems
    spec = Fields.of(top.get("spec") or {}, "spec", ("disable", "targetNodepoolIds", "rules"), told)
    disabled = False
    rules: tuple[Rule, ...] = ()
    if spec is not None:
        disabled = spec.flag("disable")
        rules = _rules(spec, f"{namespace}/{name}", _targets(spec, told), told)
    off = disabled and known
    return RuleObject(
        namespace,
        name,
        uid=_text(meta.get("uid")),
        created=_instant(meta.get("creationTimestamp")),
        disabled=disabled,
        rules=() if told.problems else rules,
        problems=() if off else told.problems,
        warnings=(*told.problems, *told.warnings) if off else told.warnings,
    )


def obeyed(policy: Policy) -> bool:
    """Return whether such objects are in force in a cluster (scaleUp.horizontalNodeAutoscalers; if not set, where the
    vendor's groups are scaled)."""
    said = policy.scale_up.horizontal_node_autoscalers
    return _VENDOR in policy.providers if said is None else said


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _instant(value: Any) -> float:
    """Return 0.0 for an invalid time, because it only decides which object was created first."""
    try:
        return parse_time(value) if isinstance(value, str) else 0.0
    except BadInput:
        return 0.0


def _identity(top_fields: Fields, name: str, namespace: str, told: Told) -> None:
    """Return its kind and location. Items of a list do not repeat apiVersion and kind."""
    api, kind = top_fields.get("apiVersion"), top_fields.get("kind")
    if api is not None and _text(api).casefold() != f"{GROUP}/{VERSION}":
        told.problem("apiVersion", f"{shown(api)} is not known", f"write {GROUP}/{VERSION}")
    if kind is not None and _text(kind).casefold() != KIND.casefold():
        told.problem("kind", f"{shown(kind)} is something else", f"write {KIND}")
    if not name or not name.isprintable():
        told.problem("metadata.name", "is missing", "give the object a name")
    if namespace != NAMESPACE:
        told.problem("metadata.namespace", f"{shown(namespace)} is not looked at", f"put the object into {NAMESPACE}")


def _targets(spec_fields: Fields, told: Told) -> tuple[str, ...]:
    place, given = spec_fields.at("targetNodepoolIds"), spec_fields.get("targetNodepoolIds")
    if given is not None and not isinstance(given, list | tuple):
        told.problem(place, f"{shown(given)} is not a list", "write the uids of node pools as a list")
        return ()
    if len(given or ()) > MOST_TARGETS:
        told.problem(place, f"has {len(given or ())} node pools", f"write at most {MOST_TARGETS}, and another object")
        return ()
    found: dict[str, None] = {}
    for index, each in enumerate(given or ()):
        if not isinstance(each, str) or not each.strip().isprintable() or not 0 < len(each.strip()) <= LONGEST_NAME:
            told.problem(f"{place}[{index}]", f"{shown(each)} is not the uid of a node pool", "write it as text")
        else:
            found[each.strip()] = None
    if not given:
        told.warning(place, "is empty, so that the rules act on nothing")
    return tuple(found)


def _rules(spec_fields: Fields, source: str, targets: tuple[str, ...], told: Told) -> tuple[Rule, ...]:
    place, given = spec_fields.at("rules"), spec_fields.get("rules")
    if given is not None and not isinstance(given, list | tuple):
        told.problem(place, f"{shown(given)} is not a list", "write the rules as a list")
        return ()
    listed = tuple(given or ())
    if not listed:
        told.warning(place, "is empty, so that nothing is done")
    if len(listed) > MOST_RULES:
        told.problem(place, f"has {len(listed)} rules", f"write at most {MOST_RULES}")
    found: list[Rule] = []
    names: set[str] = set()
    metrics: dict[Metric, str] = {}
    for index, raw in enumerate(listed[:MOST_RULES]):
        fields = Fields.of(raw, f"{place}[{index}]", _RULE, told)
        if fields is None:
            continue
        name = _name(fields, names, told)
        skipped = fields.flag("disable")
        rule = _rule(fields, Rule(name, targets, source=source), told)
        if skipped:
            told.warning(fields.at("disable"), "is true, so that the rule is passed over")
            continue
        if rule.metric is not None and metrics.setdefault(rule.metric, name) != name:
            first = shown(metrics[rule.metric])
            told.problem(fields.place, f"is a second rule for {rule.metric.value}, beside {first}", "leave one")
        found.append(rule)
    return tuple(found)


def _name(fields: Fields, taken: set[str], told: Told) -> str:
    place, given = fields.at("ruleName"), fields.get("ruleName")
    if not isinstance(given, str) or not given.strip():
        told.problem(place, "is missing" if given in (None, "") else f"{shown(given)} is not a name", "name the rule")
        return fields.place
    name = given.strip()
    if len(name) > LONGEST_NAME or not name.isprintable():
        told.problem(place, f"{shown(name)} is too long or not plain text", f"write at most {LONGEST_NAME} characters")
    if name in taken:
        told.problem(place, f"{shown(name)} is there twice", "give every rule a name of its own")
        return fields.place
    taken.add(name)
    return name


def _rule(fields: Fields, rule: Rule, told: Told) -> Rule:
    """Return the rule's trigger and action; mistakes are reported, and the rule is then unusable."""
    given = fields.get("type")
    trigger = _TRIGGERS.get(_text(given).strip().casefold())
    if trigger is None:
        told.problem(fields.at("type"), _said(given), "write Cron or Metric")
        return rule
    for other in _TRIGGERS.values():
        if other != trigger and fields.get(other) is not None:
            told.problem(fields.at(other), f"belongs to another type than {given}", f"take it out, or write {trigger}")
    found = fields.get(trigger)
    if found is None:
        told.problem(fields.at(trigger), "is missing", f"a rule of type {given} has one")
        rule = _with(rule, metric=None)
    elif trigger == "cronTrigger":
        rule = _with(rule, cron=_cron(found, fields.at(trigger), told))
    else:
        metric, above = _measure(found, fields.at(trigger), told)
        rule = _with(rule, metric=metric, above=above)
    return _with(
        rule,
        add=_action(
            fields,
            told,
            cron=trigger == "cronTrigger",
            automatic=found is not None and trigger != "cronTrigger" and rule.above == 0,
        ),
    )


def _with(rule: Rule, **changes: Any) -> Rule:
    return msgspec.structs.replace(rule, **changes)


def _said(value: Any) -> str:
    return "is missing" if value is None else f"{shown(value)} is not known"


def _cron(raw: Any, place: str, told: Told) -> str:
    fields = Fields.of(raw, place, ("schedule",), told)
    if fields is None:
        return ""
    given = fields.get("schedule")
    if not isinstance(given, str) or not given.strip():
        told.problem(fields.at("schedule"), _said(given), 'write five fields of cron, like "47 20 * * *"')
        return ""
    # Loads cron and time zones, which a cluster without such objects must not pay for.
    from chalicelib.schedules.maintenance_windows import check_cron

    cron = " ".join(given.split())
    try:
        check_cron(cron)
    except BadInput as error:
        told.problem(fields.at("schedule"), error.problem, error.remedy)
    return cron


def _measure(raw: Any, place: str, told: Told) -> tuple[Metric | None, int]:
    """Return the metric, and the percent above which the rule fires; 0: automatic."""
    fields = Fields.of(raw, place, ("metricName", "metricOperation", "metricValue", "unit"), told)
    if fields is None:
        return None, 1
    name = fields.get("metricName")
    metric = next((each for each in Metric if each.value == _text(name).strip().casefold()), None)
    if metric is None:
        told.problem(fields.at("metricName"), _said(name), "write Cpu or Memory")
    fields.only("metricOperation", (">",))
    fields.only("unit", ("Percent", "%"))
    return metric, _threshold(fields.get("metricValue"), fields.at("metricValue"), told)


def _threshold(given: Any, place: str, told: Told) -> int:
    right = f'write a whole number from "1" to "100", or "{AUTOMATIC}" for automatic'
    if isinstance(given, int | float) and not isinstance(given, bool):
        told.problem(place, f"{shown(given)} is a number", f'write it as text, "{shown(given)}"')
        return 1
    if not isinstance(given, str):
        told.problem(place, _said(given), right)
        return 1
    text = given.strip()
    if text == AUTOMATIC:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and str(int(text)) == text and 1 <= int(text) <= 100):
        told.problem(place, f"{shown(given)} is not a percentage", right)
        return 1
    return int(text)


def _action(fields: Fields, told: Told, *, cron: bool, automatic: bool) -> int:
    """Return the number of nodes to add; 0: as many as needed. automatic: the threshold is automatic, and so is the
    action."""
    found = fields.get("action")
    if found is None:
        told.problem(fields.at("action"), "is missing", "write action: {type: ScaleUp, unit: Node, value: 1}")
        return 1
    action = Fields.of(found, fields.at("action"), ("type", "unit", "value"), told)
    if action is None:
        return 1
    action.only("type", ("ScaleUp",))
    action.only("unit", ("Node",))
    place, value = action.at("value"), action.get("value")
    if not cron and (value is None or (not isinstance(value, bool) and value in (0, -1))):
        return 0
    least = "write how many nodes to add, 1 or more" + ("" if cron else "; 0, -1 or nothing: as many as needed")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_NODES:
        told.problem(place, "is missing" if value is None else f"{shown(value)} is not such a number", least)
        return 1
    if automatic:
        told.warning(place, f"is passed over: with metricValue {AUTOMATIC} as many nodes as needed are added")
        return 0
    return value
