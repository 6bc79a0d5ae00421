"""Conditions that are worth a notification, from what the tables say about one cluster. Pure.

An ordered table has a function per type. Each returns what applies now; since when, and whether a
message is due, is decided in notices.py. Everything is read from the tables, so a dead pass is
noticed like a failing one.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from chalicelib.journal.metrics import Values, key
from chalicelib.model.health import HealthState, of_backoff
from chalicelib.model.memory import Memory, ReplacementState
from chalicelib.model.notification import NoticeSeverity
from chalicelib.model.overview import PoolOverview
from chalicelib.model.pause import Pause
from chalicelib.model.plan import Plan, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import OF_PROVIDER
from chalicelib.model.timestamps import format_time
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.text import sentence
from chalicelib.reasons.words import counted, some
from chalicelib.store.leases import ScanState
from chalicelib.views.cluster_view import LATE_AFTER, is_late, never_started

INFO, WARNING, CRITICAL = NoticeSeverity.INFO, NoticeSeverity.WARNING, NoticeSeverity.CRITICAL
IN_A_ROW = 3
"""Passes or removals that must fail before it is reported."""
CLASSES = 5
"""Classes of pods without a node that are reported at a time, the largest first."""
NODES = 20
"""Nodes that are reported at a time for one cause."""
_STUCK_AFTER = 1800.0  # seconds, for operations without a deadline
_MINUTES = 60.0
_PODS = 5
_UNAUTHORIZED = re.compile(r"(?i)unauthori|forbidden|accessdenied|credential|signature|\b40[13]\b")
_THROTTLED = re.compile(r"(?i)throttl|too many requests|rate.?limit|\b429\b")
_GENERATED = re.compile(r"(-[a-z0-9]{6,10})?-[a-z0-9]{5}\Z|-[0-9]{1,6}\Z")


class NoticeCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that applies now. key: identifies it among the cluster's. opens_after: seconds for
    which it must apply before it is reported; closes_after: for which it must not apply before its
    end is. command: the next one to type.
    """

    type: str
    key: str
    severity: NoticeSeverity
    message: str
    subject: str = ""
    group: str = ""
    node: str = ""
    pods: tuple[str, ...] = ()
    code: str = ""
    cls: str = ""
    plan: str = ""
    operation: str = ""
    command: str = ""
    opens_after: float = 0.0
    closes_after: float = 0.0


class ClusterFacts(msgspec.Struct, frozen=True):
    """What the tables say. applied_at: of the policy in force (epoch seconds). plan: the last
    decision, None where there is none. gauges: of the last pass. plans, acts: what the mode
    permits. pools: what the last pass saw of spec.managedPools. was_off: at the last tick."""

    name: str
    now: float
    policy: Policy
    plans: bool
    acts: bool
    state: ScanState
    gauges: Values
    memory: Memory
    pauses: tuple[Pause, ...]
    plan: Plan | None
    applied_at: float = 0.0
    pools: tuple[PoolOverview, ...] = ()
    was_off: bool = False


def typed(*words: str) -> str:
    """Return an outscaler command as it is typed in a shell. Names come from clusters and vendors,
    so each is quoted where it needs to be."""
    return shlex.join(("outscaler", *words))


def conditions(facts: ClusterFacts) -> tuple[NoticeCondition, ...]:
    """Return every condition that applies now, in the order of the table."""
    return tuple(condition for rule in _RULES for condition in rule(facts))


def _of_cluster(
    kind: str, severity: NoticeSeverity, message: str, command: str, **more: Any
) -> NoticeCondition:
    """Return a condition of the whole cluster, of which there is one."""
    return NoticeCondition(kind, kind, severity, message, command=command, **more)


def _of_group(
    kind: str,
    severity: NoticeSeverity,
    message: str,
    facts: ClusterFacts,
    group: str,
    key_end: str = "",
    **more: Any,
) -> NoticeCondition:
    """Return a condition of a node group. key_end: distinguishes several of a group."""
    command = typed("explain", "group", group, "--cluster", facts.name)
    return NoticeCondition(
        kind, f"{kind}/{group}{key_end}", severity, message, group=group, command=command, **more
    )


