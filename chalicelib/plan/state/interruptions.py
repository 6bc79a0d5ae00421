"""Nodes that their vendor takes back: the signals that say so, and until when such a node runs.

    signals of a node ► earliest deadline ► notice, kept from pass to pass
    (GroupMemory.risk) ► ClusterState.at_risk

A signal is believed for nodes of known groups only. A node that is removed or restarted by an
operation of ours says the same while its machine stops, so it gets no notice; a notice that came
before the operation holds. A notice ends when no signal is left and the node is ready. See
docs/reference/spot.md "Signals".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import HOUR, GroupMemory, InterruptionNotice
from chalicelib.model.node import TO_BE_DELETED, Condition, Node, Taint
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.settings.spot import InterruptionAction, Spot

REBALANCE_TAINT = "aws-node-termination-handler/rebalance-recommendation"
"""A recommendation: such a node may be interrupted some time. It is no notice."""
MOST_REPORTED = 10
"""Nodes that the notes of a plan name, by name."""
_TAINTS = {
    # The add-on looks every 120 s, so that much of the vendor's 300 s may be
    # over when it sets the taint.
    "node-problem-controller.cce.io/SpotPriceNodeReclaimNotification": 300.0 - 120.0,
    "aws-node-termination-handler/spot-itn": 120.0,
    "aws-node-termination-handler/scheduled-maintenance": 120.0,
    "aws-node-termination-handler/asg-lifecycle-termination": 120.0,
    "remediator.kubernetes.azure.com/unschedulable": 30.0,
    "node.cloudprovider.kubernetes.io/shutdown": 0.0,
    "node.kubernetes.io/out-of-service": 0.0,
}
"""Taint -> seconds from our first sight until the machine goes; 0: it is off, unless its node is
Ready: then nobody has taken the taint off."""
INTERRUPTION_TAINTS = frozenset({*_TAINTS, REBALANCE_TAINT})
"""Taints of a single machine, which a new node of its group does not have."""
_EXPIRED = "InstanceExpired"
_TO_BE_TERMINATED = "InstanceToBeTerminated"
_EXPIRES_AFTER = 300.0
_FARTHEST = 24 * HOUR
"""Seconds ahead within which a provider's time is a notice; what is farther away
is the end of a contract."""
_OUTDATED = 24 * HOUR
"""Seconds after its deadline for which a notice is remembered. An older one was of another time,
such as before an outage of Outscaler; a signal that is still there is a new notice."""
_BY_PROVIDER = "its provider says so"
_EARLIER = "announced before"


class Announcement(msgspec.Struct, frozen=True):
    """What is known of a node that its vendor takes back. signal: the one
    with the earliest deadline."""

    group: str
    notice: InterruptionNotice
    signal: str

    def until(self, now: float) -> dict[str, float]:
        """Return when the node leaves as parameters of a reason, none if it leaves at once."""
        return {"until": self.notice.leaves_at} if self.notice.leaves_at > now else {}


Deadline = Callable[[Node, float, bool], float | None]
"""(node, first sight, spot) -> when the node leaves, epoch seconds; None: the node does not have
the signal. spot: whether its group is a spot group."""


def _by_taint(key: str, seconds: float) -> Deadline:
    def leaves_at(node: Node, seen_at: float, _spot: bool) -> float | None:  # noqa: FBT001 - one form for the table
        if node.taint(key) is None or (seconds == 0.0 and _is_ready(node)):
            return None
        return seen_at + seconds

    return leaves_at


def _by_condition(node: Node, seen_at: float, _spot: bool) -> float | None:  # noqa: FBT001 - one form for the table
    """ack-node-problem-detector's condition of an instance that the vendor
    has announced to terminate."""
    expired = node.condition(_EXPIRED)
    if expired is None or expired.status != "True" or expired.reason != _TO_BE_TERMINATED:
        return None
    announced_at = min(expired.changed, seen_at) if expired.changed else seen_at
    return announced_at + _EXPIRES_AFTER


def _by_shutdown(node: Node, seen_at: float, spot: bool) -> float | None:  # noqa: FBT001 - one form for the table
    """The kubelet says that its machine shuts down. On demand that is a restart as often as not."""
    ready = node.condition("Ready")
    shuts_down = ready is not None and ready.status != "True" and bool(ready.message)
    return seen_at if spot and shuts_down else None


SIGNALS: tuple[tuple[str, Deadline], ...] = (
    *((f"taint {key}", _by_taint(key, seconds)) for key, seconds in _TAINTS.items()),
    (f"condition {_EXPIRED}", _by_condition),
    ("the kubelet says that its node is shutting down", _by_shutdown),
)
"""Name and deadline of each signal that a Node object shows. Of equal deadlines
the first names the cause."""


def announcements(
    nodes: Iterable[Node],
    owners: Mapping[str, str],
    groups: Iterable[NodeGroup],
    memory: Mapping[str, GroupMemory],
    operations: Iterable[Operation],
    now: float,
) -> dict[str, Announcement]:
    """Return node -> announcement. owners: node -> id of its group; memory: by group."""
    by_id = {group.id: group for group in groups}
    leaves_at = _leaves_at(by_id.values(), now)
    notices = _remembered_notices(memory, now)
    operations = tuple(operations)
    stopped_by_us = _stopped_by_us(operations)
    evacuated = _evacuated(operations)
    announced: dict[str, Announcement] = {}
    for node in nodes:
        group = by_id.get(owners.get(node.name, ""))
        if group is None:
            continue
        known = notices.get((group.id, node.name))
        vendor = leaves_at.get(node.name) or leaves_at.get(node.provider_id, 0.0)
        if known is None and (
            not (vendor or _may_have_signal(node))
            or node.name in stopped_by_us
            or (node.taint(TO_BE_DELETED) is not None and node.name not in evacuated)
        ):
            continue
        seen_at = min(known.seen_at, now) if known is not None else now
        signals = [(vendor, _BY_PROVIDER)] if vendor else []
        for name, read in SIGNALS:
            deadline = read(node, seen_at, group.spot)
            if deadline is not None:
                signals.append((deadline, name))
        by_vendor = bool(vendor)
        if not signals and known is not None and not _is_ready(node):
            signals.append((known.leaves_at, _EARLIER))
            by_vendor = known.by_vendor
        if signals:
            earliest, name = min(signals, key=lambda signal: signal[0])
            notice = InterruptionNotice(seen_at, earliest, by_vendor)
            announced[node.name] = Announcement(group.id, notice, name)
    return announced


def _leaves_at(groups: Iterable[NodeGroup], now: float) -> dict[str, float]:
    """Return when instances leave by their vendor's word: by their id, and by their node."""
    leaves_at = {}
    for group in groups:
        for instance in group.instances:
            if 0 < instance.leaves_at < now + _FARTHEST:
                leaves_at[instance.id] = leaves_at[instance.node] = instance.leaves_at
    leaves_at.pop("", None)
    return leaves_at


