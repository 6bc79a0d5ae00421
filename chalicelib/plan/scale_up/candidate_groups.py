"""Selects the node groups that may scale up, and the pod classes that an empty new
node of each would take.

A group that cannot be read, has no template, is unhealthy, backed off or already scaling up is
skipped with its reason and does not affect other groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan import predicates
from chalicelib.plan.scale_up.estimator import NodeShape, shape_of
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.scale_up.zone_variants import ZoneVariant
from chalicelib.plan.simulation.pod_topology import NewNodeTopology
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.tables import LARGEST, Bools, Ints, NodeTable

_UNPROMISED = "a label that new nodes of the group may not have"


class Candidates:
    """groups: those that may scale up, sorted by id, then the variants of those in several zones;
    skipped: the other groups with the reason. shapes: the empty new node of each; table: these as
    rows. barred: row -> the rows that take its pods instead, where one of them fits. variants: by
    id."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        limiter: ResourceLimiter,
        variants: Mapping[str, ZoneVariant] | None = None,
    ) -> None:
        self._simulated = simulated
        self.variants = dict(variants or {})
        self.skipped: dict[str, Reason] = {}
        for group in state.groups.values():
            reason = why_skipped(group, limiter, state.lacking)
            if reason is not None:
                self.skipped[group.id] = reason
        self.groups = [
            group for _, group in sorted(state.groups.items()) if group.id not in self.skipped
        ]
        self.groups += [
            variant.state
            for variant in self.variants.values()
            if variant.group not in self.skipped and variant.state.group.max > 0
        ]
        self._arrange(self.groups)

    @classmethod
    def of(cls, groups: Sequence[NodeGroupState], simulated: SimulatedCluster) -> Candidates:
        """Return groups with a template as if they could scale up, to ask what they would take."""
        candidates = cls.__new__(cls)
        candidates._simulated = simulated
        candidates.skipped = {}
        candidates.groups = list(groups)
        candidates.variants = {}
        candidates._arrange(candidates.groups)
        return candidates

    def _arrange(self, groups: Sequence[NodeGroupState]) -> None:
        simulated = self._simulated
        templates = [group.template for group in groups if group.template is not None]
        self.shapes: dict[str, NodeShape] = {
            group.id: shape_of(template, simulated)
            for group, template in zip(groups, templates, strict=True)
        }
        self.table = NodeTable([template.node for template in templates], simulated.table.columns)
        one: Ints = np.ones(1, dtype=np.int64)
        for row, template in enumerate(templates):
            for daemon in template.daemons:
                self.table.put(daemon, np.array([row]), one, simulated.classes[daemon].ports)
                np.maximum(self.table.free[row], -LARGEST, out=self.table.free[row])
        self._in_zones = {row for row, template in enumerate(templates) if template.in_zones}
        unpromised = enumerate(group.group.options.unpromised_labels for group in groups)
        self._unpromised = {row: labels for row, labels in unpromised if labels}
        self._fits: dict[int, Bools] = {}
        self.barred: dict[int, Bools] = {}

    def fits(self, cls: int) -> Bools:
        """Return per group whether one pod of a class passes every predicate on an empty new node,
        regardless of other pods, and the group is not barred for it."""
        fits = self._fitting(cls)
        if not self.barred:
            return fits
        permitted = fits.copy()
        for row, others in self.barred.items():
            if fits[row] and (fits & others).any():
                permitted[row] = False
        return permitted

    def _fitting(self, cls: int) -> Bools:
        fits = self._fits.get(cls)
        if fits is None:
            self._simulated.check()
            if self._simulated.nowhere(cls):
                fits = np.zeros(len(self.groups), dtype=np.bool_)
            else:
                fits = self._fitting_groups(cls)
            self._fits[cls] = fits
        return fits

    def _fitting_groups(self, cls: int) -> Bools:
        """Return the groups for a class that some node may run."""
        pod = self._simulated.classes[cls]
        fits = self._simulated.zones.suits(cls, self.table) & self.table.fitting(cls)
        if pod.ports:
            for row in np.flatnonzero(fits):
                fits[row] = self.table.port_clash(int(row), pod.ports) is None
        for row, labels in self._unpromised.items():
            fits[row] &= not depends(pod, labels, self.table.nodes[row])
        if self.variants:
            for row in np.flatnonzero(fits):
                variant = self.variants.get(self.groups[row].id)
                fits[row] = variant is None or not self._fits_own(cls, fits, variant)
        return fits

    def _fits_own(self, cls: int, fits: Bools, variant: ZoneVariant) -> bool:
        """Return whether the group of a variant takes a class without it."""
        if not variant.storage:
            return self._simulated.zones.fits_anywhere(cls, variant.group)
        rows = (row for row, group in enumerate(self.groups) if group.id == variant.group)
        return any(bool(fits[row]) for row in rows)

    def confine(self, cls: int, groups: Collection[str]) -> None:
        """Restrict new nodes for a class of virtual pods to these groups."""
        is_inside = [group.id in groups for group in self.groups]
        self._fits[cls] = self._fitting(cls) & np.array(is_inside, dtype=np.bool_)

    def against(self, cls: int, row: int) -> tuple[Reason, ...]:
        """Return why an empty new node of the row-th group takes no pod of a class
        at present, () if it does."""
        simulated, pod = self._simulated, self._simulated.classes[cls]
        template = self.shapes[self.groups[row].id].template
        if template.in_zones:
            return simulated.nowhere(cls) or self._against_zones(cls, row)
        reasons = simulated.nowhere(cls) or predicates.reasons(cls, pod, self.table, row)
        if not reasons and depends(pod, self._unpromised.get(row, ()), self.table.nodes[row]):
            reasons = (Reason.of(ReasonCode.NODE_AFFINITY, term=_UNPROMISED),)
        if not reasons and simulated.volumes.concerns(cls):
            reasons = self._against_volumes(cls, row, template.volume_limits)
        needs = None if reasons else simulated.needs(cls)
        if needs is None:
            return reasons
        labels = self.table.nodes[row].labels
        topology = NewNodeTopology(simulated.rows, labels, (), template.daemons)
        return topology.reasons(needs)

    def refusals(self, cls: int) -> Iterator[tuple[int, tuple[Reason, ...], int]]:
        """Yield for each group, without variants, its row, what `against` returns, and how many
        things keep a pod of a class from an empty new node. Rules about other pods do not count.
        The predicates of all groups are evaluated at once: there may be thousands of groups."""
        simulated, pod = self._simulated, self._simulated.classes[cls]
        counts, first = predicates.failing(cls, pod, self.table)
        has_volumes = simulated.volumes.concerns(cls)
        if has_volumes:
            counts += ~simulated.volumes.mask(cls, self.table)
        asked = self._in_zones | self._unpromised.keys()
        is_plain = not has_volumes and simulated.needs(cls) is None
        fits = len(predicates.TABLE)
        rows = zip(self.groups, counts.tolist(), first.tolist(), strict=True)
        for row, (group, count, failing) in enumerate(rows):
            if group.id in self.variants:
                continue
            if row in asked or (failing == fits and not is_plain):
                yield row, self.against(cls, row), count
            elif failing == fits:
                yield row, (), 0
            else:
                _, _, why = predicates.TABLE[failing]
                yield row, why(cls, pod, self.table, row), count

    def all_against(self, cls: int, row: int) -> tuple[Reason, ...]:
        """Return everything for which an empty new node of the row-th group takes no pod of a
        class, and not only the first, as `against` does."""
        first = self.against(cls, row)
        template = self.shapes[self.groups[row].id].template
        if template.in_zones or self._simulated.nowhere(cls):
            return first
        pod = self._simulated.classes[cls]
        reasons = list(predicates.all_reasons(cls, pod, self.table, row))
        if self._simulated.volumes.concerns(cls):
            reasons += self._against_volumes(cls, row, template.volume_limits)
        return tuple(reasons) or first

    def _against_volumes(self, cls: int, row: int, limits: Mapping[str, int]) -> tuple[Reason, ...]:
        """Return why an empty new node does not get the volumes of a class. limits: by driver."""
        simulated = self._simulated
        claimed = simulated.claimed(cls)
        if claimed:
            return claimed
        # Also if an empty new node's drivers attach fewer volumes than one pod of the class brings.
        for driver, (own, shared) in simulated.volumes.attaches(cls).items():
            limit = limits.get(driver)
            if limit is not None and own + shared > limit:
                return (Reason.of(ReasonCode.VOLUME_COUNT, driver=driver, max=limit),)
        reasons = simulated.attached.unbound(cls, row, self.table)
        if reasons and reasons[0].code is ReasonCode.STORAGE_CAPACITY:
            return *reasons, *self._unknown_storage(cls, row)
        return reasons

    def _unknown_storage(self, cls: int, row: int) -> tuple[Reason, ...]:
        """Return why no node is bought to find out what it offers of the storage
        classes of a pod's claims."""
        storage_room = self.groups[row].storage_room
        for name in self._simulated.volumes.storage_classes(cls):
            refused = storage_room.get(name)
            if refused is not None:
                return (refused,)
        return ()

    def _against_zones(self, cls: int, row: int) -> tuple[Reason, ...]:
        """Return why an empty new node of a group in several zones takes no pod of a
        class, whichever zone it comes in; for a pod whose place depends on the zone,
        why none is bought for it."""
        simulated, group = self._simulated, self.groups[row].id
        zones = simulated.zones.fitting_zones(cls, group)
        if not zones:
            return simulated.zones.reasons(cls, group)
        reasons = predicates.room_reasons(cls, simulated.classes[cls], self.table, row)
        if reasons or simulated.zones.fits_anywhere(cls, group):
            return reasons
        for variant in self.variants.values():
            if variant.group == group and variant.zone in zones:
                return (variant.room.why,)
        return ()


