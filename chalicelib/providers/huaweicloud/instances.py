"""Converts the nodes of a scale group to instances.

If a group cannot get its nodes, its size stays larger than its number of nodes. Placeholders stand for the missing
nodes, so the planner sees the failure in the same pass, backs the group off, and lowers the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.node import Node
from chalicelib.providers.errors import InstallFailed
from chalicelib.providers.huaweicloud.instance_states import ERROR, NODE_STATES, failure, is_leaving
from chalicelib.providers.huaweicloud.models import CceNode, NodePool, ScaleGroup
from chalicelib.providers.huaweicloud.provider_ids import CceGroupNames, group_id, placeholder
from chalicelib.providers.huaweicloud.scale_in_protection import is_marked, why_all_held, why_held

MOST_PLACEHOLDERS = 1000
_BROKEN = InstanceError(InstallFailed.__name__, "node-error", "the node is in the phase Error at CCE")


def classify(
    pool: NodePool, group: ScaleGroup, machines: Sequence[CceNode], names: CceGroupNames[Node]
) -> tuple[Instance, ...]:
    """Return all nodes of the group by id, and a placeholder for each that CCE reports as failed. machines: the
    group's."""
    known = [is_marked(each.annotations) or _is_marked(names.node_of(each.id)) for each in machines]
    held = why_all_held(f"{pool.name}/{group.name}", group.held, known)
    return (
        *(_one(each, names, held) for each in sorted(machines, key=lambda each: each.id)),
        *_missing(pool, group, machines),
    )


def unnamed(pool: NodePool, group: ScaleGroup, machines: Sequence[CceNode], names: CceGroupNames[Node]) -> str:
    """Return a remedy for protected nodes that cannot be identified; "" if there are none."""
    known = (is_marked(each.annotations) or _is_marked(names.node_of(each.id)) for each in machines)
    return why_all_held(f"{pool.name}/{group.name}", group.held, known)


def _is_marked(node: Node | None) -> bool:
    return node is not None and is_marked(node.annotations)


def _one(machine: CceNode, names: CceGroupNames[Node], held: str) -> Instance:
    """Build one instance. In an unknown phase it is running if it is a node, otherwise it is being created.

    A node has been created, whatever CCE's phase; its readiness is judged by the planner."""
    node = names.node_of(machine.id)
    state = NODE_STATES.get(machine.phase, InstanceState.CREATING)
    if node is not None and state is InstanceState.CREATING:
        state = InstanceState.RUNNING
    error = _BROKEN if machine.phase == ERROR and node is None else None
    return Instance(
        (node.provider_id if node is not None else "") or machine.id,
        state,
        error,
        handle=machine.id,
        node=node.name if node is not None else "",
        held=why_held(machine) or (held if node is not None else ""),
        created=machine.created,
        claimants=names.claimants(machine.id),
    )


def _missing(pool: NodePool, group: ScaleGroup, machines: Sequence[CceNode]) -> tuple[Instance, ...]:
    alive = sum(not is_leaving(each) for each in machines)
    count = group.desired - max(group.existing, alive)
    why = failure(pool, group) if count > 0 else None
    if why is None:
        return ()
    reported = f"{pool.name}/{group.name} is to have {group.desired} nodes, and {count} do not come: {why.message}"
    error = InstanceError(why.error_class, why.code, reported)
    names = [placeholder(group_id(pool.id, group.name), number) for number in range(min(count, MOST_PLACEHOLDERS))]
    return tuple(Instance(name, InstanceState.CREATING, error, handle=name) for name in names)
