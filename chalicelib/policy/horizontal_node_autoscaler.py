"""Reads HorizontalNodeAutoscaler objects of a cluster as scaling rules.

These objects are often hand-written, so every mistake is reported at once, with its path and a
correction; an object with one mistake is refused as a whole. Keys and enumerations are
case-insensitive, because the vendor's own pages write them in several ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.scaling_rules import Metric, Rule, RuleObject
from chalicelib.model.timestamps import parse_time
from chalicelib.policy.settings.cluster_policy import Policy

KIND, GROUP, VERSION = "HorizontalNodeAutoscaler", "autoscaling.cce.io", "v1alpha1"
PLURAL, NAMESPACE = "horizontalnodeautoscalers", "kube-system"
MOST_RULES, MOST_TARGETS, MOST_SENTENCES = 10, 100, 20
_MOST_NODES, _LONGEST_NAME, _LONGEST_TEXT = 100_000, 253, 60
_AUTOMATIC = "-1"
_RULE = ("ruleName", "type", "disable", "cronTrigger", "metricTrigger", "action")
_TRIGGERS = {"cron": "cronTrigger", "metric": "metricTrigger"}


def obeyed(policy: Policy) -> bool:
    """Return whether such objects are in force in a cluster (scaleUp.horizontalNodeAutoscalers; if
    not set, where the vendor's groups are scaled)."""
    setting = policy.scale_up.horizontal_node_autoscalers
    return "huaweicloud" in policy.providers if setting is None else setting


def read_object(raw: Mapping[str, Any]) -> RuleObject:
    """Read one object, as decoded from JSON or YAML; never raises, for any input.

    problems: why it is refused (it then has no rules); warnings: what is ignored. The rules have
    `source` namespace/name, the object's targets as groups, and time zone UTC (the caller replaces
    it by the policy's). A disabled object stays disabled even if it has mistakes: refusing it would
    leave its last version in force.
    """
    report = ObjectReport()
    top = ObjectFields.of(raw, "", ("apiVersion", "kind", "metadata", "spec", "status"), report)
    if top is None:
        return RuleObject("", "", problems=report.problems)
    metadata = ObjectFields.of(top.get("metadata") or {}, "metadata", None, report)
    name, namespace, uid, created = (
        _text(metadata.get(key)) if metadata is not None else ""
        for key in ("name", "namespace", "uid", "creationTimestamp")
    )
    namespace = namespace or NAMESPACE
    _check_identity(top, name, namespace)
    identified = not report.problems
    spec = ObjectFields.of(
        top.get("spec") or {}, "spec", ("disable", "targetNodepoolIds", "rules"), report
    )
    disabled = spec is not None and spec.flag("disable")
    rules = _rules(spec, f"{namespace}/{name}", _targets(spec)) if spec is not None else ()
    only_warned = disabled and identified
    return RuleObject(
        namespace,
        name,
        uid=uid,
        created=_created(created),
        disabled=disabled,
        rules=() if report.problems else rules,
        problems=() if only_warned else report.problems,
        warnings=(*report.problems, *report.warnings) if only_warned else report.warnings,
    )


# -- one object's fields ---------------------------------------------------------------------------


class ObjectReport:
    """Problems and warnings about an object: one sentence each, with its place; the
    first MOST_SENTENCES of each."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._warnings: list[str] = []

    @property
    def problems(self) -> tuple[str, ...]:
        """Return why the object is refused."""
        return _capped(self._problems)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what is ignored."""
        return _capped(self._warnings)

    def problem(self, place: str, problem: str, remedy: str) -> None:
        """Add a problem as `place: problem; remedy`."""
        self._problems.append(f"{place}: {problem}; {remedy}" if place else f"{problem}; {remedy}")

    def warn(self, place: str, text: str) -> None:
        """Add a warning as `place: text`."""
        self._warnings.append(f"{place}: {text}")


def _capped(sentences: Sequence[str]) -> tuple[str, ...]:
    more = len(sentences) - MOST_SENTENCES
    return (*sentences[:MOST_SENTENCES], *([f"and {more} more"] if more > 0 else ()))


class ObjectFields:
    """One mapping with case-insensitive keys. A key that is null counts as
    absent, as in Kubernetes."""

    def __init__(self, values: Mapping[str, Any], place: str, report: ObjectReport) -> None:
        self._values, self.place, self.report = values, place, report

    @classmethod
    def of(
        cls, raw: Any, place: str, known: Sequence[str] | None, report: ObjectReport
    ) -> ObjectFields | None:
        """Return the fields of a mapping; None, with a problem, for any other value. known:
        permitted names, None to permit all."""
        if not isinstance(raw, Mapping):
            report.problem(place, f"{_shown(raw)} is not a mapping", "write its fields by name")
            return None
        spellings = {name.casefold(): name for name in known or ()}
        values: dict[str, Any] = {}
        fields = cls(values, place, report)
        for key, value in raw.items():
            folded = (key if isinstance(key, str) else _shown(key)).casefold()
            if known is not None and folded not in spellings:
                fields.warn(_shown(key).strip('"'), "is no field of it, and passed over")
            elif (
                folded in values
                and value is not None
                and not (isinstance(value, str) and value == values[folded])
            ):
                fields.problem(
                    spellings.get(folded, folded), "is there twice, in two spellings", "leave one"
                )
            elif value is not None:
                values[folded] = value
        return fields

    def get(self, name: str) -> Any:
        """Return its value; None where it is absent."""
        return self._values.get(name.casefold())

    def at(self, name: str) -> str:
        """Return its place."""
        return f"{self.place}.{name}" if self.place else name

    def problem(self, name: str, problem: str, remedy: str) -> None:
        """Report a problem with a field."""
        self.report.problem(self.at(name), problem, remedy)

    def warn(self, name: str, text: str) -> None:
        """Report a warning about a field."""
        self.report.warn(self.at(name), text)

    def unknown(self, name: str, remedy: str) -> None:
        """Report a field whose value is missing or not known."""
        value = self.get(name)
        self.problem(
            name, "is missing" if value is None else f"{_shown(value)} is not known", remedy
        )

    def nested(self, name: str, known: Sequence[str]) -> ObjectFields | None:
        """Return the fields of a mapping in it, as `of` does."""
        return ObjectFields.of(self.get(name), self.at(name), known, self.report)

    def items(self, name: str, remedy: str) -> Sequence[Any] | None:
        """Return a list's items, none where it is absent; None, with a
        problem, for any other value."""
        value = self.get(name)
        if value is not None and not isinstance(value, list | tuple):
            self.problem(name, f"{_shown(value)} is not a list", remedy)
            return None
        return value or ()

    def flag(self, name: str) -> bool:
        """Return true or false; absent is false, any other value a problem."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            self.problem(name, f"{_shown(value)} is neither true nor false", "write true or false")
        return value is True

    def only(self, name: str, words: Sequence[str]) -> None:
        """Check a field that has only one permitted value: absent counts as that value,
        and any other is a problem."""
        value = self.get(name)
        if value is None:
            self.warn(name, f"is missing, and taken as {words[0]}")
        elif not isinstance(value, str) or value.strip().casefold() not in {
            word.casefold() for word in words
        }:
            self.problem(name, f"{_shown(value)} is not known", f"write {words[0]}")


def _shown(value: Any) -> str:
    """Return a value as written, shortened; for lists and mappings only their kind."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        text = "".join(
            letter if letter.isprintable() else "?" for letter in value[: _LONGEST_TEXT + 1]
        )
        return f'"{text}"' if len(text) <= _LONGEST_TEXT else f'"{text[:_LONGEST_TEXT]}…"'
    try:
        return str(value)[:_LONGEST_TEXT]
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a very long number"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _created(text: str) -> float:
    """Return 0.0 for an invalid time, because it only decides which object was created first."""
    try:
        return parse_time(text) if text else 0.0
    except BadInput:
        return 0.0