def _late(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    interval, scan = facts.policy.scan_interval, facts.state
    is_overdue = is_late(interval, scan, facts.applied_at, facts.now)
    if not facts.plans or facts.was_off or not is_overdue:
        return
    command = typed("get", "clusters")
    if scan.last_pass:
        message = f"no pass since {format_time(scan.last_pass)}"
        yield _of_cluster("cluster.late", CRITICAL, message, command)
        return
    applied = format_time(facts.applied_at)
    message = f"no pass since the policy was applied at {applied}: {never_started(scan)}"
    # Another version of the policy starts no pass, so it does not end the condition.
    closes_after = interval + LATE_AFTER
    yield _of_cluster("cluster.late", CRITICAL, message, command, closes_after=closes_after)


def _failing(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    failure = facts.state.failure
    if failure is not None and failure.count >= IN_A_ROW:
        unauthorized = bool(_UNAUTHORIZED.search(f"{failure.cls} {failure.message}"))
        kind = "cluster.unauthorized" if unauthorized else "cluster.unreachable"
        message = f"{failure.count} passes in a row failed: {failure.cls}: {failure.message}"
        yield _of_cluster(kind, CRITICAL, message, typed("get", "clusters"), cls=failure.cls)


def _breaker(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    breaker = facts.memory.breaker
    if breaker.tripped_at and facts.memory.released_until <= facts.now:
        message = (
            f"a plan would have removed {breaker.wanted} nodes at once; removals are blocked until "
            "they are released"
        )
        yield _of_cluster("brake.pulled", CRITICAL, message, typed("release", facts.name))


def _providers(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    for gap in facts.plan.gaps if facts.plan else ():
        if not gap.kind.startswith(OF_PROVIDER):
            continue
        name = gap.kind.removeprefix(OF_PROVIDER)
        subject = name if gap.unread_provider else f"a part of {name}"
        kind, severity, opens = "provider.unreadable", WARNING, 10 * _MINUTES
        if _THROTTLED.search(gap.detail):
            kind = "provider.throttled"
        elif _UNAUTHORIZED.search(gap.detail):
            kind, severity, opens = "provider.unauthorized", CRITICAL, _MINUTES
        yield NoticeCondition(
            kind,
            f"{kind}/{name}",
            severity,
            f"{subject} cannot be read: {gap.detail}",
            cls=kind.partition(".")[2],
            command=typed("get", "groups", facts.name),
            opens_after=opens,
            closes_after=3 * _MINUTES,
        )


def _unhealthy(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    if facts.gauges.get(key("cluster_safe_to_autoscale"), 1.0) == 0.0:
        message = HealthState.CLUSTER_UNHEALTHY.row.meaning
        command = typed("get", "nodes", facts.name)
        yield _of_cluster(
            "cluster.unhealthy",
            CRITICAL,
            message,
            command,
            opens_after=10 * _MINUTES,
            closes_after=5 * _MINUTES,
        )


def _groups_unhealthy(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    for group in facts.plan.groups if facts.plan else ():
        if not group.healthy:
            message = f"nodes of group {group.group} are not ready or missing"
            yield _of_group(
                "group.unhealthy",
                WARNING,
                message,
                facts,
                group.group,
                opens_after=10 * _MINUTES,
                closes_after=5 * _MINUTES,
            )


def _groups_failed(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    """A back-off that has ended counts until growth succeeds, or for half an hour:
    the group may fail again."""
    helped = facts.plan is not None and not facts.plan.unschedulable
    for name, memory in sorted(facts.memory.groups.items()):
        backoff = memory.backoff
        if (
            backoff is None
            or facts.now > backoff.until + 30 * _MINUTES
            or memory.last_add > backoff.last_failed
        ):
            continue
        state = of_backoff(backoff.cls, backoff.attempt)
        severity = WARNING if state.row.person or not helped else INFO
        verb = "backs off" if state is HealthState.GROUP_BACKING_OFF else state.word
        message = f"group {name} {verb}: {backoff.cls} {backoff.code} {backoff.message}".strip()
        cause = {"cls": backoff.cls, "code": backoff.code}
        yield _of_group("group.failed", severity, message, facts, name, f"/{backoff.cls}", **cause)


def _pods_unhelped(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    counts: Counter[str] = Counter()
    examples: dict[str, UnschedulablePods] = {}
    gaps = facts.plan.gaps if facts.plan else ()
    for verdict in facts.plan.unschedulable if facts.plan else ():
        name = workload(verdict.pods[0]) if verdict.pods else ""
        counts[name] += len(verdict.pods)
        examples.setdefault(name, verdict)
    for name, count in counts.most_common(CLASSES):
        pods = examples[name].pods
        why = no_place(examples[name], gaps=gaps).line
        yield NoticeCondition(
            "pods.unhelped",
            f"pods.unhelped/{name}",
            WARNING,
            f"{counted(count, 'pod')} of {name} without a node: {why}",
            pods=pods[:_PODS],
            command=typed("explain", "pod", pods[0], "--cluster", facts.name) if pods else "",
            opens_after=10 * _MINUTES,
        )


def workload(pod: str) -> str:
    """Return `namespace/name` without the generated end of a pod's name: pods of one controller are
    reported together, and their replacements, too."""
    return _GENERATED.sub("", pod)


def _groups_at_max(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    at_max = {
        group
        for verdict in (facts.plan.unschedulable if facts.plan else ())
        for group, reasons in verdict.reasons.items()
        if any(reason.code.row.at_maximum for reason in reasons)
    }
    for group in sorted(at_max):
        message = f"group {group} is at its maximum, and pods wait"
        yield _of_group("group.at-max", INFO, message, facts, group, opens_after=30 * _MINUTES)


def _removals_blocked(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    for group, memory in sorted(facts.memory.groups.items()):
        for node, failed in sorted(memory.failed_removals.items()):
            if failed.times >= IN_A_ROW and not failed.taken_back:
                yield NoticeCondition(
                    "removal.blocked",
                    f"removal.blocked/{node}",
                    WARNING,
                    f"node {node} could not be removed {failed.times} times: {failed.why}",
                    group=group,
                    node=node,
                    command=typed("explain", "node", node, "--cluster", facts.name),
                )


def _replacements_failed(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    for _, replacement in sorted(facts.memory.replacements.items()):
        if replacement.state is ReplacementState.FAILED and replacement.times >= IN_A_ROW:
            nodes = sorted((*replacement.nodes, *replacement.gone))
            why = sentence(replacement.why) if replacement.why is not None else "unknown"
            yield NoticeCondition(
                "replacement.failed",
                f"replacement.failed/{','.join(nodes)}",
                WARNING,
                f"the replacement of {some(nodes)} failed {replacement.times} times: {why}",
                node=nodes[0] if nodes else "",
                command=typed("get", "nodes", facts.name),
            )


def _interruptions_unreplaced(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    for node, reason in _notes_on_nodes(facts, ReasonCode.NO_REPLACEMENT_IN_TIME):
        message = f"node {node} leaves before another is ready: {sentence(reason)}"
        yield _of_node("interruption.unreplaced", message, facts, node)


def _nodes_overdue(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    for node, reason in _notes_on_nodes(facts, ReasonCode.NODE_OVERDUE):
        yield _of_node(
            "node.overdue", f"node {node} could not be replaced: {sentence(reason)}", facts, node
        )


def _notes_on_nodes(facts: ClusterFacts, code: ReasonCode) -> list[tuple[str, Reason]]:
    """Return the notes of a code with the nodes that they are about, each node
    once, the first by name."""
    notes = facts.plan.notes if facts.plan else ()
    by_node = {
        str(note.params.get("node", "")): note for note in reversed(notes) if note.code is code
    }
    return sorted(by_node.items(), key=lambda item: item[0])[:NODES]


def _of_node(kind: str, message: str, facts: ClusterFacts, node: str) -> NoticeCondition:
    command = typed("explain", "node", node, "--cluster", facts.name)
    return NoticeCondition(kind, f"{kind}/{node}", WARNING, message, node=node, command=command)


def _repairs_blocked(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    """A common cause makes many nodes sick, and to replace them all would not help. The reason is
    given for each sick node, or once for a group."""
    verdicts = [verdict.reason for verdict in facts.plan.unremovable] if facts.plan else []
    reasons = (*(facts.plan.notes if facts.plan else ()), *verdicts)
    by_group = {
        str(reason.params.get("group", "")): reason
        for reason in reversed(reasons)
        if reason.code is ReasonCode.TOO_MANY_UNHEALTHY
    }
    for group, reason in sorted(by_group.items()):
        message = (
            f"sick nodes{f' of group {group}' if group else ''} are not repaired: "
            f"{sentence(reason)}"
        )
        if group:
            yield _of_group("repair.blocked", WARNING, message, facts, group)
        else:
            yield _of_cluster("repair.blocked", WARNING, message, typed("get", "nodes", facts.name))


def _pools_held(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    """A vendor that cannot be read has a condition of its own."""
    unread = {gap.unread_provider for gap in facts.plan.gaps} if facts.plan else set()
    severity = WARNING if facts.plan is not None and facts.plan.unschedulable else INFO
    for pool in facts.pools:
        if pool.buys_nothing and pool.provider not in unread:
            yield NoticeCondition(
                "pool.held",
                f"pool.held/{pool.name}",
                severity,
                f"managed pool {pool.name} can buy no machine: {pool.held}",
                subject=pool.name,
                command=typed("get", "pools", facts.name),
                opens_after=10 * _MINUTES,
                closes_after=5 * _MINUTES,
            )


def _operations_stuck(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    for operation in facts.memory.operations:
        spec, step = operation.spec, operation.status.step or "-"
        if facts.now > (spec.deadline or spec.created_at + _STUCK_AFTER):
            yield NoticeCondition(
                "operation.stuck",
                f"operation.stuck/{spec.id}",
                WARNING,
                f"operation {spec.id} is open since {format_time(spec.created_at)}, at step {step}",
                group=spec.group,
                operation=spec.id,
                command=typed("get", "operations", facts.name),
            )


def _paused(facts: ClusterFacts) -> Iterator[NoticeCondition]:
    for pause in facts.pauses:
        what = f"group {pause.group} ({pause.part.value})" if pause.group else pause.part.value
        yield NoticeCondition(
            "paused",
            f"paused/{pause.part.value}/{pause.group}/{pause.since:.0f}",
            INFO,
            (
                f"{what} paused until {format_time(pause.until)} by {pause.by or 'unknown'}: "
                f"{pause.reason}"
            ),
            group=pause.group,
            command=typed("resume", facts.name),
        )


_RULES: tuple[Callable[[ClusterFacts], Iterator[NoticeCondition]], ...] = (
    _late,
    _failing,
    _breaker,
    _providers,
    _unhealthy,
    _groups_unhealthy,
    _groups_failed,
    _pods_unhelped,
    _groups_at_max,
    _removals_blocked,
    _replacements_failed,
    _interruptions_unreplaced,
    _nodes_overdue,
    _repairs_blocked,
    _pools_held,
    _operations_stuck,
    _paused,
)
