"""Removes nodes by id, lowers the size by nodes that were requested and never
created, and restarts a node.

One DELETE each also lowers the sizes of the group and its pool. All requests are sent in one
call, which first reads and checks all targets, so it may be interrupted and repeated at any
point; later calls only poll.

    placeholders among the targets   lower the size, never below what exists
    absent, or Deleting              removed
    another group's, or protected    refused, before anything is sent
    a node, although unregistered instances are to be deleted    refused
    a spot instance that its vendor takes back    awaited: CCE refuses to delete it
    alive                            DELETE, if the group and its pool stay
                                     at or above their minimum

For a lower total CCE chooses which nodes to delete. Therefore the size is never set below the
number of existing nodes, according to both the counters and the list of nodes, for the group and
for the pool. It is not lowered at all while the groups' sizes do not add up to the pool's, because
one of them is then outdated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, Outcome, Succeeded
from chalicelib.providers.huaweicloud.models import (
    CceNode,
    has_servers,
    is_leaving,
    undeletable,
    work_on,
)
from chalicelib.providers.huaweicloud.node_groups import is_settled, total_of
from chalicelib.providers.huaweicloud.node_template import is_spot_node
from chalicelib.providers.huaweicloud.provider_ids import (
    CceGroupNames,
    group_id,
    group_of,
    handle_of,
    placeholder_group,
)
from chalicelib.providers.huaweicloud.scale_up import (
    FOLLOWING,
    PATIENCE,
    SENT,
    CceContext,
    CceGroup,
    nodes_of_group,
    read_again,
)
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    Unauthorized,
)
from chalicelib.providers.kit.node_identity import Identity, Seen
from chalicelib.providers.kit.removal_guard import (
    Targets,
    check_minimum,
    check_nodes,
    read_targets,
    refuse_foreign,
)
from chalicelib.providers.kit.services import UNANSWERED
from chalicelib.providers.kit.sized_group import (
    Floor,
    Polls,
    SizedGroup,
    changed_size,
    check_sizes,
    lower_as_planned,
    lower_by_placeholders,
)

JOBS = "jobs"
RECLAIM = Polls("reclaim", first=10.0, growth=1.5, longest=30.0)
RESTART = Polls("restart", first=5.0, growth=1.5, longest=30.0)
# maximum jobs recorded: enough to report a failure, and small enough for the operation's row
_MOST_JOBS = 20
_FEW = 3  # maximum nodes read one by one instead of by the complete list


# -- targets


def targets_of(operation: Operation) -> Targets:
    """Return the targets; raises InvalidRequest."""
    return read_targets(operation, handle_of, placeholder_group, "CCE node")


def _alive(context: CceContext, names: Sequence[str]) -> dict[str, CceNode]:
    """Return the targets that CCE knows and is not deleting, by uid; raises ProviderError."""
    listed = context.api.nodes() if len(names) > _FEW else ()
    nodes = {node.id: node for node in listed if node.id in names}
    if len(names) <= _FEW or any(node.error for node in listed):
        for name in names:
            if name not in nodes:
                try:
                    nodes[name] = context.api.node(name)
                except NotFound:
                    continue
    return {name: node for name, node in nodes.items() if not is_leaving(node)}


def _check_nodes(
    context: CceContext, operation: Operation, machines: Mapping[str, CceNode]
) -> None:
    def identify(nodes: tuple[Seen, ...]) -> Identity[str, Seen]:
        return CceGroupNames(nodes, machines.values()).identity

    def name_of(machine: str) -> str:
        return machines[machine].name or machine

    check_nodes(operation, context.joined, identify, machines, handle_of, name_of)


# -- removal


def delete_nodes(context: CceContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Sends nothing if one of
    them must not be deleted."""
    targets = targets_of(operation)
    nodes = _alive(context, targets.machines)
    if SENT in operation.status.data:
        return _progress(context, operation, targets, nodes)
    try:
        group = context.group(operation.spec.group)
    except NotFound:
        if nodes:
            raise
        return targets.removed(operation)  # the pool is gone with its nodes
    if nodes:
        _check_membership(group, nodes)
        if operation.spec.reason == DisruptionReason.INTERRUPTED and _are_spot(
            context, group, nodes
        ):
            return RECLAIM.later(
                operation, f"{group.title}: the vendor takes back {', '.join(nodes)}"
            )
        _check_permitted(context, operation, group, nodes)
    failed = lower_by_placeholders(operation, targets, _sized_group(context, group))
    if failed is not None:
        return failed
    if not nodes:
        return targets.removed(operation)
    if operation.spec.kind is OperationKind.DELETE_NODES:
        _check_nodes(context, operation, nodes)
    jobs = []
    for name in nodes:
        try:
            jobs.append(context.api.delete_node(name))
        except NotFound:
            if _alive(context, [name]):  # it exists, so NotFound refers to something different
                raise
    data = {SENT: "yes", JOBS: ",".join([job for job in jobs if job][:_MOST_JOBS])}
    return FOLLOWING.begin(data, f"{operation.spec.group}: CCE deletes {', '.join(nodes)}")