def _remembered_notices(
    memory: Mapping[str, GroupMemory], now: float
) -> dict[tuple[str, str], InterruptionNotice]:
    """Return (group, node) -> notice."""
    notices = {}
    for group_id, group_memory in memory.items():
        if group_memory.risk is None:
            continue
        for name, notice in group_memory.risk.notices.items():
            if now - max(notice.seen_at, notice.leaves_at) <= _OUTDATED:
                notices[group_id, name] = notice
    return notices


def shows_signal(taints: tuple[Taint, ...], conditions: tuple[Condition, ...]) -> bool:
    """Return whether a Node object with these taints and conditions shows a
    signal, of a group of any kind."""
    node = Node("", {}, {}, taints=taints, conditions=conditions)
    is_spot = True
    return any(read(node, 0.0, is_spot) is not None for _, read in SIGNALS)


def acted_on(
    announced: Mapping[str, Announcement], spot: Spot | None
) -> dict[str, InterruptionNotice]:
    """Return the notices of the nodes that are evacuated; none where the policy only reports."""
    if spot is None or spot.interruptions is not InterruptionAction.ACT:
        return {}
    return {name: announcement.notice for name, announcement in announced.items()}


def at_risk_reason(announcement: Announcement, now: float) -> Reason:
    """Return why a node is no place for pods."""
    return Reason.of(ReasonCode.NODE_AT_RISK, signal=announcement.signal, **announcement.until(now))


def reported(
    announced: Mapping[str, Announcement], spot: Spot | None, now: float
) -> Iterator[Reason]:
    """Return INTERRUPTION_REPORTED for nodes that are not evacuated because the policy does
    not say so. Without spec.spot nothing is remembered, so a deadline that counts from the
    first sight is not known."""
    if spot is not None and spot.interruptions is InterruptionAction.ACT:
        return
    for name, announcement in islice(sorted(announced.items()), MOST_REPORTED):
        dated = spot is not None or announcement.signal in {_BY_PROVIDER, f"condition {_EXPIRED}"}
        until = announcement.until(now) if dated else {}
        yield Reason.of(
            ReasonCode.INTERRUPTION_REPORTED, node=name, signal=announcement.signal, **until
        )


def vendor_upcoming(
    nodes: Collection[Node],
    announced: Mapping[str, Announcement],
    instances: int,
    now: float,
    wait: float = 120.0,
) -> int:
    """Return how many machines come in place of interrupted ones, in a group with
    NodeGroup.replaces_interrupted. instances: those that exist and are not nodes yet. wait: seconds
    after a notice for which the vendor's machine counts before it exists."""
    notices = [announced[node.name].notice for node in nodes if node.name in announced]
    recent = [notice.seen_at for notice in notices if now < notice.seen_at + wait]
    if not recent:
        return max(instances, 0)
    first = min(recent)
    joined = sum(node.created >= first for node in nodes)
    return max(instances, len(recent) - joined)


def _may_have_signal(node: Node) -> bool:
    """Return whether a look at the table is worth it: nearly no node has a signal."""
    for taint in node.taints:
        if taint.key in _TAINTS:
            return True
    for condition in node.conditions:  # noqa: SIM110 - a generator for each node costs twice as much
        if condition.message or condition.type == _EXPIRED:
            return True
    return False


def _is_ready(node: Node) -> bool:
    ready = node.condition("Ready")
    return ready is not None and ready.status == "True"


def _evacuated(operations: Iterable[Operation]) -> frozenset[str]:
    """Return the nodes that open operations evacuate: a signal that comes
    again there is a new notice."""
    specs = (operation.spec for operation in operations if operation.is_open)
    evacuations = (spec for spec in specs if spec.interrupted)
    return frozenset(target.node for spec in evacuations for target in spec.targets)


def _stopped_by_us(operations: Iterable[Operation]) -> frozenset[str]:
    """Return the nodes that open operations remove or restart for another reason."""
    kinds = {OperationKind.DELETE_NODES, OperationKind.RESTART_NODE}
    specs = (operation.spec for operation in operations if operation.is_open)
    stops = (spec for spec in specs if spec.kind in kinds)
    by_us = (spec for spec in stops if spec.reason != DisruptionReason.INTERRUPTED.value)
    return frozenset(target.node for spec in by_us for target in spec.targets)
