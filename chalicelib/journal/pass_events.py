"""Converts a pass's observations and decisions to events: an ordered table from fact to event
(docs/events.md "Published events").

Important events come first, because posting may stop early; the numerous ones (pods
without a place) come last. events.py removes repetitions within five minutes afterwards,
so this module keeps no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from chalicelib.journal.events import (
    NORMAL,
    PODS_TOLD,
    WARNING,
    Event,
    EventRow,
    about_node,
    about_pods,
    about_status,
    sizes,
)
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Horizon, ReplacementState
from chalicelib.model.node import TO_BE_DELETED, Node
from chalicelib.model.operation import REPLACES, OperationKind, OperationSpec
from chalicelib.model.plan import Plan, Removal, Repair, RuleVerdict, TaintUpdate
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timestamps import format_time
from chalicelib.policy.horizontal_node_autoscaler import GROUP, KIND, VERSION
from chalicelib.policy.priority_configmap import CONFIG_MAP
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import leaving_time
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.text import disruption_words, sentence
from chalicelib.reasons.words import counted, some
from chalicelib.views.cluster_view import node_names
from chalicelib.views.consolidation import action, horizon_view, worth


class PassFacts(msgspec.Struct, frozen=True):
    """What the events of one pass are made from. marks: taints outside of operations that were
    written (passes/soft_taints.py). horizon: that stood before this pass."""

    plan: Plan
    snapshot: Snapshot
    options: Options = Options()
    marks: tuple[TaintUpdate, ...] = ()
    horizon: Horizon | None = None

    def status_event(
        self, fact: str, reason: str, message: str, type_: str = WARNING
    ) -> list[Event]:
        """Return an event on the status ConfigMap; none where that is disabled."""
        return about_status(fact, self.options, reason, message, type_=type_)


class PassEvent(EventRow, frozen=True):
    """A fact of a pass. events: makes them of the fact and what is known of the pass."""

    events: Callable[[str, PassFacts], Iterable[Event]]


def events_of_pass(facts: PassFacts) -> list[Event]:
    """Return every event of this pass, at most PODS_TOLD per fact."""
    events: list[Event] = []
    for row in FACTS:
        events += list(row.events(row.fact, facts))[:PODS_TOLD]
    return events


def _unhealthy(fact: str, facts: PassFacts) -> list[Event]:
    """Report an unhealthy cluster (docs/reference/node-groups.md "Cluster health"). A cluster
    without (ready) nodes is reported only where scaling up from zero is disabled."""
    health = facts.plan.health
    needs_nodes = not facts.options.scale_up_from_zero
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


def _scale_up_begins(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report the start of each scale-up whose operation was saved."""
    maximums = {up.group: up.max for up in facts.plan.scale_ups}
    opened = {up.group: up.choice for up in facts.plan.scale_ups if up.opens}
    for spec in _saved(facts.plan, OperationKind.SCALE_UP):
        change = sizes(spec.from_size, spec.to_size, maximums.get(spec.group))
        message = f"Scale-up: setting group {spec.group} size to {change}"
        choice = opened.get(spec.group)
        if choice is not None:
            message = f"Scale-up: opening group {spec.group} ({choice.machine}), size {change}"
        yield from about_status(fact, facts.options, "ScaledUpGroup", message)


def _saved(plan: Plan, kind: OperationKind) -> list[OperationSpec]:
    return [operation.spec for operation in plan.operations if operation.spec.kind is kind]


def _target_nodes(plan: Plan, kind: OperationKind) -> set[str]:
    """Return the nodes that the saved operations of this kind are about."""
    return {target.node for spec in _saved(plan, kind) for target in spec.targets}


def _removal_begins(fact: str, facts: PassFacts, *, occupied: bool) -> Iterator[Event]:
    """Report the start of each removal whose operation was saved."""
    removals = _begun_removals(facts.plan, occupied=occupied)[:PODS_TOLD]
    utilization: dict[str, str] = {}
    if occupied and removals:
        utilization = _utilization(facts.snapshot, {removal.node for removal in removals})
    for removal in removals:
        node = removal.node
        if occupied:
            reason = "ScaleDown"
            message = (
                f"Scale-down: removing node {node}, utilization: {{{utilization.get(node, '')}}}, "
                f"pods to reschedule: {','.join(removal.evict)}"
            )
        else:
            reason = "ScaleDownEmpty"
            message = f'Scale-down: removing empty node "{node}"'
        yield from about_status(fact, facts.options, reason, message)