def cancel_delete(context: CceContext, operation: Operation) -> bool:
    """Return whether any target is still there and not leaving; raises ProviderError. There is
    nothing to undo, because CCE is not modified before the deletion."""
    targets = targets_of(operation)
    if _alive(context, targets.machines):
        return True
    if not targets.placeholders:
        return False
    try:
        return context.group(operation.spec.group).size >= operation.spec.from_size
    except NotFound:
        return False


def _are_spot(context: CceContext, group: CceGroup, nodes: Mapping[str, CceNode]) -> bool:
    """Return whether all these nodes of a group are spot instances: by the pool, by CCE's nodes, or
    by the labels of the cluster's. Raises Transient."""
    if group.pool.template.spot or all(node.spot for node in nodes.values()):
        return True
    names = CceGroupNames(context.joined() if context.joined is not None else (), nodes.values())
    joined = {name: names.node_of(name) for name in nodes}
    return all(
        nodes[name].spot or (node is not None and is_spot_node(node.labels))
        for name, node in joined.items()
    )


def _check_membership(group: CceGroup, nodes: Mapping[str, CceNode]) -> None:
    """Raise if one of the nodes is not of the group."""
    foreign = {}
    for name, node in nodes.items():
        if node.pool != group.pool.id:
            foreign[name] = f"pool {node.pool}" if node.pool else "no pool"
        elif (own := group_of(node, group.pool)) is not None and own.name != group.scale_group.name:
            foreign[name] = f"scale group {own.name}"
    refuse_foreign(foreign, group.title)


def _check_permitted(
    context: CceContext, operation: Operation, group: CceGroup, nodes: Mapping[str, CceNode]
) -> None:
    """Raise if one of the nodes must not be deleted, or if too few would remain."""
    minimum_applies = operation.spec.kind is not OperationKind.DELETE_INSTANCES
    if not minimum_applies:
        _check_nodes(context, operation, nodes)
    if protected := "; ".join(filter(None, map(undeletable, nodes.values()))):
        raise InvalidRequest(protected)
    if minimum_applies:
        _check_sizes_after(group, len(nodes))
    context.check_cluster()


def _check_sizes_after(group: CceGroup, count: int) -> None:
    """Raise InvalidRequest if too few nodes would remain without so many."""
    held, existing = group.scale_group.held, group.scale_group.existing
    if held > 0 and count > existing - held:
        raise InvalidRequest(
            f"{group.title}: {held} of its {existing} nodes are protected from scale-in"
        )
    # If the pool's size is below the sum of its groups, the whole difference may be a removal from
    # this group that its own size does not show yet.
    not_shown_yet = max(0, total_of(group.pool) - group.pool.desired)
    check_minimum(group.title, group.size - not_shown_yet - count, group.sizes.min)
    total = group.pool.desired - count
    check_minimum(group.title, total, group.pool_sizes.min, " of its pool")


def _progress(
    context: CceContext, operation: Operation, targets: Targets, nodes: Mapping[str, CceNode]
) -> Outcome:
    """Follow the deletions through the node list, and failed ones through their jobs. A finished
    job may precede the list."""
    if not nodes:
        return targets.removed(operation)
    working, failed = False, ""
    for name in filter(None, operation.status.data.get(JOBS, "").split(",")):
        try:
            job = context.api.job(name)
        except ProviderError:
            continue  # jobs are short-lived and serve only for progress
        working = working or job.phase in {"Initializing", "Running"}
        failed = failed or (f"job {name} failed: {job.reason}" if job.phase == "Failed" else "")
    note = f"{operation.spec.group}: {', '.join(nodes)} still there"
    facts: dict[str, str | int] = {
        "removed": len(targets.machines) - len(nodes),
        "left": ",".join(nodes),
    }
    if failed:
        return Failed("Unknown", f"{note}: {failed}", facts=facts)
    if working:
        return FOLLOWING.later(operation, note)
    again = read_again(operation, note)
    return again or Failed("Unknown", f"{note} though CCE has taken the deletion", facts=facts)


# -- restart


