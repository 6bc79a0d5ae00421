"""Who is sick: the cluster, a zone, a node group (state.md §4; demands.md 9).

Upstream knows one answer for the whole cluster, and counts nodes in it that it does not manage. So a fault in one zone,
or in machines that are none of its business, stops everything. Here sickness is as narrow as what is seen of it: only
nodes of known groups count, a zone is judged by its own nodes, and a group by its own; the whole cluster only holds
still when the whole of it is sick. One pair of thresholds serves all of them, and both comparisons are strict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chalicelib.model.node import Node
from chalicelib.model.plan import Health
from chalicelib.model.policy import Options
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.state.readiness import Bucket, only_lacks_device

ZONE = "topology.kubernetes.io/zone"


def exceeds(bad: int, known: int, options: Options) -> bool:
    """Whether so many bad ones of so many are too many: more than ok-total-unready-count and more than
    max-total-unready-percentage of them (state.md §4)."""
    return bad > options.ok_total_unready_count and bad > options.max_total_unready_percentage / 100 * known


def health_of(
    nodes: Sequence[Node], managed: Mapping[str, str], buckets: Mapping[str, Bucket], options: Options
) -> Health:
    """The cluster's health and its counts of nodes. managed: node -> group; others are counted and judge nothing.
    What groups know (instances, upcoming nodes) is left at 0 for the caller."""
    counts = {kind: sum(bucket is kind for bucket in buckets.values()) for kind in Bucket}
    unready = [node for node in nodes if buckets[node.name] is Bucket.UNREADY]
    sick = exceeds(sum(node.name in managed for node in unready), len(managed), options)
    offers = [node.capacity or node.allocatable for node in nodes]
    return Health(
        healthy=not sick,
        registered=len(buckets),
        ready=counts[Bucket.READY],
        unready=len(unready),
        not_started=counts[Bucket.NOT_STARTED],
        being_deleted=counts[Bucket.DELETED],
        suspended=counts[Bucket.SUSPENDED],
        resource_unready=sum(only_lacks_device(node, options) for node in unready),
        cpu=sum(offer.get(CPU, 0) for offer in offers),
        memory=sum(offer.get(MEMORY, 0) for offer in offers),
    )


def sick_zones(
    nodes: Iterable[Node], managed: Mapping[str, str], buckets: Mapping[str, Bucket], options: Options
) -> dict[str, str]:
    """Zone -> what is wrong there, of the zones in which too many managed nodes are unready."""
    known: dict[str, list[bool]] = {}
    for node in nodes:
        zone = node.labels.get(ZONE, "")
        if zone and node.name in managed:
            known.setdefault(zone, []).append(buckets[node.name] is Bucket.UNREADY)
    return {
        zone: f"{sum(unready)} of {len(unready)} nodes in zone {zone} are unready"
        for zone, unready in sorted(known.items())
        if exceeds(sum(unready), len(unready), options)
    }


def zone_of(nodes: Iterable[Node], template: Node | None) -> str:
    """The one zone that a group lies in with all its nodes and its template; empty where it is several or not known.
    A template that names no zone, as a provider's may, says nothing."""
    zones = {node.labels.get(ZONE, "") for node in nodes}
    if template is not None and ZONE in template.labels:
        zones.add(template.labels[ZONE])
    return zones.pop() if len(zones) == 1 else ""


def frozen(counts: Mapping[Bucket, int], missing: int, zone: str, options: Options) -> Reason | None:
    """Why nothing is changed in a group, None if it is well. counts: its nodes by bucket; zone: what is wrong in the
    zone that it lies in.

    Two ways of being sick by itself: nodes that are there and unready, and nodes that ought to be there and are not. Of
    a group without any node the second alone is asked, and one that is missing is enough.
    """
    known = sum(counts[each] for each in (Bucket.READY, Bucket.UNREADY, Bucket.NOT_STARTED, Bucket.SUSPENDED))
    nodes, unready = sum(counts.values()), counts[Bucket.UNREADY]
    checks = (
        (exceeds(unready, known, options), f"{unready} of {known} nodes are unready"),
        (exceeds(missing, known, options) if nodes else missing > 0, f"{missing} nodes are missing"),
        (bool(zone), zone),
    )
    return next((Reason.of(ReasonCode.GROUP_FROZEN, detail=detail) for fails, detail in checks if fails), None)
