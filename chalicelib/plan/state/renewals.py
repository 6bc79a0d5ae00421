"""Renewals that do not help: a group whose new nodes are no better than the old
ones rests for that reason.

    a node is renewed ► its successor is judged ─► as it should be: nothing rests
                                                └► outdated, old or sick as well ► rest,
                                                each time longer ► once more

A vendor whose two answers never agree, or a pod that makes every node sick on which it runs, would
otherwise cost a node every few minutes. See docs/reference/node-lifecycle.md "Rest of a group".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import GroupRenewal
from chalicelib.model.node import Node
from chalicelib.model.pod import Pod
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.readiness import Bucket

HOUR, DAY = 3600.0, 86_400.0
FIRST_REST = {
    DisruptionReason.REPAIR: HOUR,
    DisruptionReason.EXPIRED: 6 * HOUR,
    DisruptionReason.DRIFTED: 6 * HOUR,
}
LONGEST_REST = DAY
SUCCESSOR_FOR = DAY
"""Seconds for which a renewal is remembered: a node that is as bad within them
shows that it did not help."""
FORGOTTEN_AFTER = DAY
"""Seconds after a rest after which the next one is a first one again."""
MOST_EARLY = 3
"""Rests in a row that may end before their time, because the vendor says something else: an
answer may never settle."""
MOST_NAMES, MOST_ANSWERS, LONGEST_ANSWER = 50, 20, 200
MOST_SHOWN = 3
"""Owners of pods that a reason names."""
SLACK = 120.0
"""Seconds after its Ready in which a pass has seen a new node at the latest."""
_LITTLE_WORDS = frozenset({"a", "an", "no", "the", "new"})


class JudgedNode(msgspec.Struct, frozen=True):
    """A node that should go, as far as its successors are concerned. since: when it became due, or
    when the pass first saw in what it is outdated. detail: in what it is outdated, or by which
    condition it is sick. by_vendor: only its vendor says that it is too old."""

    node: Node
    why: DisruptionReason
    since: float
    detail: str = ""
    by_vendor: bool = False


class GroupVerdicts(msgspec.Struct, frozen=True):
    """renewals: the group's next memory, by reason. held: why no node of the group
    is renewed now, by reason."""

    renewals: dict[str, GroupRenewal]
    held: dict[DisruptionReason, Reason]

    @property
    def rests(self) -> list[Reason]:
        """What rests, of `held`; the rest is to be confirmed."""
        return [why for why in self.held.values() if why.code is ReasonCode.RENEWAL_RESTS]


def judge_successors(
    group: NodeGroupState, due: Sequence[JudgedNode], state: ClusterState
) -> GroupVerdicts:
    """Return which reasons rest in a group. due: its nodes that should go."""
    renewals: dict[str, GroupRenewal] = {}
    held: dict[DisruptionReason, Reason] = {}
    for why in FIRST_REST:
        renewal = group.memory.renewals.get(why.value)
        if renewal is None:
            continue
        of_reason = [judged for judged in due if judged.why is why]
        remembered = _not_from_the_future(renewal, state.now)
        renewal, reason = _Judge(group, why, of_reason, state).judge(remembered)
        if reason is not None:
            held[why] = reason
        if not _is_forgotten(renewal, state.now):
            renewals[why.value] = renewal
    return GroupVerdicts(renewals, held)


def rest_reason(group: str, reason: DisruptionReason, renewal: GroupRenewal) -> Reason:
    """Return why a group's nodes are not renewed for a reason."""
    return Reason.of(
        ReasonCode.RENEWAL_RESTS,
        group=group,
        renewed=reason.value,
        until=renewal.until,
        node=renewal.node,
        detail=renewal.detail,
    )