# -- its parts -------------------------------------------------------------------------------------


def _check_identity(top_fields: ObjectFields, name: str, namespace: str) -> None:
    """Check its kind and its place. Items of a list do not repeat apiVersion and kind."""
    api, kind = top_fields.get("apiVersion"), top_fields.get("kind")
    if api is not None and _text(api).casefold() != f"{GROUP}/{VERSION}":
        top_fields.problem("apiVersion", f"{_shown(api)} is not known", f"write {GROUP}/{VERSION}")
    if kind is not None and _text(kind).casefold() != KIND.casefold():
        top_fields.problem("kind", f"{_shown(kind)} is something else", f"write {KIND}")
    if not name or not name.isprintable():
        top_fields.problem("metadata.name", "is missing", "give the object a name")
    if namespace != NAMESPACE:
        problem = f"{_shown(namespace)} is not looked at"
        top_fields.problem("metadata.namespace", problem, f"put the object into {NAMESPACE}")


def _targets(spec_fields: ObjectFields) -> tuple[str, ...]:
    ids = spec_fields.items("targetNodepoolIds", "write the uids of node pools as a list")
    if ids is None:
        return ()
    if len(ids) > MOST_TARGETS:
        remedy = f"write at most {MOST_TARGETS}, and another object"
        spec_fields.problem("targetNodepoolIds", f"has {len(ids)} node pools", remedy)
        return ()
    targets: dict[str, None] = {}
    for index, uid in enumerate(ids):
        if (
            not isinstance(uid, str)
            or not uid.strip().isprintable()
            or not 0 < len(uid.strip()) <= _LONGEST_NAME
        ):
            problem = f"{_shown(uid)} is not the uid of a node pool"
            spec_fields.problem(f"targetNodepoolIds[{index}]", problem, "write it as text")
        else:
            targets[uid.strip()] = None
    if not ids:
        spec_fields.warn("targetNodepoolIds", "is empty, so that the rules act on nothing")
    return tuple(targets)


