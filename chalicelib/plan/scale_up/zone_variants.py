"""Groups in several zones as candidates: the group itself, for pods that may be in any of its
zones, and one variant per zone, for pods whose place depends on the zone. What is bought of a
variant is bought of its group, and is not promised to come there.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.local_storage import STORAGE_ASSUMED
from chalicelib.plan.state.purchase_attempts import ZoneRoom, room_in_zone


class ZoneVariant(msgspec.Struct, frozen=True):
    """A group in several zones, as if its new nodes came in this one; or a group as if a new node
    offered enough of a storage class. id: of the variant; group: the group's own; state: the
    variant as a group that may grow by what its room allows."""

    id: str
    group: str
    zone: str
    state: NodeGroupState
    room: ZoneRoom
    storage: str = ""


def zone_variants(state: ClusterState) -> dict[str, ZoneVariant]:
    """Return the variants of all groups by their ids. A group that grows from zero to its
    maximum at once has none."""
    groups = [
        group
        for _, group in sorted(state.groups.items())
        if group.template is not None and not group.group.options.zero_or_max
    ]
    variants: list[ZoneVariant] = []
    for group in groups:
        zones = filter(None, group.zones)
        variants += [_variant(group, zone, state) for zone in zones]
    for group in groups:
        for storage_class, refused in group.storage_room.items():
            if refused is None:
                variants.append(_storage_variant(group, storage_class))
    return {variant.id: variant for variant in variants}


def _variant(group: NodeGroupState, zone: str, state: ClusterState) -> ZoneVariant:
    assert group.template is not None
    name = f"{group.id}\n{zone}"  # no id of a group contains a line break
    room = room_in_zone(group, zone, state)
    room_in_group = max(0, group.group.max - group.target)
    most = min(max(room.for_zone, room.for_spread), room_in_group)
    as_group = _as_group(group, name, most, group.template.in_zones[zone])
    return ZoneVariant(name, group.id, zone, as_group, room)


def _storage_variant(group: NodeGroupState, storage_class: str) -> ZoneVariant:
    assert group.template is not None
    name = f"{group.id}\n\n{storage_class}"
    node = group.template.node
    labels = {**node.labels, STORAGE_ASSUMED + storage_class: group.id}
    node = msgspec.structs.replace(node, labels=labels)
    room_in_group = max(0, group.group.max - group.target)
    as_group = _as_group(group, name, min(1, room_in_group), node)
    why = Reason.of(
        ReasonCode.STORAGE_NOT_KNOWN,
        group=group.id,
        storage=storage_class,
        detail="one node at a time",
    )
    return ZoneVariant(name, group.id, "", as_group, ZoneRoom(1, 0, why), storage_class)


def _as_group(group: NodeGroupState, name: str, most: int, node: Node) -> NodeGroupState:
    """Return a variant as a group of its own with such nodes, which shares
    the maximum of its group."""
    assert group.template is not None
    variant = msgspec.structs.replace(group.group, id=name, min=0, max=most, target=0, instances=())
    template = msgspec.structs.replace(group.template, node=node, in_zones={})
    return msgspec.structs.replace(
        group,
        group=variant,
        template=template,
        nodes=(),
        target=0,
        upcoming=0,
        zones=(),
    )