class _Judge:
    """The successors of one group for one reason. due: its nodes that should go for it."""

    def __init__(
        self,
        group: NodeGroupState,
        reason: DisruptionReason,
        due: Sequence[JudgedNode],
        state: ClusterState,
    ) -> None:
        self.group = group
        self.why = reason
        self.due = due
        self.state = state
        self.now = state.now
        is_repair = reason is DisruptionReason.REPAIR  # its rule has lasted for long enough already
        self.needs = 0.0 if is_repair else 2 * state.policy.consolidation.confirm_after

    def judge(self, renewal: GroupRenewal) -> tuple[GroupRenewal, Reason | None]:
        """Return the next memory, and what holds the renewals."""
        if renewal.until > self.now and self._has_changed(renewal):
            renewal = msgspec.structs.replace(renewal, until=self.now, early=renewal.early + 1)
        if renewal.until > self.now:
            return renewal, rest_reason(self.group.id, self.why, renewal)
        bad = []
        for judged in self.due:
            bad_since = self._bad_since(judged, renewal)
            if bad_since is not None:
                bad.append((bad_since, judged))
        if not bad:
            if self._has_helped(renewal):
                renewal = msgspec.structs.replace(renewal, times=0, early=0)
            return renewal, None
        since, judged = min(bad, key=lambda entry: (entry[0], entry[1].node.name))
        if self.now - since < self.needs:
            return renewal, Reason.of(ReasonCode.NOT_CONFIRMED, since=since, needs=self.needs)
        renewal = self._rest(renewal, judged)
        return renewal, rest_reason(self.group.id, self.why, renewal)

    def _rest(self, renewal: GroupRenewal, judged: JudgedNode) -> GroupRenewal:
        length = min(LONGEST_REST, FIRST_REST[self.why] * 2.0 ** min(renewal.times, 10))
        answers = tuple(sorted({answer_of(item.detail) for item in self.due}))[:MOST_ANSWERS]
        return GroupRenewal(
            until=self.now + length,
            times=renewal.times + 1,
            early=renewal.early,
            node=judged.node.name,
            detail=self._detail(judged, renewal)[:LONGEST_ANSWER],
            answers=answers if self.why is DisruptionReason.DRIFTED else (),
            template=template_digest(self.group.group),
        )

    def _bad_since(self, judged: JudgedNode, renewal: GroupRenewal) -> float | None:
        """Return since when a successor is as bad as what it replaced; None: it
        is no successor, or good."""
        if self.why is DisruptionReason.REPAIR:
            if judged.node.name in renewal.nodes or self._common_owners(judged.node, renewal):
                return judged.since
            return None
        ready_at = self._ready_at(judged.node)
        if not renewal.began or judged.node.created < renewal.began or ready_at is None:
            return None
        since = max(judged.since, ready_at) if self.why is DisruptionReason.DRIFTED else ready_at
        if self.why is DisruptionReason.EXPIRED:
            return since if judged.by_vendor else None
        if answer_of(judged.detail) in renewal.answers:
            return since
        from_the_start = judged.since <= ready_at + self.needs + SLACK
        fields = fields_of(judged.detail)
        same_field = any(not fields.isdisjoint(fields_of(answer)) for answer in renewal.answers)
        return since if from_the_start and same_field else None

    def _ready_at(self, node: Node) -> float | None:
        """Return since when a node is ready, None if it is not, or lacks something so far."""
        is_ready = self.state.buckets.get(node.name) is Bucket.READY
        if not is_ready or node.name in self.state.unfinished:
            return None
        ready = node.condition("Ready")
        changed = ready.changed if ready is not None else 0.0
        return changed if 0.0 < changed <= self.now else node.created

    def _has_helped(self, renewal: GroupRenewal) -> bool:
        """Return whether a new node is as it should be, for long enough to be sure."""
        if self.why is DisruptionReason.REPAIR or not renewal.began:
            return False
        if not renewal.times and not renewal.early:
            return False
        bad = {judged.node.name for judged in self.due}
        for node in self.group.nodes:
            if node.created < renewal.began or node.name in bad:
                continue
            ready_at = self._ready_at(node)
            if ready_at is not None and self.now - ready_at >= self.needs + SLACK:
                return True
        return False

    def _has_changed(self, renewal: GroupRenewal) -> bool:
        """Return whether the vendor says something else than when the rest began."""
        if self.why is DisruptionReason.REPAIR or renewal.early >= MOST_EARLY:
            return False
        if template_digest(self.group.group) != renewal.template:
            return True
        bad = {judged.node.name for judged in self.due}
        named = any(node.name == renewal.node for node in self.group.nodes)
        if named and renewal.node not in bad and renewal.node not in self.state.leaving:
            return True
        if self.why is not DisruptionReason.DRIFTED or len(renewal.answers) >= MOST_ANSWERS:
            return False
        return any(answer_of(judged.detail) not in renewal.answers for judged in self.due)

    def _detail(self, judged: JudgedNode, renewal: GroupRenewal) -> str:
        if self.why is DisruptionReason.DRIFTED:
            return f"differs in the same: {answer_of(judged.detail)}"
        if self.why is DisruptionReason.EXPIRED:
            return "is older than maxNodeAge by its vendor's word"
        owners = self._common_owners(judged.node, renewal)
        ran = f"; pods of {', '.join(owners[:MOST_SHOWN])} ran on both" if owners else ""
        return f"fell sick as well ({judged.detail}){ran}"

    def _common_owners(self, node: Node, renewal: GroupRenewal) -> list[str]:
        """Return the owners of pods that came to this node after a sick node
        with such pods was repaired."""
        if not renewal.owners:
            return []
        owners: set[str] = set()
        for pod in self.state.occupancy.on(node.name):
            owner = owner_of(pod, self.state)
            if owner in renewal.owners and pod.created >= renewal.owners[owner]:
                owners.add(owner)
        return sorted(owners)