def restart(context: CceContext, operation: Operation) -> Outcome:
    """Restart the server of the one target, hard and once; raises ProviderError. ECS makes a job of
    it, which later calls follow. A restart whose answer was lost has no known job and counts
    as done: a node that stays sick is replaced."""
    if SENT in operation.status.data:
        return _follow_restart(context, operation)
    targets = targets_of(operation)
    if len(targets.machines) != 1 or targets.placeholders:
        raise InvalidRequest("exactly one node is restarted at a time")
    group, node = context.group(operation.spec.group), context.api.node(targets.machines[0])
    _check_membership(group, {node.id: node})
    name = node.name or node.id
    if not (node.server and has_servers(group.pool)) or is_leaving(node):
        raise InvalidRequest(
            f"{name} is no server that can be restarted: phase {node.phase or 'unknown'}"
        )
    if work := work_on(node):
        raise Conflict(f"{name} is left alone: {work}")
    _check_nodes(context, operation, {node.id: node})
    job = context.api.restart_server(node.server, operation.spec.id)
    return RESTART.begin({SENT: "yes", JOBS: job}, f"{group.title}: ECS restarts {name}")


def _follow_restart(context: CceContext, operation: Operation) -> Outcome:
    """Report the job of a restart. A job that cannot be read, because it is old or the key may not,
    tells nothing more about a restart that ECS has taken."""
    name, targets = (
        operation.status.data.get(JOBS, ""),
        [target.node for target in operation.spec.targets],
    )
    facts: dict[str, str | int] = {
        "restarted": ", ".join(filter(None, targets)),
        "group": operation.spec.group,
    }
    try:
        job = context.api.server_job(name) if name else None
    except (NotFound, Unauthorized):
        job = None
    if job is None or job.phase == "SUCCESS":
        return Succeeded(facts if name else {**facts, "note": UNANSWERED})
    note = (
        f"{operation.spec.group}: job {name} of the restart is {job.phase or 'in no known state'}"
    )
    if job.phase == "FAIL" or RESTART.have_taken(operation, PATIENCE):
        return Failed("Unknown", f"{note}: {job.reason}" if job.reason else note, facts=facts)
    return RESTART.later(operation, note)


# -- lower size


class _Existing(msgspec.Struct, frozen=True):
    """How many nodes of the group and of its whole pool exist. Nodes being created
    count, although they may fail."""

    group: int
    pool: int


def decrease_target(context: CceContext, operation: Operation) -> Outcome:
    """Lower the size to to_size if no node has to be deleted for it, and verify the result; raises
    ProviderError. After the request was accepted, nothing more is sent."""
    to_size = operation.spec.to_size
    check_sizes(operation)
    group = context.group(operation.spec.group)
    if group.size <= to_size:
        return changed_size(operation)
    if SENT in operation.status.data:
        note = f"{group.title} still has the size {group.size} though CCE has taken {to_size}"
        return read_again(operation, note) or Failed("Unknown", note)
    failed = lower_as_planned(operation, _sized_group(context, group))
    return failed or FOLLOWING.begin({**operation.status.data, SENT: "yes"})


def _sized_group(context: CceContext, group: CceGroup) -> SizedGroup:
    existing = cache(lambda: _existing_nodes(context, group))

    def floors() -> tuple[Floor, ...]:
        return (Floor(existing().group, f"the {existing().group} nodes that exist"),)

    def lower(size: int) -> None:
        _lower(context, group, size, existing())

    return SizedGroup(group.title, group.size, floors, lower)


def _existing_nodes(context: CceContext, group: CceGroup) -> _Existing:
    nodes = context.nodes_of_pool(group)
    own = nodes_of_group(nodes, group)
    return _Existing(max(group.scale_group.existing, len(own)), max(group.pool.current, len(nodes)))


def _lower(context: CceContext, group: CceGroup, size: int, existing: _Existing) -> None:
    """Set a lower size of the group. The caller has verified that it is not below the group's
    nodes. Raises Conflict if the pool's numbers are inconsistent, InvalidRequest if nodes of the
    pool would have to be deleted, and ProviderError."""
    pool = group.pool
    if not is_settled(pool):
        raise Conflict(
            f"{group.title}: its pool is at {pool.desired}, and its scale groups do not add up to "
            "that"
        )
    total = pool.desired - (group.size - size)
    if total < existing.pool:
        raise InvalidRequest(
            f"{group.title}: {total} is below the {existing.pool} nodes of its pool that exist"
        )
    context.check_cluster()
    if context.has_moved(group_id(pool.id, group.scale_group.name), group):
        raise Conflict(f"{group.title} was changed meanwhile")
    context.api.scale(pool.id, total, group.scale_group.name, zero=total == 0)
