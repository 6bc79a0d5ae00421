"""Groups that are below their minimum are raised to it, if the user wants that (scale-up.md §9).

Nothing pending is needed for it: a minimum raised later, or a group made smaller by hand, would else stay as it is.
Upstream compares maxNodesTotal with the size of the *group* here, so that a full cluster grows on; ours compares it
with the size of the cluster, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.plan.limits import Ledger, may_grow
from chalicelib.plan.world import World


def below_minimum(world: World, ledger: Ledger, grown: Mapping[str, int]) -> list[tuple[str, int]]:
    """group -> the nodes it lacks, by id, as far as the cluster's limits allow.

    Empty without enforceNodeGroupMinSize, and while the whole cluster is unhealthy. A zero-or-max group gets all its
    nodes or none. Groups that may not be grown just now (limits.may_grow) are left for a later pass. grown: what the
    pass already gave each group. The ledger stays as it is: taking is the caller's.
    """
    if not world.options.enforce_node_group_min_size or not world.health.healthy:
        return []
    spare = ledger.copy()
    raised = []
    for name, facts in sorted(world.groups.items()):
        size = facts.target + grown.get(name, 0)
        lacks = min(facts.group.min, facts.group.max) - size
        if lacks <= 0 or not may_grow(facts) or facts.template is None:
            continue
        room = spare.room(facts.template.node)
        if facts.group.options.zero_or_max:
            lacks = facts.group.max - size
            room = room if room >= lacks else 0
        if (count := min(lacks, room)) > 0:
            spare.take(facts.template.node, count)
            raised.append((name, count))
    return raised