# -- what a pass has renewed


def after_renewal(
    renewal: GroupRenewal,
    reason: DisruptionReason,
    nodes: Iterable[str],
    details: Iterable[str],
    state: ClusterState,
) -> GroupRenewal:
    """Return the memory of a group after nodes of it, or for it, were renewed. details: what the
    vendor says of its outdated nodes."""
    now = state.now
    if reason is DisruptionReason.REPAIR:
        owners = dict(renewal.owners)
        for name in nodes:
            owners.update((owner_of(pod, state), now) for pod in state.occupancy.on(name))
        owners.pop("", None)
        return msgspec.structs.replace(renewal, began=now, owners=_newest(owners, now))
    answers = tuple(sorted({answer_of(detail) for detail in details}))[:MOST_ANSWERS]
    is_recent = renewal.began and now - renewal.began < SUCCESSOR_FOR
    if is_recent and set(answers) <= set(renewal.answers):
        return renewal
    return msgspec.structs.replace(renewal, began=now, answers=answers)


def with_successors(renewal: GroupRenewal, names: Iterable[str], now: float) -> GroupRenewal:
    """Return the memory of a group with nodes that were bought for sick ones."""
    nodes = _newest({**dict.fromkeys(names, now), **renewal.nodes}, now)
    if nodes == renewal.nodes:
        return renewal
    return msgspec.structs.replace(renewal, nodes=nodes)


def _newest(instants: Mapping[str, float], now: float) -> dict[str, float]:
    recent = [(name, at) for name, at in instants.items() if now - at < SUCCESSOR_FOR]
    recent.sort(key=lambda entry: (-entry[1], entry[0]))
    return dict(sorted(recent[:MOST_NAMES]))


def _is_forgotten(renewal: GroupRenewal, now: float) -> bool:
    latest = max([renewal.began, *renewal.nodes.values(), *renewal.owners.values()])
    return now >= renewal.until + FORGOTTEN_AFTER and now >= latest + SUCCESSOR_FOR


def _not_from_the_future(renewal: GroupRenewal, now: float) -> GroupRenewal:
    """Return what is remembered without instants that a wrong clock wrote."""
    if renewal.began <= now and renewal.until <= now + LONGEST_REST:
        return renewal
    return msgspec.structs.replace(
        renewal, began=min(renewal.began, now), until=min(renewal.until, now + LONGEST_REST)
    )


# -- what is compared


def owner_of(pod: Pod, state: ClusterState) -> str:
    """Return namespace/kind/name of the owner of a pod that moves to
    another node; "" for others."""
    pod_class = state.snapshot.classes[pod.cls]
    owner = pod_class.owner
    if owner is None or pod_class.mirror or pod_class.is_daemonset:
        return ""
    return f"{pod.namespace}/{owner.kind}/{owner.name}"


def answer_of(detail: str) -> str:
    """Return what a vendor says of an outdated node, short enough to be remembered."""
    return detail[:LONGEST_ANSWER]


def fields_of(answer: str) -> frozenset[str]:
    """Return the first words of the parts of what a vendor says: they name the fields,
    and the values come later."""
    parts = answer.replace(";", ",").split(",")
    words = ([word for word in part.lower().split() if word not in _LITTLE_WORDS] for part in parts)
    return frozenset(of_part[0] for of_part in words if of_part)


def template_digest(group: NodeGroup) -> str:
    """Return a digest of the vendor's template, "" where it states none."""
    template = group.template
    if template is None:
        return ""
    content = [
        template.labels,
        [str(taint) for taint in template.taints],
        template.capacity,
        template.allocatable,
    ]
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16]
