"""Groups in several zones as candidates: the group itself, for pods that may be in any of its zones, and one variant
per zone, for pods whose place depends on the zone. What is bought of a variant is bought of its group, and is not
promised to come there.
"""

from __future__ import annotations

import msgspec

from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.purchase_attempts import ZoneRoom, room_in_zone


class ZoneVariant(msgspec.Struct, frozen=True):
    """A group in several zones, as if its new nodes came in this one. id: of the variant; group: the group's own;
    state: the variant as a group that may grow by what its zone's room allows."""

    id: str
    group: str
    zone: str
    state: NodeGroupState
    room: ZoneRoom


def zone_variants(state: ClusterState) -> dict[str, ZoneVariant]:
    """Return the variants of all groups by their ids. A group that grows from zero to its maximum at once has none."""
    variants = [
        _variant(group, zone, state)
        for _, group in sorted(state.groups.items())
        for zone in group.zones
        if zone and group.template is not None and not group.group.options.zero_or_max
    ]
    return {variant.id: variant for variant in variants}


def _variant(group: NodeGroupState, zone: str, state: ClusterState) -> ZoneVariant:
    assert group.template is not None
    # No id of a group contains a line break.
    name, room = f"{group.id}\n{zone}", room_in_zone(group, zone, state)
    most = min(max(room.for_zone, room.for_spread), max(0, group.group.max - group.target))
    template = msgspec.structs.replace(group.template, node=group.template.in_zones[zone], in_zones={})
    as_group = msgspec.structs.replace(
        group,
        group=msgspec.structs.replace(group.group, id=name, min=0, max=most, target=0, instances=()),
        template=template,
        nodes=(),
        target=0,
        upcoming=0,
        zones=(),
    )
    return ZoneVariant(name, group.id, zone, as_group, room)