def depends(pod: PodClass, labels: Collection[str], node: Node) -> bool:
    """Return whether a pod's fit on such a node depends on labels that are not guaranteed,
    because the pod requires or forbids them. A label that is missing from a template must not
    count as a met requirement."""
    if not labels:
        return False
    terms = pod.required_affinity
    if terms is not None:
        terms = tuple(
            term
            for term in terms
            if not any(requirement.key in labels for requirement in term.expressions)
        )
        if not terms:
            return True
    if pod.node_selector.keys() & set(labels):
        return True
    without_labels = msgspec.structs.replace(pod, required_affinity=terms)
    return not predicates.matches_node(without_labels, node.name, node.labels)


def relies(cls: int, labels: Collection[str], node: Node, simulated: SimulatedCluster) -> bool:
    """Return whether the place of a class on such a node depends on any of these labels: by its own
    terms, by its rules about other pods, or by its volumes."""
    present = node.labels.keys() & set(labels)
    if not present:
        return False
    needs = simulated.needs(cls)
    if depends(simulated.classes[cls], present, node):
        return True
    if needs is not None and not present.isdisjoint(needs.keys):
        return True
    if not simulated.volumes.concerns(cls):
        return False
    other_labels = {key: value for key, value in node.labels.items() if key not in present}
    without_labels = msgspec.structs.replace(node, labels=other_labels)
    table = NodeTable([without_labels], simulated.table.columns)
    return not simulated.volumes.mask(cls, table).all()