def _rules(spec_fields: ObjectFields, source: str, targets: tuple[str, ...]) -> tuple[Rule, ...]:
    items = spec_fields.items("rules", "write the rules as a list")
    if items is None:
        return ()
    if not items:
        spec_fields.warn("rules", "is empty, so that nothing is done")
    if len(items) > MOST_RULES:
        spec_fields.problem("rules", f"has {len(items)} rules", f"write at most {MOST_RULES}")
    rules: list[Rule] = []
    names: set[str] = set()
    metrics: dict[Metric, str] = {}
    for index, raw in enumerate(items[:MOST_RULES]):
        fields = ObjectFields.of(raw, spec_fields.at(f"rules[{index}]"), _RULE, spec_fields.report)
        if fields is None:
            continue
        name = _name(fields, names)
        disabled = fields.flag("disable")
        rule = _rule(fields, Rule(name, targets, source=source))
        if disabled:
            fields.warn("disable", "is true, so that the rule is passed over")
            continue
        if rule.metric is not None and metrics.setdefault(rule.metric, name) != name:
            problem = (
                f"is a second rule for {rule.metric.value}, beside {_shown(metrics[rule.metric])}"
            )
            fields.report.problem(fields.place, problem, "leave one")
        rules.append(rule)
    return tuple(rules)


def _name(fields: ObjectFields, names: set[str]) -> str:
    """Return the rule's name, and add it to the names; its place if it has no valid name."""
    value = fields.get("ruleName")
    if not isinstance(value, str) or not value.strip():
        problem = "is missing" if value in (None, "") else f"{_shown(value)} is not a name"
        fields.problem("ruleName", problem, "name the rule")
        return fields.place
    name = value.strip()
    if len(name) > _LONGEST_NAME or not name.isprintable():
        problem = f"{_shown(name)} is too long or not plain text"
        fields.problem("ruleName", problem, f"write at most {_LONGEST_NAME} characters")
    if name in names:
        fields.problem(
            "ruleName", f"{_shown(name)} is there twice", "give every rule a name of its own"
        )
        return fields.place
    names.add(name)
    return name


