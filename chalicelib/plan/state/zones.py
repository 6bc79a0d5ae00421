"""Groups whose new nodes may be in one of several zones.

A group has several zones if its nodes, those that it had, or its vendor say so. Which of them a new
node comes in is known only once it has joined. Its template therefore has no zone, and a template
per zone beside it says what a node there would be. See docs/reference/scale-up.md "Groups in
several zones".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import GroupMemory, LearntTemplate
from chalicelib.model.node import Node
from chalicelib.plan.state.node_templates import Template
from chalicelib.plan.state.readiness import ZONE

OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
ZONE_KEYS = frozenset({ZONE, OLD_ZONE})
SEVERAL_ZONES = "outscaler.dev/several-zones"
"""On simulated nodes whose zone is unknown: their group. No real node has it, and
it means nothing to a pod."""
MOST_ZONES = 10
"""Zones of one group that are considered, the first by name."""
FORGOTTEN = 30 * 86_400.0
"""Seconds after which a zone is forgotten in which the group has had no node."""
_UNNAMED = ""  # a zone that the provider cannot name


def zone_label(node: Node) -> str:
    """Return the zone of a node by its labels, "" if it has none."""
    return node.labels.get(ZONE) or node.labels.get(OLD_ZONE, "")


def zones_of_group(
    group: NodeGroup,
    nodes: Iterable[Node],
    learnt: LearntTemplate | None,
    memory: GroupMemory,
    elsewhere: Iterable[str],
    now: float,
) -> tuple[str, ...]:
    """Return the zones in which a new node of a group may be, () if that is at most one. ""
    stands for further ones.

    elsewhere: the zones of the cluster's nodes, among which are those that a vendor does not name.
    A learnt template counts only where the vendor names no zone: a group that was moved while it
    was empty is in the new one.
    """
    stated = zone_label(group.template) if group.template is not None else ""
    known = {zone_label(node) for node in nodes} | set(group.zones) | {stated}
    if not stated and learnt is not None:
        known.add(zone_label(learnt.node))
    remembered = memory.attempts.zones if memory.attempts is not None else {}
    known |= {zone for zone, seen_at in remembered.items() if abs(now - seen_at) < FORGOTTEN}
    if _UNNAMED in group.zones:
        known |= set(elsewhere)
    named = sorted(known - {_UNNAMED})[:MOST_ZONES]
    zones = (*named, _UNNAMED) if _UNNAMED in group.zones else tuple(named)
    return zones if len(zones) > 1 else ()


class ZoneLabels:
    """Which labels say the zone of a node, by the cluster's nodes: every node that has
    such a label and a zone has the zone as its value. Of a label that was seen in one
    zone only, its name decides."""

    def __init__(self, nodes: Iterable[Node], of_drivers: frozenset[str] = frozenset()) -> None:
        """of_drivers: keys of CSI drivers that say the zone (plan/state/csi_topology.py)."""
        self.of_drivers = of_drivers
        self._values: dict[str, set[str]] = {}
        self._others: set[str] = set()
        for node in nodes:
            zone = zone_label(node)
            for key, value in node.labels.items() if zone else ():
                if value == zone:
                    self._values.setdefault(key, set()).add(zone)
                else:
                    self._others.add(key)

    def says_zone(self, key: str) -> bool:
        """Return whether the value of a label is the zone of its node."""
        if key in ZONE_KEYS or key in self.of_drivers:
            return True
        if key in self._others or key not in self._values:
            return False
        return (
            len(self._values[key]) > 1
            or key.startswith("topology.")
            or "zone" in key.rpartition("/")[2]
        )


def with_zones(
    template: Template, group: str, zones: Iterable[str], zone_labels: ZoneLabels
) -> Template:
    """Return the template of a group in several zones: without a zone, and with the
    node of each zone beside it."""
    labels = template.node.labels
    keys = set(filter(zone_labels.says_zone, labels))
    if template.model is None:
        keys |= ZONE_KEYS | zone_labels.of_drivers
    elif ZONE_KEYS.isdisjoint(keys):
        keys.add(ZONE)
    plain = {key: value for key, value in labels.items() if key not in keys}
    by_zone = {
        zone: msgspec.structs.replace(
            template.node,
            labels=plain if zone == _UNNAMED else {**plain, **dict.fromkeys(sorted(keys), zone)},
        )
        for zone in zones
    }
    unplaced = msgspec.structs.replace(template.node, labels={**plain, SEVERAL_ZONES: group})
    return msgspec.structs.replace(template, node=unplaced, in_zones=by_zone)


def zone_keys(in_zones: Mapping[str, Node]) -> frozenset[str]:
    """Return the labels in which the nodes of several zones differ."""
    nodes = list(in_zones.values())
    keys = {key for node in nodes for key in node.labels}
    return frozenset(key for key in keys if len({node.labels.get(key) for node in nodes}) > 1)


def remembered_zones(
    known: Mapping[str, float], nodes: Iterable[Node], zones: Iterable[str], now: float
) -> dict[str, float]:
    """Return zone -> when it was last seen, for a group in these zones. An instant is renewed once
    a day, because that is a write."""
    present = {zone_label(node) for node in nodes} - {_UNNAMED}
    seen = {zone: at for zone, at in known.items() if abs(now - at) < FORGOTTEN}
    for zone in sorted(present & set(zones)):
        if zone not in seen or abs(now - seen[zone]) > 86_400.0:
            seen[zone] = now
    return dict(sorted(seen.items()))