def why_skipped(
    group: NodeGroupState, limiter: ResourceLimiter, lacking: Collection[str]
) -> Reason | None:
    """Return why a group is skipped, None if it is not. The checks run in the order of Cluster
    Autoscaler. lacking: nodes without an announced device."""
    failed = group.memory.backoff
    error, until = "", 0.0
    if failed is not None:
        error = " ".join(filter(None, (failed.cls, failed.code, failed.message)))
        until = failed.until
    unhealthy: dict[str, str | int | float] = {"detail": f"{group.missing} nodes are missing"}
    if group.frozen is not None:
        unhealthy = group.frozen.params
    broken = min((node.name for node in group.nodes if node.name in lacking), default="")
    no_template = (
        f"{broken} lacks the device that is announced; check its driver" if broken else "none known"
    )
    checks: tuple[tuple[bool, ReasonCode, dict[str, str | int | float]], ...] = (
        (not group.healthy or group.frozen is not None, ReasonCode.GROUP_UNHEALTHY, unhealthy),
        (group.backed_off, ReasonCode.GROUP_BACKOFF, {"until": until, "error": error}),
        (
            group.growing,
            ReasonCode.GROUP_UNHEALTHY,
            {"detail": "an earlier increase is still being carried out"},
        ),
        (group.closing, ReasonCode.GROUP_UNHEALTHY, {"detail": "it is empty and is being deleted"}),
        (group.target >= group.group.max, ReasonCode.GROUP_MAX_SIZE, {"max": group.group.max}),
        (
            group.template is None,
            ReasonCode.NO_TEMPLATE,
            {"detail": group.group.template_error or no_template},
        ),
    )
    if group.growth_paused is not None:
        return group.growth_paused
    if group.unreadable is not None:
        return group.unreadable
    for fails, code, params in checks:
        if fails:
            return Reason(code, params)
    allowance = limiter.allowance(group, 0)
    return allowance.stop if allowance.nodes <= 0 else None
