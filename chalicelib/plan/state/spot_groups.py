"""Which groups are spot, by the policy, their provider or labels. See
docs/reference/spot.md "Spot groups".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import LearntTemplate
from chalicelib.model.node import Node
from chalicelib.policy.settings.spot import Spot

_SPOT_LABELS = (
    ("node.alibabacloud.com/spot-strategy", frozenset({"SpotWithPriceLimit", "SpotAsPriceGo"})),
    ("cce.io/is-spot", frozenset({"true"})),
    ("karpenter.sh/capacity-type", frozenset({"spot"})),
)
_INTERRUPTIBLE = "cluster.x-k8s.io/interruptible"


def is_spot(node: Node, group: NodeGroup | None) -> bool:
    """Return whether the vendor may take a node back, by its group or its labels."""
    if group is not None and group.spot:
        return True
    if _INTERRUPTIBLE in node.labels:
        return True
    return any(node.labels.get(label) in values for label, values in _SPOT_LABELS)


def names_of(group: NodeGroup) -> set[str]:
    """Return the names, beside ids, by which users know a group or its pool."""
    pool = group.pool.name if group.pool is not None else ""
    return {pool, group.name, group.id.rpartition("/")[2], *group.aliases} - {""}


def marked_spot(
    groups: Sequence[NodeGroup],
    members: Mapping[str, Sequence[Node]],
    learnt: Mapping[str, LearntTemplate],
    spot: Spot | None,
) -> tuple[NodeGroup, ...]:
    """Return the groups with NodeGroup.spot as the policy wants it: for those that it names, else
    for those that their provider, or a label of every node, calls spot. One node's own label says
    nothing of the others. Unchanged without spec.spot. members: group id -> its nodes; learnt:
    group id -> the template of earlier ones, whose labels count while a group has neither nodes nor
    a template of its own."""
    if spot is None:
        return tuple(groups)
    chosen: set[str] = set()
    for name in spot.groups:
        chosen.update(_named(name, groups))

    def is_marked(group: NodeGroup) -> bool:
        if spot.groups:
            return group.id in chosen
        template, known = group.template, learnt.get(group.id)
        if template is None and known is not None:
            template = known.node
        nodes = members.get(group.id) or ([template] if template is not None else [])
        is_labelled = bool(nodes) and all(is_spot(node, None) for node in nodes)
        return group.spot or is_labelled

    marked = []
    for group in groups:
        spot_now = is_marked(group)
        is_same = group.spot == spot_now
        marked.append(group if is_same else msgspec.structs.replace(group, spot=spot_now))
    return tuple(marked)


def _named(name: str, groups: Sequence[NodeGroup]) -> list[str]:
    """Return the ids of the groups with an id or name, or with a pool of it; none if
    several pools have the name."""
    matching = [group for group in groups if name in {group.id, vendor_pool(group) or group.id}]
    if not matching:
        matching = [group for group in groups if name in names_of(group)]
    pools = {vendor_pool(group) or group.id for group in matching}
    if len(pools) != 1:
        return []
    return [group.id for group in matching]


def vendor_pool(group: NodeGroup) -> str:
    """Return the id of the vendor's pool that a group belongs to, "" if it has none."""
    return group.pool.id if group.pool is not None else ""
