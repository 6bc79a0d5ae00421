"""Converts a pass's observations and decisions to events: an ordered table from fact to event
(docs/reference/reporting.md "Kubernetes events").

Important events come first, because posting may stop early; the numerous ones (pods without a place) come last.
event_dedup.py removes repetitions within five minutes afterwards, so this module keeps no state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from chalicelib.model.node import TO_BE_DELETED, Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import Repair, UnschedulablePods
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.priority_configmap import CONFIG_MAP
from chalicelib.reasons import text as reason_text
from chalicelib.record import rule_events as rules
from chalicelib.record.events import PODS_TOLD, WARNING, Event, about_node, about_pods, about_status, sizes
from chalicelib.record.pass_facts import PassFacts


def events_of_pass(facts: PassFacts) -> list[Event]:
    """Return every event of this pass, at most PODS_TOLD per fact."""
    return [event for fact, tell in FACTS for event in tell(fact, facts)[:PODS_TOLD]]


def not_triggered(unschedulable: UnschedulablePods, text: Callable[[Reason], str] = reason_text.text) -> str:
    """Return how many groups have which reason, the most frequent first, equally frequent ones by their text
    (docs/reference/reporting.md "Scale-up messages"). A reason that a group has several times counts once for it.
    Where all say that the cluster is full, only that is reported."""
    said = [{reason.key: reason for reason in reasons}.values() for reasons in unschedulable.reasons.values()]
    if said and all(reason.code is ReasonCode.MAX_NODES_TOTAL for reasons in said for reason in reasons) and all(said):
        return text(next(iter(said[0])))
    counts = Counter(words for reasons in said for words in {text(reason) for reason in reasons})
    parts = [f"{count} {words}" for words, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return f"pod didn't trigger scale-up: {', '.join(parts)}" if parts else "pod didn't trigger scale-up"


def _unhealthy(fact: str, facts: PassFacts) -> list[Event]:
    """Report an unhealthy cluster (docs/reference/node-groups.md "Cluster health"). A cluster without (ready) nodes is
    reported only where scaling up from zero is disabled."""
    health, stuck = facts.plan.health, not facts.options.scale_up_from_zero
    words = next(
        (
            words
            for holds, words in (
                (not health.healthy, "Cluster is unhealthy"),
                (stuck and health.registered == 0, "Cluster has no nodes."),
                (stuck and health.ready == 0, "Cluster has no ready nodes."),
            )
            if holds
        ),
        "",
    )
    return about_status(fact, facts.options, "ClusterUnhealthy", words, type_=WARNING) if words else []


def _full(fact: str, facts: PassFacts) -> list[Event]:
    reasons = (reason for verdict in facts.plan.unschedulable for each in verdict.reasons.values() for reason in each)
    full = next((reason for reason in reasons if reason.code is ReasonCode.MAX_NODES_TOTAL), None)
    if full is None:
        return []
    words = f"Max total nodes in cluster reached: {full.params.get('max', facts.options.max_nodes_total)}"
    return about_status(fact, facts.options, "MaxNodesTotalReached", words, type_=WARNING)


def _growing(fact: str, facts: PassFacts) -> list[Event]:
    """Report the start of each scale-up whose operation was saved."""
    most = {up.group: up.max for up in facts.plan.scale_ups}
    return [
        event
        for operation in facts.plan.operations
        if operation.spec.kind is OperationKind.SCALE_UP
        for event in about_status(
            fact,
            facts.options,
            "ScaledUpGroup",
            f"Scale-up: setting group {operation.spec.group} size to "
            + sizes(operation.spec.from_size, operation.spec.to_size, most.get(operation.spec.group)),
        )
    ]


def _removing(fact: str, facts: PassFacts, *, occupied: bool) -> list[Event]:
    """Report the start of each removal whose operation was saved."""
    begun = {
        target.node
        for operation in facts.plan.operations
        if operation.spec.kind is OperationKind.DELETE_NODES
        for target in operation.spec.targets
    }
    removals = [one for one in facts.plan.removals if one.node in begun and bool(one.evict) is occupied][:PODS_TOLD]
    if not occupied:
        return [
            event
            for one in removals
            for event in about_status(
                fact, facts.options, "ScaleDownEmpty", f'Scale-down: removing empty node "{one.node}"'
            )
        ]
    used = utilization(facts.snapshot, {one.node for one in removals}) if removals else {}
    return [
        event
        for one in removals
        for event in about_status(
            fact,
            facts.options,
            "ScaleDown",
            f"Scale-down: removing node {one.node}, utilization: {{{used.get(one.node, '')}}}, "
            f"pods to reschedule: {','.join(one.evict)}",
        )
    ]


def utilization(snapshot: Snapshot, nodes: Iterable[str]) -> dict[str, str]:
    """Return the requested share of each node's allocatable by all its pods: `cpu 12%, memory 5%`. For display only:
    decisions use plan/scale_down/candidates.py, which excludes some pods."""
    asked: dict[str, dict[str, int]] = {name: {CPU: 0, MEMORY: 0} for name in nodes}
    for pod in snapshot.pods:
        if pod.node in asked:
            requests = snapshot.cls(pod).requests
            for name in (CPU, MEMORY):
                asked[pod.node][name] += requests.get(name, 0)
    return {node.name: _shares(node, asked[node.name]) for node in snapshot.nodes if node.name in asked}


def _shares(node: Node, asked: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} {asked[name] / room:.0%}" for name in (CPU, MEMORY) if (room := node.allocatable.get(name, 0)) > 0
    )


def _repairs(
    fact: str, facts: PassFacts, code: ReasonCode, reason: str, words: Callable[[Repair, PassFacts], str]
) -> list[Event]:
    return [
        event
        for repair in facts.plan.repairs
        if repair.reason.code is code
        for event in about_status(fact, facts.options, reason, words(repair, facts), type_=WARNING)
    ]


def _timed_out(fact: str, facts: PassFacts) -> list[Event]:
    return _repairs(fact, facts, ReasonCode.SCALE_UP_TIMED_OUT, "ScaleUpTimedOut", _late)


def _late(repair: Repair, facts: PassFacts) -> str:
    since = repair.reason.params.get("since", 0.0)
    waited = facts.plan.at - float(since) if since else facts.options.max_node_provision_time
    return f"Nodes added to group {repair.group} failed to register within {format_duration(max(0.0, waited))}"


def _not_created(fact: str, facts: PassFacts) -> list[Event]:
    return _repairs(fact, facts, ReasonCode.CREATION_FAILED, "ScaleUpFailed", _errors)


def _errors(repair: Repair, facts: PassFacts) -> str:
    del facts
    error, detail = (str(repair.reason.params.get(name, "")) for name in ("error", "detail"))
    return (
        f"Failed adding {max(1, len(repair.instances))} nodes to group {repair.group} due to "
        f"{error or 'Unknown'}; source errors: {detail or 'none given'}"
    )


def _cleaned(fact: str, facts: PassFacts) -> list[Event]:
    return [
        about_node(fact, mark.node, "ClusterAutoscalerCleanup", f"removed {TO_BE_DELETED} taint from node {mark.node}")
        for mark in facts.marks
        if mark.action == "cleanup"
    ]


_PRIORITIES = {
    ReasonCode.PRIORITY_CONFIG_INVALID: "PriorityConfigMapInvalid",
    ReasonCode.PRIORITY_NOT_MATCHED: "PriorityConfigMapNotMatchedGroup",
    ReasonCode.PRIORITY_NO_MATCH: "PriorityConfigMapNoGroupMatched",
}


def _priorities(fact: str, facts: PassFacts) -> list[Event]:
    """Report on the ConfigMap of the priority expander (docs/reference/expanders.md "priority"); each group that no
    rule matches is a separate fact."""
    return [
        Event(
            f"{fact} {note.params.get('group', '')}".rstrip(),
            "ConfigMap",
            CONFIG_MAP,
            _PRIORITIES[note.code],
            reason_text.sentence(note),
            WARNING,
            facts.options.namespace,
        )
        for note in facts.plan.notes
        if note.code in _PRIORITIES
    ]


def _not_helped(fact: str, facts: PassFacts) -> list[Event]:
    """Report pods that get no new node, in upstream's words; pods that fit on an existing node need none."""
    uids = {pod.key: pod.uid for pod in facts.snapshot.pods if not pod.node}
    return [
        event
        for verdict in facts.plan.unschedulable
        for event in about_pods(fact, verdict.pods, "NotTriggerScaleUp", not_triggered(verdict), uids=uids)
    ]


FACTS: tuple[tuple[str, Callable[[str, PassFacts], list[Event]]], ...] = (
    ("cluster unhealthy", _unhealthy),
    ("cluster full", _full),
    ("scale-up begins", _growing),
    ("removal begins, empty", lambda fact, seen: _removing(fact, seen, occupied=False)),
    ("removal begins, drained", lambda fact, seen: _removing(fact, seen, occupied=True)),
    ("scale-up timed out", _timed_out),
    ("creation failed", _not_created),
    ("taint taken off", _cleaned),
    ("priorities", _priorities),
    ("rule object refused", rules.objects_refused),
    ("rule object warned", rules.objects_warned),
    ("rule adds nodes", rules.scaled_up),
    ("rule too late", rules.expired),
    ("rule not in force", rules.unusable),
    ("taint to avoid", rules.avoid_taint),
    ("annotation to avoid", rules.avoid_annotation),
    ("pod not helped", _not_helped),
)