def _rule(fields: ObjectFields, rule: Rule) -> Rule:
    """Return the rule with its trigger and action; mistakes are reported, and
    the rule is then unusable."""
    kind = fields.get("type")
    trigger = _TRIGGERS.get(_text(kind).strip().casefold())
    if trigger is None:
        fields.unknown("type", "write Cron or Metric")
        return rule
    for other in _TRIGGERS.values():
        if other != trigger and fields.get(other) is not None:
            problem = f"belongs to another type than {kind}"
            fields.problem(other, problem, f"take it out, or write {trigger}")
    is_cron, cron, metric, above = trigger == "cronTrigger", "", None, 0
    has_trigger = fields.get(trigger) is not None
    if not has_trigger:
        fields.problem(trigger, "is missing", f"a rule of type {kind} has one")
    elif is_cron:
        cron = _cron(fields)
    else:
        metric, above = _measure(fields)
    add = _action(fields, cron=is_cron, automatic=has_trigger and not is_cron and above == 0)
    return msgspec.structs.replace(rule, cron=cron, metric=metric, above=above, add=add)


def _cron(rule_fields: ObjectFields) -> str:
    fields = rule_fields.nested("cronTrigger", ("schedule",))
    if fields is None:
        return ""
    schedule = fields.get("schedule")
    if not isinstance(schedule, str) or not schedule.strip():
        fields.unknown("schedule", 'write five fields of cron, like "47 20 * * *"')
        return ""
    # Loads cron and time zones, which a cluster without such objects must not pay for.
    from chalicelib.schedules.cron import check_cron

    cron = " ".join(schedule.split())
    try:
        check_cron(cron)
    except BadInput as error:
        fields.problem("schedule", error.problem, error.remedy)
    return cron


def _measure(rule_fields: ObjectFields) -> tuple[Metric | None, int]:
    """Return the metric, and the percent above which the rule fires; 0: automatic."""
    fields = rule_fields.nested(
        "metricTrigger", ("metricName", "metricOperation", "metricValue", "unit")
    )
    if fields is None:
        return None, 1
    name = _text(fields.get("metricName")).strip().casefold()
    metric = next((metric for metric in Metric if metric.value == name), None)
    if metric is None:
        fields.unknown("metricName", "write Cpu or Memory")
    fields.only("metricOperation", (">",))
    fields.only("unit", ("Percent", "%"))
    return metric, _threshold(fields)


def _threshold(fields: ObjectFields) -> int:
    value = fields.get("metricValue")
    remedy = f'write a whole number from "1" to "100", or "{_AUTOMATIC}" for automatic'
    if isinstance(value, int | float) and not isinstance(value, bool):
        fields.problem(
            "metricValue", f"{_shown(value)} is a number", f'write it as text, "{_shown(value)}"'
        )
        return 1
    if not isinstance(value, str):
        fields.unknown("metricValue", remedy)
        return 1
    text = value.strip()
    if text == _AUTOMATIC:
        return 0
    if not (
        text.isascii()
        and text.isdigit()
        and len(text) <= 3
        and str(int(text)) == text
        and 1 <= int(text) <= 100
    ):
        fields.problem("metricValue", f"{_shown(value)} is not a percentage", remedy)
        return 1
    return int(text)


def _action(rule_fields: ObjectFields, *, cron: bool, automatic: bool) -> int:
    """Return the number of nodes to add; 0: as many as needed. automatic: the threshold is
    automatic, and so is the action."""
    if rule_fields.get("action") is None:
        rule_fields.problem(
            "action", "is missing", "write action: {type: ScaleUp, unit: Node, value: 1}"
        )
        return 1
    fields = rule_fields.nested("action", ("type", "unit", "value"))
    if fields is None:
        return 1
    fields.only("type", ("ScaleUp",))
    fields.only("unit", ("Node",))
    value = fields.get("value")
    if not cron and (value is None or (not isinstance(value, bool) and value in (0, -1))):
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_NODES:
        problem = "is missing" if value is None else f"{_shown(value)} is not such a number"
        automatic_values = "" if cron else "; 0, -1 or nothing: as many as needed"
        fields.problem(
            "value", problem, f"write how many nodes to add, 1 or more{automatic_values}"
        )
        return 1
    if automatic:
        fields.warn(
            "value",
            f"is passed over: with metricValue {_AUTOMATIC} as many nodes as needed are added",
        )
        return 0
    return value