def _begun_removals(plan: Plan, *, occupied: bool) -> list[Removal]:
    nodes = _target_nodes(plan, OperationKind.DELETE_NODES)
    removals = [removal for removal in plan.removals if removal.node in nodes]
    return [
        removal
        for removal in removals
        if bool(removal.evict) is occupied and removal.reason is not DisruptionReason.INTERRUPTED
    ]


def _interruption_begins(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report the end that a vendor has announced, on each node whose evacuation was saved."""
    for operation in facts.plan.operations:
        if not operation.spec.interrupted:
            continue
        for target in operation.spec.targets:
            end = format_time(leaving_time(operation.spec))
            message = f"the vendor takes the node back at {end}; its pods are evicted"
            yield about_node(fact, target.node, "NodeInterruption", message, type_=WARNING)


def _restart_begins(fact: str, facts: PassFacts) -> Iterator[Event]:
    restarting_nodes = _target_nodes(facts.plan, OperationKind.RESTART_NODE)
    for restart in facts.plan.restarts:
        if restart.node in restarting_nodes:
            message = f"restarting the node, because it is sick: {restart.condition}"
            yield about_node(fact, restart.node, "NodeRestart", message)


def _lifecycle_replacement_begins(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report the start of each replacement that is not for its saving, on the nodes that will
    go."""
    for operation in facts.plan.operations:
        spec = operation.spec
        if spec.kind is not OperationKind.SCALE_UP or not spec.reason:
            continue
        why = disruption_words(spec.reason)
        for node in operation.status.data.get(REPLACES, "").split(","):
            if node:
                message = f"Replace {node} by a node of {spec.group} {why}"
                yield about_node(fact, node, "NodeReplacement", message)


def _replacement_begins(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report the start of each replacement whose purchase was saved, on the nodes that will go."""
    report = facts.plan.consolidation
    if report is None:
        return
    saved_replacements = {operation.spec.replacement for operation in facts.plan.operations} - {""}
    for move in report.moves:
        is_buying = move.state == ReplacementState.BUYING.value
        if is_buying and move.replacement in saved_replacements:
            for node in move.nodes:
                message = f"{action(move)}: {worth(move)}"
                yield about_node(fact, node, "NodeReplacement", message)


def _replacement_failed(fact: str, facts: PassFacts) -> Iterator[Event]:
    for replacement in facts.plan.ended_replacements:
        if replacement.why is None:
            continue
        for node in replacement.nodes:
            cause = sentence(replacement.why)
            pause = f"not tried again before {format_time(replacement.until)}"
            message = f"replacement failed: {cause}; {pause}"
            own_fact = f"{fact} {replacement.id}"
            yield about_node(own_fact, node, "NodeReplacementFailed", message, type_=WARNING)


def _replacement_done(fact: str, facts: PassFacts) -> Iterator[Event]:
    for replacement in facts.plan.ended_replacements:
        if replacement.why is None:
            new_nodes = some(replacement.new_nodes) or "new nodes"
            message = f"Replaced {some(replacement.nodes)} by {new_nodes}"
            yield from facts.status_event(
                f"{fact} {replacement.id}", "NodeReplacement", message, NORMAL
            )


def _horizon_begins(fact: str, facts: PassFacts) -> list[Event]:
    view = horizon_view(facts.plan)
    old_id = facts.horizon.id if facts.horizon is not None else ""
    if view is None or view.report.id == old_id:
        return []
    id_ = view.report.id
    message = f"Horizon {id_} begins. {view.words}"
    return facts.status_event(f"{fact} {id_}", "ConsolidationHorizon", message, NORMAL)


def _horizon_ends(fact: str, facts: PassFacts) -> list[Event]:
    """Report the end of a horizon that no other one replaces."""
    old = facts.horizon
    if old is None or horizon_view(facts.plan) is not None:
        return []
    gone = old.gone + len(set(old.going).difference(node_names(facts.plan)))
    message = f"Horizon {old.id} is over: {gone} of {old.gone + len(old.going)} nodes have gone"
    return facts.status_event(f"{fact} {old.id}", "ConsolidationHorizon", message, NORMAL)


def _utilization(snapshot: Snapshot, nodes: Iterable[str]) -> dict[str, str]:
    """Return the requested share of each node's allocatable by all its pods: `cpu 12%, memory 5%`.
    For display only: decisions use plan/removal/candidates.py, which excludes some pods."""
    requested: dict[str, dict[str, int]] = {name: {CPU: 0, MEMORY: 0} for name in nodes}
    for pod in snapshot.pods:
        if pod.node in requested:
            requests = snapshot.cls(pod).requests
            for resource in (CPU, MEMORY):
                requested[pod.node][resource] += requests.get(resource, 0)
    utilization: dict[str, str] = {}
    for node in snapshot.nodes:
        if node.name in requested:
            utilization[node.name] = ", ".join(_shares(node, requested[node.name]))
    return utilization


def _shares(node: Node, requested: Mapping[str, int]) -> Iterator[str]:
    for resource, amount in requested.items():
        allocatable = node.allocatable.get(resource, 0)
        if allocatable > 0:
            yield f"{resource} {amount / allocatable:.0%}"


def _repairs(
    fact: str,
    facts: PassFacts,
    code: ReasonCode,
    reason: str,
    message: Callable[[Repair, PassFacts], str],
) -> Iterator[Event]:
    for repair in facts.plan.repairs:
        if repair.reason.code is code:
            yield from facts.status_event(fact, reason, message(repair, facts))


def _timeout_message(repair: Repair, facts: PassFacts) -> str:
    since = repair.reason.params.get("since", 0.0)
    waited = facts.plan.at - float(since) if since else facts.options.max_node_provision_time
    duration = format_duration(max(0.0, waited))
    return f"Nodes added to group {repair.group} failed to register within {duration}"


def _creation_message(repair: Repair, _facts: PassFacts) -> str:
    params = repair.reason.params
    error = str(params.get("error", "")) or "Unknown"
    detail = str(params.get("detail", "")) or "none given"
    nodes = max(1, len(repair.instances))
    return (
        f"Failed adding {nodes} nodes to group {repair.group} due to {error}; "
        f"source errors: {detail}"
    )


def _taint_removed(fact: str, facts: PassFacts) -> Iterator[Event]:
    for mark in facts.marks:
        if mark.action == "cleanup":
            message = f"removed {TO_BE_DELETED} taint from node {mark.node}"
            yield about_node(fact, mark.node, "ClusterAutoscalerCleanup", message)


_PRIORITIES = (
    ReasonCode.PRIORITY_CONFIG_INVALID,
    ReasonCode.PRIORITY_NOT_MATCHED,
    ReasonCode.PRIORITY_NO_MATCH,
)


def _priorities(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report on the ConfigMap of the priority expander (docs/reference/expanders.md "priority");
    each group that no rule matches is a separate fact."""
    namespace = facts.options.namespace
    for note in facts.plan.notes:
        if note.code in _PRIORITIES:
            reason = note.code.value
            own_fact = f"{fact} {note.params.get('group', '')}".rstrip()
            message = sentence(note)
            yield Event(own_fact, "ConfigMap", CONFIG_MAP, reason, message, WARNING, namespace)


def _pods_without_node(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report pods that get no new node, and why; pods that fit on an existing node need none."""
    uids = {pod.key: pod.uid for pod in facts.snapshot.pods if not pod.node}
    for verdict in facts.plan.unschedulable:
        message = f"pod didn't trigger scale-up: {no_place(verdict, gaps=facts.plan.gaps).line}"
        yield from about_pods(fact, verdict.pods, "NotTriggerScaleUp", message, uids=uids)


# -- scaling rules: an event is posted on the object that contains the rule, so that its author sees
#    it there; a rule of the policy has no object, and its event is posted on the status ConfigMap


def _objects_refused(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report objects that are refused as a whole, for their own mistakes or because other
    objects take precedence."""
    problems = {
        item.key: "; ".join(item.problems)
        for item in facts.snapshot.rule_objects or ()
        if item.problems
    }
    for note in _notes(facts, ReasonCode.RULE_OBJECT_INVALID):
        key = str(note.params.get("object", ""))
        problems[key] = problems.get(key) or str(note.params.get("detail", ""))
    reason = ReasonCode.RULE_OBJECT_INVALID.value
    for key, detail in sorted(problems.items()):
        message = f"refused as a whole (a good version before it stays in force): {detail}"
        yield from _on_object(f"{fact} {detail}", key, facts, reason, message)


def _objects_warned(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report objects that are in force but have ignored fields."""
    reason = "HorizontalNodeAutoscalerWarning"
    for item in facts.snapshot.rule_objects or ():
        if item.warnings and not item.problems:
            warnings = "; ".join(item.warnings)
            yield from _on_object(
                f"{fact} {warnings}", item.key, facts, reason, warnings, lasting=True
            )


def _rules_add_nodes(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report rules that add nodes, once the operations are saved."""
    saved_groups = {spec.group for spec in _saved(facts.plan, OperationKind.SCALE_UP)}
    saved_rules: set[str] = set()
    for up in facts.plan.scale_ups:
        if up.group in saved_groups:
            saved_rules.update(up.rules)
    for verdict in facts.plan.rules:
        is_saved = not saved_rules.isdisjoint((verdict.rule, _rule_key(verdict)))
        if verdict.nodes > 0 and is_saved:
            message = _rule_message(verdict)
            yield from _about_rule(
                f"{fact} {verdict.nodes}", verdict, facts, "RuleScaledUp", message, NORMAL
            )


def _rule_message(verdict: RuleVerdict) -> str:
    nodes = counted(verdict.nodes, "node")
    message = f"Rule {verdict.rule}: adding {nodes} to pool {verdict.pool}"
    if verdict.due:
        return f"{message}, due at {format_time(verdict.due)}"
    if verdict.rate is not None:
        return f"{message}, its rate is {verdict.rate:.1f}%"
    return message


def _rules_stopped(fact: str, facts: PassFacts, *codes: ReasonCode) -> Iterator[Event]:
    """Report rules with one of these reasons, which are those of the events, too."""
    for verdict in facts.plan.rules:
        if verdict.reason is not None and verdict.reason.code in codes:
            why = sentence(verdict.reason)
            pool = f", pool {verdict.pool}" if verdict.pool else ""
            message = f"Rule {verdict.rule}{pool}: {why}"
            reason = verdict.reason.code.value
            yield from _about_rule(f"{fact} {why}", verdict, facts, reason, message, WARNING)


def _about_rule(
    fact: str, verdict: RuleVerdict, facts: PassFacts, reason: str, message: str, type_: str
) -> list[Event]:
    """Return the event about a rule. fact: extended by the rule, the pool and the occurrence, so
    that none suppresses another."""
    own_fact = f"{fact} {_rule_key(verdict)} {verdict.pool} {int(verdict.due)}"
    on_object: list[Event] = []
    if verdict.source:
        on_object = _on_object(own_fact, verdict.source, facts, reason, message, type_)
    return on_object or facts.status_event(own_fact, reason, message, type_)


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


def _avoid_taint(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report the discouraged taint once for each node."""
    for note in _notes(facts, ReasonCode.AVOID_TAINT):
        node = str(note.params.get("node", ""))
        message = sentence(note)
        yield about_node(fact, node, note.code.value, message, type_=WARNING, lasting=True)


def _pod_annotation(fact: str, facts: PassFacts, code: ReasonCode) -> Iterator[Event]:
    """Report an annotation that is discouraged or invalid once for each pod."""
    notes = {str(note.params.get("pod", "")): note for note in _notes(facts, code)}
    if not notes:
        return
    uids = {pod.key: pod.uid for pod in facts.snapshot.pods if pod.key in notes}
    for key, note in notes.items():
        reason = note.code.value
        message = sentence(note)
        yield from about_pods(fact, (key,), reason, message, type_=WARNING, uids=uids, lasting=True)


def _renewal_rests(fact: str, facts: PassFacts) -> Iterator[Event]:
    """Report each rest of a group once a day: its new nodes are no better than
    those that they replace."""
    for note in _notes(facts, ReasonCode.RENEWAL_RESTS):
        rest = " ".join(str(note.params.get(name, "")) for name in ("group", "renewed", "until"))
        for event in facts.status_event(f"{fact} {rest}", note.code.value, sentence(note)):
            yield msgspec.structs.replace(event, lasting=True)


def _notes(facts: PassFacts, code: ReasonCode) -> list[Reason]:
    return [note for note in facts.plan.notes if note.code is code]


FACTS: tuple[PassEvent, ...] = (
    PassEvent(
        "cluster unhealthy",
        events=_unhealthy,
        on="status",
        reason="`ClusterUnhealthy` (Warning)",
        message=(
            "`Cluster is unhealthy`; with `scaleUpFromZero: false` also `Cluster has no nodes.` "
            "and `Cluster has no ready nodes.`"
        ),
    ),
    PassEvent(
        "cluster full",
        events=_cluster_full,
        on="status",
        reason="`MaxNodesTotalReached` (Warning)",
        message="`Max total nodes in cluster reached: N`",
    ),
    PassEvent(
        "scale-up begins",
        events=_scale_up_begins,
        on="status",
        reason="`ScaledUpGroup`",
        message="`Scale-up: setting group G size to N instead of M (max: K)`",
    ),
    PassEvent(
        "removal begins, empty",
        events=lambda fact, facts: _removal_begins(fact, facts, occupied=False),
        on="status",
        reason="`ScaleDownEmpty`",
        message='`Scale-down: removing empty node "X"`',
    ),
    PassEvent(
        "removal begins, drained",
        events=lambda fact, facts: _removal_begins(fact, facts, occupied=True),
        on="status",
        reason="`ScaleDown`",
        message=(
            "`Scale-down: removing node X, utilization: {cpu 12%, memory 5%}, pods to reschedule:"
            " a/p,a/q`"
        ),
    ),
    PassEvent(
        "interruption begins",
        events=_interruption_begins,
        on="node",
        reason="`NodeInterruption` (Warning)",
        message="`the vendor takes the node back at T; its pods are evicted`",
    ),
    PassEvent(
        "restart begins",
        events=_restart_begins,
        on="node",
        reason="`NodeRestart`",
        message="`restarting the node, because it is sick: KernelDeadlock=True`",
    ),
    PassEvent(
        "replacement begins",
        events=_replacement_begins,
        on="the nodes that will go",
        reason="`NodeReplacement`",
        message="`Replace a by 1 of s: saves 0.10 EUR an hour (50%), score 1.00`",
    ),
    PassEvent(
        "replacement begins, not for savings",
        events=_lifecycle_replacement_begins,
        on="the nodes that will go",
        reason="`NodeReplacement`",
        message=(
            "`Replace a by a node of s because of age`, `… because of drift`, "
            "`… because of a fault`"
        ),
    ),
    PassEvent(
        "replacement failed",
        events=_replacement_failed,
        on="the same nodes",
        reason="`NodeReplacementFailed` (Warning)",
        message="`replacement failed: <why>; not tried again before T`",
    ),
    PassEvent(
        "replacement done",
        events=_replacement_done,
        on="status",
        reason="`NodeReplacement`",
        message="`Replaced a by s-1`",
    ),
    PassEvent(
        "horizon begins",
        events=_horizon_begins,
        on="status",
        reason="`ConsolidationHorizon`",
        message=(
            "`Horizon H begins. Nodes that leave: 12 of 40, 0 marked; the others stay. Price at "
            "the end: 3.60 EUR an hour, now 6.00 EUR.`"
        ),
    ),
    PassEvent(
        "horizon ends",
        events=_horizon_ends,
        on="status",
        reason="`ConsolidationHorizon`",
        message="`Horizon H is over: 11 of 12 nodes have gone`",
    ),
    PassEvent(
        "renewal rests",
        events=_renewal_rests,
        on="status ConfigMap",
        reason="`RenewalRests` (Warning)",
        message=(
            "`<drift, age or repair> in group G rests: the new node N <what is wrong>`, with the "
            "end of the [rest](reference/node-lifecycle.md#rest-of-a-group); once a day for each "
            "rest"
        ),
    ),
    PassEvent(
        "scale-up timed out",
        events=lambda fact, facts: _repairs(
            fact, facts, ReasonCode.SCALE_UP_TIMED_OUT, "ScaleUpTimedOut", _timeout_message
        ),
        on="status",
        reason="`ScaleUpTimedOut` (Warning)",
        message="`Nodes added to group G failed to register within 15m`",
    ),
    PassEvent(
        "creation failed",
        events=lambda fact, facts: _repairs(
            fact, facts, ReasonCode.CREATION_FAILED, "ScaleUpFailed", _creation_message
        ),
        on="status",
        reason="`ScaleUpFailed` (Warning)",
        message="`Failed adding n nodes to group G due to <class>.<code>; source errors: …`",
    ),
    PassEvent(
        "taint taken off",
        events=_taint_removed,
        on="node",
        reason="`ClusterAutoscalerCleanup`",
        message="`removed ToBeDeletedByClusterAutoscaler taint from node X`",
    ),
    PassEvent(
        "priorities",
        events=_priorities,
        on="the ConfigMap of the priority expander",
        reason=(
            "`PriorityConfigMapInvalid`, `PriorityConfigMapNotMatchedGroup`, "
            "`PriorityConfigMapNoGroupMatched` (Warning)"
        ),
        message="the mistake",
    ),
    PassEvent(
        "rule object refused",
        events=_objects_refused,
        on="the HorizontalNodeAutoscaler",
        reason="`HorizontalNodeAutoscalerInvalid` (Warning)",
        message=(
            "`refused as a whole (a good version before it stays in force): <every mistake, with "
            "its path and what would be right>`"
        ),
    ),
    PassEvent(
        "rule object warned",
        events=_objects_warned,
        on="the HorizontalNodeAutoscaler",
        reason="`HorizontalNodeAutoscalerWarning` (Warning)",
        message="ignored parts; once a day",
    ),
    PassEvent(
        "rule adds nodes",
        events=_rules_add_nodes,
        on="the HorizontalNodeAutoscaler, or status for a rule of the policy",
        reason="`RuleScaledUp`",
        message="`Rule R: adding n nodes to pool P, due at T`",
    ),
    PassEvent(
        "rule too late",
        events=lambda fact, facts: _rules_stopped(fact, facts, ReasonCode.RULE_EXPIRED),
        on="the same",
        reason="`RuleExpired` (Warning)",
        message=(
            "`Rule R, pool P: its time is over by more than half an hour; dropped (was due at T)`"
        ),
    ),
    PassEvent(
        "rule not in force",
        events=lambda fact, facts: _rules_stopped(
            fact, facts, ReasonCode.RULE_INVALID, ReasonCode.RULE_NO_GROUP
        ),
        on="the same",
        reason="`RuleInvalid`, `RuleGroupUnknown` (Warning)",
        message="the mistake",
    ),
    PassEvent(
        "taint to avoid",
        events=_avoid_taint,
        on="node",
        reason="`IgnoreTaintPrefixUsed` (Warning)",
        message="`a taint makes nodes count as not ready, …`; ten nodes at most, once a day",
    ),
    PassEvent(
        "annotation to avoid",
        events=lambda fact, facts: _pod_annotation(fact, facts, ReasonCode.AVOID_ANNOTATION),
        on="pod",
        reason="`DaemonSetEvictionAnnotationUsed` (Warning)",
        message=(
            "`an annotation on a DaemonSet's pod changes which nodes are empty`; ten pods at "
            "most, once a day"
        ),
    ),
    PassEvent(
        "annotation invalid",
        events=lambda fact, facts: _pod_annotation(fact, facts, ReasonCode.BAD_PROTECTION),
        on="pod",
        reason="`DoNotDisruptInvalid` (Warning)",
        message=(
            "`the annotation karpenter.sh/do-not-disrupt does not protect its pod`; only with "
            "consolidation; ten pods at most, once a day"
        ),
    ),
    PassEvent(
        "pod not helped",
        events=_pods_without_node,
        on="pod",
        reason="`NotTriggerScaleUp`",
        message=(
            "`pod didn't trigger scale-up: GROUP: reason; n other groups: labels m, …`, the "
            "[nearest group](reference/scale-up.md#nearest-group) first"
        ),
    ),
)
