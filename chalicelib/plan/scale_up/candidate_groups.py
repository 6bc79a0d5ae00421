"""Selects the node groups that may scale up, and the pod classes that an empty new node of each would take.

A group that cannot be read, has no template, is unhealthy, backed off or already scaling up is skipped with its reason
and does not affect other groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan import predicates
from chalicelib.plan.predicates import matches_node
from chalicelib.plan.scale_up.estimator import NodeShape, shape_of
from chalicelib.plan.scale_up.limits import ResourceLimiter
from chalicelib.plan.simulation.pod_topology import NewNodeTopology
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.tables import LARGEST, Bools, Ints, NodeTable


class Candidates:
    """able: groups that may scale up, sorted by id; skipped: the other groups with the reason."""

    def __init__(self, state: ClusterState, simulated: SimulatedCluster, limiter: ResourceLimiter) -> None:
        self._simulated = simulated
        self.skipped = {
            facts.id: reason
            for facts in state.groups.values()
            if (reason := _skip(facts, limiter, state.lacking)) is not None
        }
        self.able = [facts for _, facts in sorted(state.groups.items()) if facts.id not in self.skipped]
        self.shapes: dict[str, NodeShape] = {
            facts.id: shape_of(facts.template, simulated) for facts in self.able if facts.template is not None
        }
        self.table = _template_table(self.able, simulated)
        self._unpromised = {
            row: labels for row, facts in enumerate(self.able) if (labels := facts.group.options.unpromised_labels)
        }
        self._fits: dict[int, Bools] = {}

    def fits(self, cls: int) -> Bools:
        """Return per able group whether one pod of a class passes every predicate on an empty new node, regardless of
        other pods."""
        found = self._fits.get(cls)
        if found is None:
            simulated, pod = self._simulated, self._simulated.classes[cls]
            simulated.check()
            if simulated.nowhere(cls):
                found = np.zeros(len(self.able), dtype=np.bool_)
            else:
                found = predicates.static_mask(cls, pod, self.table) & self.table.fitting(cls)
                for at in np.flatnonzero(found) if pod.ports else ():
                    found[at] = self.table.port_clash(int(at), pod.ports) is None
                for row, labels in self._unpromised.items():
                    found[row] &= not depends(pod, labels, self.table.nodes[row])
                if simulated.volumes.concerns(cls):
                    found = found & simulated.volumes.mask(cls, self.table)
            self._fits[cls] = found
        return found

    def confine(self, cls: int, groups: Collection[str]) -> None:
        """Restrict new nodes for a class of virtual pods to these groups."""
        inside = np.fromiter((facts.id in groups for facts in self.able), dtype=np.bool_, count=len(self.able))
        self._fits[cls] = self.fits(cls) & inside

    def against(self, cls: int, row: int) -> tuple[Reason, ...]:
        """Return why an empty new node of the row-th able group takes no pod of a class at present, () if it does."""
        simulated = self._simulated
        found = simulated.nowhere(cls) or predicates.reasons(cls, simulated.classes[cls], self.table, row)
        if not found and depends(simulated.classes[cls], self._unpromised.get(row, ()), self.table.nodes[row]):
            found = (Reason.of(ReasonCode.NODE_AFFINITY, term=_UNPROMISED),)
        if not found and simulated.volumes.concerns(cls):
            found = simulated.claimed(cls) or self._full(cls, row) or simulated.attached.unbound(cls, row, self.table)
        needs = None if found else simulated.needs(cls)
        if found or needs is None:
            return found
        daemons = self.shapes[self.able[row].id].template.daemons
        return NewNodeTopology(simulated.rows, self.table.nodes[row].labels, (), daemons).reasons(cls, needs)

    def _full(self, cls: int, row: int) -> tuple[Reason, ...]:
        """Return a reason if an empty new node's drivers attach fewer volumes than one pod of a class brings."""
        limits = self.shapes[self.able[row].id].template.volume_limits
        for driver, (each, shared) in self._simulated.volumes.attaches(cls).items():
            if each + shared > limits.get(driver, each + shared):
                return (Reason.of(ReasonCode.VOLUME_COUNT, driver=driver, max=limits[driver]),)
        return ()


_UNPROMISED = "a label that new nodes of the group may not have"


def depends(pod: PodClass, labels: Collection[str], node: Node) -> bool:
    """Return whether a pod's fit on such a node depends on labels that are not guaranteed, because the pod requires or
    forbids them. A label that is missing from a template must not count as a met requirement."""
    if not labels:
        return False
    terms = pod.required_affinity
    free = (
        None
        if terms is None
        else tuple(term for term in terms if not any(each.key in labels for each in term.expressions))
    )
    if terms is not None and not free:
        return True
    plain = msgspec.structs.replace(pod, required_affinity=free)
    return bool(pod.node_selector.keys() & set(labels)) or not matches_node(plain, node.name, node.labels)


def _template_table(able: Sequence[NodeGroupState], simulated: SimulatedCluster) -> NodeTable:
    """Return a table with one row per group: an empty new node with its DaemonSet pods."""
    table = NodeTable([facts.template.node for facts in able if facts.template is not None], simulated.table.columns)
    one: Ints = np.ones(1, dtype=np.int64)
    for row, facts in enumerate(able):
        for cls in facts.template.daemons if facts.template else ():
            table.put(cls, np.array([row]), one, simulated.classes[cls].ports)
            np.maximum(table.free[row], -LARGEST, out=table.free[row])
    return table


def _skip(group: NodeGroupState, limiter: ResourceLimiter, lacking: Collection[str]) -> Reason | None:
    """Return why a group is skipped, None if it is not. The checks run in the order of Cluster Autoscaler."""
    mine = group.memory.backoff
    checks: tuple[tuple[bool, Reason], ...] = (
        (bool(group.group.error), Reason.of(ReasonCode.GROUP_UNREADABLE, detail=group.group.error)),
        (
            not group.healthy or group.frozen is not None,
            Reason(
                ReasonCode.GROUP_UNHEALTHY,
                group.frozen.params if group.frozen is not None else {"detail": f"{group.missing} nodes are missing"},
            ),
        ),
        (
            group.backed_off,
            Reason.of(
                ReasonCode.GROUP_BACKOFF,
                until=mine.until if mine else 0.0,
                error=_error(mine.cls, mine.code, mine.message) if mine else "",
            ),
        ),
        (group.growing, Reason.of(ReasonCode.GROUP_UNHEALTHY, detail="an earlier increase is still being carried out")),
        (group.target >= group.group.max, Reason.of(ReasonCode.GROUP_MAX_SIZE, max=group.group.max)),
        (group.template is None, Reason.of(ReasonCode.NO_TEMPLATE, detail=_why_no_template(group, lacking))),
    )
    failed = group.growth_paused or next((reason for fails, reason in checks if fails), None)
    if failed is not None:
        return failed
    allowance = limiter.allowance(group, 0)
    return allowance.stop if allowance.nodes <= 0 else None


def _why_no_template(group: NodeGroupState, lacking: Collection[str]) -> str:
    broken = min((node.name for node in group.nodes if node.name in lacking), default="")
    rows = (
        group.group.template_error,
        broken and f"{broken} lacks the device that is announced; check its driver",
        "none known",
    )
    return next(text for text in rows if text)


def _error(cls: str, code: str, message: str) -> str:
    return " ".join(part for part in (cls, code, message) if part)
