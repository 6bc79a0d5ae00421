"""Converts to events: the results of scaling rules in a pass, and taints and annotations that a cluster should not
have.

An event about a rule is posted on the object that contains the rule, so that its author sees it there; a rule of the
policy has no object, and its event is posted on the status ConfigMap.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import RuleVerdict
from chalicelib.model.reason import ReasonCode
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.model.timestamps import format_time
from chalicelib.policy.horizontal_node_autoscaler import GROUP, KIND, VERSION
from chalicelib.reasons import text
from chalicelib.record.events import NORMAL, WARNING, Event, about_node, about_pods, about_status
from chalicelib.record.pass_facts import PassFacts

_EXPIRED = {ReasonCode.RULE_EXPIRED: "RuleExpired"}
_UNUSABLE = {ReasonCode.RULE_INVALID: "RuleInvalid", ReasonCode.RULE_NO_GROUP: "RuleGroupUnknown"}


def objects_refused(fact: str, facts: PassFacts) -> list[Event]:
    """Report objects that are refused as a whole, for their own mistakes or because other objects take precedence."""
    why = {each.key: "; ".join(each.problems) for each in facts.snapshot.rule_objects or () if each.problems}
    for note in facts.plan.notes:
        if note.code is ReasonCode.RULE_OBJECT_INVALID:
            key = str(note.params.get("object", ""))
            why[key] = why.get(key) or str(note.params.get("detail", ""))
    words = "refused as a whole (a good version before it stays in force)"
    return [
        event
        for key, detail in sorted(why.items())
        for event in _on_object(
            f"{fact} {detail}", key, facts, ReasonCode.RULE_OBJECT_INVALID.value, f"{words}: {detail}", WARNING
        )
    ]


def objects_warned(fact: str, facts: PassFacts) -> list[Event]:
    """Report objects that are in force but have ignored fields."""
    return [
        event
        for each in facts.snapshot.rule_objects or ()
        if each.warnings and not each.problems
        for event in _on_object(
            f"{fact} {'; '.join(each.warnings)}",
            each.key,
            facts,
            "HorizontalNodeAutoscalerWarning",
            "; ".join(each.warnings),
            WARNING,
            lasting=True,
        )
    ]


def scaled_up(fact: str, facts: PassFacts) -> list[Event]:
    """Report rules that add nodes, once the operations are saved."""
    saved = {
        operation.spec.group for operation in facts.plan.operations if operation.spec.kind is OperationKind.SCALE_UP
    }
    at_work = {rule for up in facts.plan.scale_ups if up.group in saved for rule in up.rules}
    return [
        event
        for verdict in facts.plan.rules
        if verdict.nodes > 0 and {verdict.rule, _key(verdict)} & at_work
        for event in _about(
            f"{fact} {verdict.nodes}",
            verdict,
            facts,
            "RuleScaledUp",
            f"Rule {verdict.rule}: adding {verdict.nodes} node{'' if verdict.nodes == 1 else 's'} "
            f"to pool {verdict.pool}{_cause(verdict)}",
            NORMAL,
        )
    ]


def expired(fact: str, facts: PassFacts) -> list[Event]:
    """Report occurrences of cron rules that are dropped because they are too late."""
    return _stopped(fact, facts, _EXPIRED)


def unusable(fact: str, facts: PassFacts) -> list[Event]:
    """Report rules that are not in force on a pool, or have no pool."""
    return _stopped(fact, facts, _UNUSABLE)


def avoid_taint(fact: str, facts: PassFacts) -> list[Event]:
    """Report the discouraged taint once for each node."""
    return [
        about_node(
            fact, str(note.params.get("node", "")), note.code.value, text.sentence(note), type_=WARNING, lasting=True
        )
        for note in facts.plan.notes
        if note.code is ReasonCode.AVOID_TAINT
    ]


def avoid_annotation(fact: str, facts: PassFacts) -> list[Event]:
    """Report the discouraged annotation once for each pod."""
    found = {
        str(note.params.get("pod", "")): note for note in facts.plan.notes if note.code is ReasonCode.AVOID_ANNOTATION
    }
    uids = {pod.key: pod.uid for pod in facts.snapshot.pods if pod.key in found} if found else {}
    return [
        event
        for key, note in found.items()
        for event in about_pods(
            fact, (key,), note.code.value, text.sentence(note), type_=WARNING, uids=uids, lasting=True
        )
    ]


def _stopped(fact: str, facts: PassFacts, codes: Mapping[ReasonCode, str]) -> list[Event]:
    return [
        event
        for verdict in facts.plan.rules
        if verdict.reason is not None and verdict.reason.code in codes
        for event in _about(
            f"{fact} {text.sentence(verdict.reason)}",
            verdict,
            facts,
            codes[verdict.reason.code],
            f"Rule {verdict.rule}{f', pool {verdict.pool}' if verdict.pool else ''}: {text.sentence(verdict.reason)}",
            WARNING,
        )
    ]


def _about(fact: str, verdict: RuleVerdict, facts: PassFacts, reason: str, message: str, type_: str) -> list[Event]:
    """Return the event about a rule. fact: extended by the rule, the pool and the occurrence, so that none suppresses
    another."""
    fact = " ".join((fact, _key(verdict), verdict.pool, str(int(verdict.due))))
    return (_on_object(fact, verdict.source, facts, reason, message, type_) if verdict.source else []) or about_status(
        fact, facts.options, reason, message, type_=type_
    )


def _on_object(
    fact: str, key: str, facts: PassFacts, reason: str, message: str, type_: str, *, lasting: bool = False
) -> list[Event]:
    """Return the event on the object; None for an object that was not seen in this pass, or whose uid is not known:
    `kubectl describe` would not show it."""
    found = _seen(key, facts)
    if found is None or not found.uid:
        return []
    return [
        Event(
            fact,
            KIND,
            found.name,
            reason,
            message,
            type_,
            found.namespace,
            found.uid,
            api_version=f"{GROUP}/{VERSION}",
            lasting=lasting,
        )
    ]


def _seen(key: str, facts: PassFacts) -> RuleObject | None:
    return next((each for each in facts.snapshot.rule_objects or () if each.key == key), None)


def _key(verdict: RuleVerdict) -> str:
    """Return the key by which scale-ups name the rule (model/scaling_rules.Rule.key)."""
    return f"{verdict.source}/{verdict.rule}" if verdict.source else verdict.rule


def _cause(verdict: RuleVerdict) -> str:
    if verdict.due:
        return f", due at {format_time(verdict.due)}"
    return "" if verdict.rate is None else f", its rate is {verdict.rate:.1f}%"
