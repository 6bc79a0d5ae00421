"""Converts a pass's observations and decisions to events: an ordered table from fact to event
(docs/reference/reporting.md "Kubernetes events").

Important events come first, because posting may stop early; the numerous ones (pods
without a place) come last. events.py removes repetitions within five minutes afterwards,
so this module keeps no state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.journal.events import (
    NORMAL,
    PODS_TOLD,
    WARNING,
    Event,
    about_node,
    about_pods,
    about_status,
    sizes,
)
from chalicelib.model.memory import ReplacementState
from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import REPLACES, OperationKind
from chalicelib.model.plan import Plan, Repair, RuleVerdict, TaintUpdate, UnschedulablePods
from chalicelib.model.policy import Options
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import DisruptionReason, Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timeouts import leaving_time
from chalicelib.model.timestamps import format_time
from chalicelib.policy.horizontal_node_autoscaler import GROUP, KIND, VERSION
from chalicelib.policy.priority_configmap import CONFIG_MAP
from chalicelib.reasons.text import disruption_words, sentence, text
from chalicelib.views.consolidation import action, some, worth


class PassFacts(msgspec.Struct, frozen=True):
    """What the events of one pass are made from. marks: taints outside of operations that were
    written (passes/taint_writer.py)."""

    plan: Plan
    snapshot: Snapshot
    options: Options = Options()
    marks: tuple[TaintUpdate, ...] = ()

    def status_event(
        self, fact: str, reason: str, message: str, type_: str = WARNING
    ) -> list[Event]:
        """Return an event on the status ConfigMap; none where that is disabled."""
        return about_status(fact, self.options, reason, message, type_=type_)


def events_of_pass(facts: PassFacts) -> list[Event]:
    """Return every event of this pass, at most PODS_TOLD per fact."""
    return [event for fact, events in FACTS for event in events(fact, facts)[:PODS_TOLD]]


def _unhealthy(fact: str, facts: PassFacts) -> list[Event]:
    """Report an unhealthy cluster (docs/reference/node-groups.md "Cluster health"). A cluster
    without (ready) nodes is reported only where scaling up from zero is disabled."""
    health, needs_nodes = facts.plan.health, not facts.options.scale_up_from_zero
    if not health.healthy:
        message = "Cluster is unhealthy"
    elif needs_nodes and health.registered == 0:
        message = "Cluster has no nodes."
    elif needs_nodes and health.ready == 0:
        message = "Cluster has no ready nodes."
    else:
        return []
    return facts.status_event(fact, "ClusterUnhealthy", message)


def _cluster_full(fact: str, facts: PassFacts) -> list[Event]:
    for verdict in facts.plan.unschedulable:
        for reasons in verdict.reasons.values():
            for reason in reasons:
                if reason.code is ReasonCode.MAX_NODES_TOTAL:
                    most = reason.params.get("max", facts.options.max_nodes_total)
                    message = f"Max total nodes in cluster reached: {most}"
                    return facts.status_event(fact, "MaxNodesTotalReached", message)
    return []


def _scale_up_begins(fact: str, facts: PassFacts) -> list[Event]:
    """Report the start of each scale-up whose operation was saved."""
    maximums = {up.group: up.max for up in facts.plan.scale_ups}
    events: list[Event] = []
    for operation in facts.plan.operations:
        spec = operation.spec
        if spec.kind is OperationKind.SCALE_UP:
            change = sizes(spec.from_size, spec.to_size, maximums.get(spec.group))
            message = f"Scale-up: setting group {spec.group} size to {change}"
            events += about_status(fact, facts.options, "ScaledUpGroup", message)
    return events


def _removal_begins(fact: str, facts: PassFacts, *, occupied: bool) -> list[Event]:
    """Report the start of each removal whose operation was saved."""
    nodes = {
        target.node
        for operation in facts.plan.operations
        if operation.spec.kind is OperationKind.DELETE_NODES
        for target in operation.spec.targets
    }
    removals = [
        removal
        for removal in facts.plan.removals
        if removal.node in nodes
        and bool(removal.evict) is occupied
        and removal.reason is not DisruptionReason.INTERRUPTED
    ]
    removals, events = removals[:PODS_TOLD], list[Event]()
    used = (
        _utilization(facts.snapshot, {removal.node for removal in removals})
        if occupied and removals
        else {}
    )
    for removal in removals:
        if occupied:
            reason, message = (
                "ScaleDown",
                (
                    f"Scale-down: removing node {removal.node}, utilization: "
                    f"{{{used.get(removal.node, '')}}}, "
                    f"pods to reschedule: {','.join(removal.evict)}"
                ),
            )
        else:
            reason, message = "ScaleDownEmpty", f'Scale-down: removing empty node "{removal.node}"'
        events += about_status(fact, facts.options, reason, message)
    return events


def _interruption_begins(fact: str, facts: PassFacts) -> list[Event]:
    """Report the end that a vendor has announced, on each node whose evacuation was saved."""
    return [
        about_node(
            fact,
            target.node,
            "NodeInterruption",
            (
                f"the vendor takes the node back at {format_time(leaving_time(operation.spec))}; "
                "its pods are evicted"
            ),
            type_=WARNING,
        )
        for operation in facts.plan.operations
        if operation.spec.interrupted
        for target in operation.spec.targets
    ]


def _restart_begins(fact: str, facts: PassFacts) -> list[Event]:
    restarted = {
        target.node
        for operation in facts.plan.operations
        if operation.spec.kind is OperationKind.RESTART_NODE
        for target in operation.spec.targets
    }
    return [
        about_node(
            fact,
            restart.node,
            "NodeRestart",
            f"restarting the node, because it is sick: {restart.condition}",
        )
        for restart in facts.plan.restarts
        if restart.node in restarted
    ]


def _lifecycle_replacement_begins(fact: str, facts: PassFacts) -> list[Event]:
    """Report the start of each replacement that is not for its saving, on the nodes that will
    go."""
    return [
        about_node(
            fact,
            node,
            "NodeReplacement",
            (
                f"Replace {node} by a node of {operation.spec.group} "
                f"{disruption_words(operation.spec.reason)}"
            ),
        )
        for operation in facts.plan.operations
        if operation.spec.kind is OperationKind.SCALE_UP and operation.spec.reason
        for node in operation.status.data.get(REPLACES, "").split(",")
        if node
    ]


def _replacement_begins(fact: str, facts: PassFacts) -> list[Event]:
    """Report the start of each replacement whose purchase was saved, on the nodes that will go."""
    begun = {operation.spec.replacement for operation in facts.plan.operations} - {""}
    report = facts.plan.consolidation
    return [
        about_node(fact, node, "NodeReplacement", f"{action(move)}: {worth(move)}")
        for move in (report.moves if report is not None else ())
        if move.state == ReplacementState.BUYING.value and move.replacement in begun
        for node in move.nodes
    ]


def _replacement_failed(fact: str, facts: PassFacts) -> list[Event]:
    return [
        about_node(
            f"{fact} {ended.id}",
            node,
            "NodeReplacementFailed",
            (
                f"replacement failed: {sentence(ended.why)}; not tried again before "
                f"{format_time(ended.until)}"
            ),
            type_=WARNING,
        )
        for ended in facts.plan.ended_replacements
        if ended.why is not None
        for node in ended.nodes
    ]


def _replacement_done(fact: str, facts: PassFacts) -> list[Event]:
    return [
        event
        for ended in facts.plan.ended_replacements
        if ended.why is None
        for event in facts.status_event(
            f"{fact} {ended.id}",
            "NodeReplacement",
            f"Replaced {some(ended.nodes)} by {some(ended.new_nodes) or 'new nodes'}",
            NORMAL,
        )
    ]


def _utilization(snapshot: Snapshot, nodes: Iterable[str]) -> dict[str, str]:
    """Return the requested share of each node's allocatable by all its pods: `cpu 12%, memory 5%`.
    For display only: decisions use plan/removal/candidates.py, which excludes some pods."""
    requested: dict[str, dict[str, int]] = {name: {CPU: 0, MEMORY: 0} for name in nodes}
    for pod in snapshot.pods:
        if pod.node in requested:
            requests = snapshot.cls(pod).requests
            for resource in (CPU, MEMORY):
                requested[pod.node][resource] += requests.get(resource, 0)
    return {
        node.name: ", ".join(
            f"{resource} {requested[node.name][resource] / room:.0%}"
            for resource in (CPU, MEMORY)
            if (room := node.allocatable.get(resource, 0)) > 0
        )
        for node in snapshot.nodes
        if node.name in requested
    }


def _repairs(
    fact: str,
    facts: PassFacts,
    code: ReasonCode,
    reason: str,
    message: Callable[[Repair, PassFacts], str],
) -> list[Event]:
    return [
        event
        for repair in facts.plan.repairs
        if repair.reason.code is code
        for event in facts.status_event(fact, reason, message(repair, facts))
    ]


def _timeout_message(repair: Repair, facts: PassFacts) -> str:
    since = repair.reason.params.get("since", 0.0)
    waited = facts.plan.at - float(since) if since else facts.options.max_node_provision_time
    return (
        f"Nodes added to group {repair.group} failed to register within "
        f"{format_duration(max(0.0, waited))}"
    )


def _creation_message(repair: Repair, _facts: PassFacts) -> str:
    error, detail = (str(repair.reason.params.get(name, "")) for name in ("error", "detail"))
    return (
        f"Failed adding {max(1, len(repair.instances))} nodes to group {repair.group} due to "
        f"{error or 'Unknown'}; source errors: {detail or 'none given'}"
    )


def _taint_removed(fact: str, facts: PassFacts) -> list[Event]:
    return [
        about_node(
            fact,
            mark.node,
            "ClusterAutoscalerCleanup",
            f"removed {TO_BE_DELETED} taint from node {mark.node}",
        )
        for mark in facts.marks
        if mark.action == "cleanup"
    ]


_PRIORITIES = {
    ReasonCode.PRIORITY_CONFIG_INVALID: "PriorityConfigMapInvalid",
    ReasonCode.PRIORITY_NOT_MATCHED: "PriorityConfigMapNotMatchedGroup",
    ReasonCode.PRIORITY_NO_MATCH: "PriorityConfigMapNoGroupMatched",
}


def _priorities(fact: str, facts: PassFacts) -> list[Event]:
    """Report on the ConfigMap of the priority expander (docs/reference/expanders.md "priority");
    each group that no rule matches is a separate fact."""
    namespace = facts.options.namespace
    return [
        Event(
            f"{fact} {note.params.get('group', '')}".rstrip(),
            "ConfigMap",
            CONFIG_MAP,
            _PRIORITIES[note.code],
            sentence(note),
            WARNING,
            namespace,
        )
        for note in facts.plan.notes
        if note.code in _PRIORITIES
    ]


def _pods_without_node(fact: str, facts: PassFacts) -> list[Event]:
    """Report pods that get no new node, in upstream's words; pods that fit on an
    existing node need none."""
    uids = {pod.key: pod.uid for pod in facts.snapshot.pods if not pod.node}
    return [
        event
        for verdict in facts.plan.unschedulable
        for event in about_pods(
            fact, verdict.pods, "NotTriggerScaleUp", _not_triggered(verdict), uids=uids
        )
    ]


def _not_triggered(unschedulable: UnschedulablePods) -> str:
    """Return how many groups have which reason, the most frequent first, equally frequent ones by
    their text (docs/reference/reporting.md "Scale-up messages"). A reason that a group has several
    times counts once for it. Where all say that the cluster is full, only that is reported."""
    by_group = [
        {reason.key: reason for reason in reasons}.values()
        for reasons in unschedulable.reasons.values()
    ]
    codes = {reason.code for reasons in by_group for reason in reasons}
    if codes == {ReasonCode.MAX_NODES_TOTAL} and all(by_group):
        return text(next(iter(by_group[0])))
    counts = Counter(
        message for reasons in by_group for message in {text(reason) for reason in reasons}
    )
    parts = [
        f"{count} {message}"
        for message, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return (
        f"pod didn't trigger scale-up: {', '.join(parts)}"
        if parts
        else "pod didn't trigger scale-up"
    )


# -- scaling rules: an event is posted on the object that contains the rule, so that its author sees
#    it there; a rule of the policy has no object, and its event is posted on the status ConfigMap


def _objects_refused(fact: str, facts: PassFacts) -> list[Event]:
    """Report objects that are refused as a whole, for their own mistakes or because other
    objects take precedence."""
    problems = {
        item.key: "; ".join(item.problems)
        for item in facts.snapshot.rule_objects or ()
        if item.problems
    }
    for note in facts.plan.notes:
        if note.code is ReasonCode.RULE_OBJECT_INVALID:
            key = str(note.params.get("object", ""))
            problems[key] = problems.get(key) or str(note.params.get("detail", ""))
    reason = ReasonCode.RULE_OBJECT_INVALID.value
    return [
        event
        for key, detail in sorted(problems.items())
        for event in _on_object(
            f"{fact} {detail}",
            key,
            facts,
            reason,
            f"refused as a whole (a good version before it stays in force): {detail}",
        )
    ]


def _objects_warned(fact: str, facts: PassFacts) -> list[Event]:
    """Report objects that are in force but have ignored fields."""
    return [
        event
        for item in facts.snapshot.rule_objects or ()
        if item.warnings and not item.problems
        for event in _on_object(
            f"{fact} {'; '.join(item.warnings)}",
            item.key,
            facts,
            "HorizontalNodeAutoscalerWarning",
            "; ".join(item.warnings),
            lasting=True,
        )
    ]


def _rules_add_nodes(fact: str, facts: PassFacts) -> list[Event]:
    """Report rules that add nodes, once the operations are saved."""
    saved = {
        operation.spec.group
        for operation in facts.plan.operations
        if operation.spec.kind is OperationKind.SCALE_UP
    }
    rules = {rule for up in facts.plan.scale_ups if up.group in saved for rule in up.rules}
    events: list[Event] = []
    for verdict in facts.plan.rules:
        if verdict.nodes > 0 and {verdict.rule, _rule_key(verdict)} & rules:
            cause = "" if verdict.rate is None else f", its rate is {verdict.rate:.1f}%"
            cause = f", due at {format_time(verdict.due)}" if verdict.due else cause
            nodes = f"{verdict.nodes} node{'' if verdict.nodes == 1 else 's'}"
            message = f"Rule {verdict.rule}: adding {nodes} to pool {verdict.pool}{cause}"
            events += _about_rule(
                f"{fact} {verdict.nodes}", verdict, facts, "RuleScaledUp", message, "Normal"
            )
    return events


def _rules_stopped(fact: str, facts: PassFacts, codes: Mapping[ReasonCode, str]) -> list[Event]:
    """Report rules with one of these reasons. codes: the reason of the event for each."""
    events: list[Event] = []
    for verdict in facts.plan.rules:
        if verdict.reason is not None and verdict.reason.code in codes:
            why = sentence(verdict.reason)
            message = (
                f"Rule {verdict.rule}{f', pool {verdict.pool}' if verdict.pool else ''}: {why}"
            )
            events += _about_rule(
                f"{fact} {why}", verdict, facts, codes[verdict.reason.code], message, WARNING
            )
    return events


def _about_rule(
    fact: str, verdict: RuleVerdict, facts: PassFacts, reason: str, message: str, type_: str
) -> list[Event]:
    """Return the event about a rule. fact: extended by the rule, the pool and the occurrence, so
    that none suppresses another."""
    fact = " ".join((fact, _rule_key(verdict), verdict.pool, str(int(verdict.due))))
    on_object = (
        _on_object(fact, verdict.source, facts, reason, message, type_) if verdict.source else []
    )
    return on_object or facts.status_event(fact, reason, message, type_)


def _on_object(
    fact: str,
    key: str,
    facts: PassFacts,
    reason: str,
    message: str,
    type_: str = WARNING,
    *,
    lasting: bool = False,
) -> list[Event]:
    """Return the event on the object; none for an object that was not seen in this pass, or whose
    uid is not known: `kubectl describe` would not show it."""
    version = f"{GROUP}/{VERSION}"
    for item in facts.snapshot.rule_objects or ():
        if item.key == key and item.uid:
            place = (item.namespace, item.uid, version)
            return [Event(fact, KIND, item.name, reason, message, type_, *place, lasting=lasting)]
        if item.key == key:
            break
    return []


def _rule_key(verdict: RuleVerdict) -> str:
    """Return the key by which scale-ups name the rule (model/scaling_rules.Rule.key)."""
    return f"{verdict.source}/{verdict.rule}" if verdict.source else verdict.rule


# -- taints and annotations that a cluster should not have


def _avoid_taint(fact: str, facts: PassFacts) -> list[Event]:
    """Report the discouraged taint once for each node."""
    return [
        about_node(
            fact,
            str(note.params.get("node", "")),
            note.code.value,
            sentence(note),
            type_=WARNING,
            lasting=True,
        )
        for note in _notes(facts, ReasonCode.AVOID_TAINT)
    ]


def _pod_annotation(fact: str, facts: PassFacts, code: ReasonCode) -> list[Event]:
    """Report an annotation that is discouraged or invalid once for each pod."""
    notes = {str(note.params.get("pod", "")): note for note in _notes(facts, code)}
    uids = {pod.key: pod.uid for pod in facts.snapshot.pods if pod.key in notes} if notes else {}
    return [
        event
        for key, note in notes.items()
        for event in about_pods(
            fact, (key,), note.code.value, sentence(note), type_=WARNING, uids=uids, lasting=True
        )
    ]


def _renewal_rests(fact: str, facts: PassFacts) -> list[Event]:
    """Report each rest of a group once a day: its new nodes are no better than
    those that they replace."""
    events: list[Event] = []
    for note in _notes(facts, ReasonCode.RENEWAL_RESTS):
        own = " ".join(str(note.params.get(name, "")) for name in ("group", "renewed", "until"))
        once = about_status(
            f"{fact} {own}", facts.options, note.code.value, sentence(note), type_=WARNING
        )
        events += [msgspec.structs.replace(event, lasting=True) for event in once]
    return events


def _notes(facts: PassFacts, code: ReasonCode) -> list[Reason]:
    return [note for note in facts.plan.notes if note.code is code]


FACTS: tuple[tuple[str, Callable[[str, PassFacts], list[Event]]], ...] = (
    ("cluster unhealthy", _unhealthy),
    ("cluster full", _cluster_full),
    ("scale-up begins", _scale_up_begins),
    ("removal begins, empty", lambda fact, facts: _removal_begins(fact, facts, occupied=False)),
    ("removal begins, drained", lambda fact, facts: _removal_begins(fact, facts, occupied=True)),
    ("interruption begins", _interruption_begins),
    ("restart begins", _restart_begins),
    ("replacement begins", _replacement_begins),
    ("replacement begins, not for savings", _lifecycle_replacement_begins),
    ("replacement failed", _replacement_failed),
    ("replacement done", _replacement_done),
    ("renewal rests", _renewal_rests),
    (
        "scale-up timed out",
        lambda fact, facts: _repairs(
            fact, facts, ReasonCode.SCALE_UP_TIMED_OUT, "ScaleUpTimedOut", _timeout_message
        ),
    ),
    (
        "creation failed",
        lambda fact, facts: _repairs(
            fact, facts, ReasonCode.CREATION_FAILED, "ScaleUpFailed", _creation_message
        ),
    ),
    ("taint taken off", _taint_removed),
    ("priorities", _priorities),
    ("rule object refused", _objects_refused),
    ("rule object warned", _objects_warned),
    ("rule adds nodes", _rules_add_nodes),
    (
        "rule too late",
        lambda fact, facts: _rules_stopped(fact, facts, {ReasonCode.RULE_EXPIRED: "RuleExpired"}),
    ),
    (
        "rule not in force",
        lambda fact, facts: _rules_stopped(
            fact,
            facts,
            {ReasonCode.RULE_INVALID: "RuleInvalid", ReasonCode.RULE_NO_GROUP: "RuleGroupUnknown"},
        ),
    ),
    ("taint to avoid", _avoid_taint),
    (
        "annotation to avoid",
        lambda fact, facts: _pod_annotation(fact, facts, ReasonCode.AVOID_ANNOTATION),
    ),
    (
        "annotation invalid",
        lambda fact, facts: _pod_annotation(fact, facts, ReasonCode.BAD_PROTECTION),
    ),
    ("pod not helped", _pods_without_node),
)
