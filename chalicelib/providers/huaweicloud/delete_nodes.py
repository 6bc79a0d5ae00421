"""TODO"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import InvalidRequest, NotFound, ProviderError
from chalicelib.providers.huaweicloud.models import CceNode, is_leaving, why_held
from chalicelib.providers.huaweicloud.node_groups import total_of
from chalicelib.providers.huaweicloud.provider_ids import (
    CceGroupNames,
    group_of,
    handle_of,
    is_placeholder,
    placeholder_group,
)
from chalicelib.providers.huaweicloud.scale_up import FIRST, SENT, STEP, CceContext, Site, doubted, later, take_back
from chalicelib.providers.node_identity import joined_of, refuse_changed, refuse_joined

_FEW = 3  # maximum nodes read one by one instead of by the complete list


class CceTargets(msgspec.Struct, frozen=True):
    """The targets of a removal: CCE nodes by uid, and placeholders."""

    nodes: tuple[str, ...]
    placeholders: tuple[str, ...]


def read_targets(operation: Operation) -> CceTargets:
    """Return the targets, each once; raises InvalidRequest for one without a uid, or for another group's
    placeholder."""
    handles: dict[str, None] = {}
    for target in operation.spec.targets:
        handle = handle_of(target)
        if not handle:
            raise InvalidRequest(f"{target.node or target.instance}: no CCE node is known for it")
        if is_placeholder(handle) and placeholder_group(handle) != operation.spec.group:
            raise InvalidRequest(f"{handle} does not belong to {operation.spec.group}")
        handles[handle] = None
    return CceTargets(
        tuple(each for each in handles if not is_placeholder(each)),
        tuple(each for each in handles if is_placeholder(each)),
    )


def living(context: CceContext, names: Sequence[str]) -> dict[str, CceNode]:
    """Return the targets that CCE knows and is not deleting, by uid; raises ProviderError."""
    listed = context.api.nodes() if len(names) > _FEW else ()
    found = {each.id: each for each in listed if each.id in names}
    if len(names) <= _FEW or any(each.error for each in listed):
        for name in (each for each in names if each not in found):
            try:
                found[name] = context.api.node(name)
            except NotFound:
                continue
    return {name: each for name, each in found.items() if not is_leaving(each)}


def check_membership(nodes: Sequence[CceNode], site: Site) -> None:
    """Raise InvalidRequest if one of them belongs to another pool, another group or none."""
    strangers = {}
    for each in nodes:
        if each.pool != site.pool.id:
            strangers[each.id] = f"pool {each.pool}" if each.pool else "no pool"
        elif (group := group_of(each, site.pool)) is not None and group.name != site.group.name:
            strangers[each.id] = f"scale group {group.name}"
    if strangers:
        reported = "; ".join(f"{name} is in {where}" for name, where in sorted(strangers.items()))
        raise InvalidRequest(f"{reported}, and not in {site.title}")


def spare_the_joined(context: CceContext, machines: Iterable[CceNode]) -> None:
    """Raises PermanentConflict if one of the instances is a node by now. Without a connection to the cluster nothing is
    checked: the caller has looked by name."""
    if context.joined is None:
        return
    known = {each.id: each for each in machines}
    identity = CceGroupNames(context.joined(), known.values()).identity
    refuse_joined(known[each].name or each for each in joined_of(known, identity))


def check_nodes(context: CceContext, operation: Operation, machines: Mapping[str, CceNode]) -> None:
    """Raises PermanentConflict if one of the instances (by uid) is not, or not for certain, the node that was planned.
    Without a connection to the cluster nothing is checked."""
    if context.joined is None:
        return
    nodes = context.joined()
    identity = CceGroupNames(nodes, machines.values()).identity

    def among(target: RemovalTarget) -> str | None:
        return name if (name := handle_of(target)) in machines else None

    refuse_changed(operation.spec.targets, among, identity, nodes)


JOBS = "jobs"
_MOST_JOBS = 20  # maximum jobs recorded: enough to report a failure, and small enough for the operation's row


def delete_nodes(context: CceContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Sends nothing if one of them must not be deleted."""
    targets = read_targets(operation)
    left = living(context, targets.nodes)
    if SENT in operation.status.data:
        return _look(context, operation, targets, left)
    try:
        site = context.site(operation.spec.group)
    except NotFound:
        if left:
            raise
        return _done(operation, targets)  # the pool is gone with its nodes
    if left:
        _permitted(context, operation, site, left)
    if targets.placeholders and (conflict := take_back(context, operation, site, len(targets.placeholders))):
        return conflict
    if left and operation.spec.kind is OperationKind.DELETE_NODES:
        check_nodes(context, operation, left)
    return _delete(context, operation, left) if left else _done(operation, targets)


def cancel_delete(context: CceContext, operation: Operation) -> bool:
    """Return whether any target is still there and not leaving; raises ProviderError.

    There is nothing to undo, because CCE is not modified before the deletion."""
    targets = read_targets(operation)
    if living(context, targets.nodes):
        return True
    if not targets.placeholders:
        return False
    try:
        return context.site(operation.spec.group).size >= operation.spec.from_size
    except NotFound:
        return False


def _permitted(context: CceContext, operation: Operation, site: Site, left: Mapping[str, CceNode]) -> None:
    """Raise if one of the nodes must not be deleted, or if too few would remain."""
    check_membership(tuple(left.values()), site)
    discard = operation.spec.kind is OperationKind.DELETE_INSTANCES
    if discard:
        spare_the_joined(context, left.values())
    held = [text for each in left.values() if (text := why_held(each))]
    free = site.group.existing - site.group.held
    # If the pool's size is below the sum of its groups, the whole difference may be a removal from this group that
    # its own size does not show yet.
    size = site.size - max(0, total_of(site.pool) - site.pool.desired)
    rows = (
        (bool(held), "; ".join(held)),
        (
            not discard and site.group.held > 0 and len(left) > free,
            f"{site.title}: {site.group.held} of its {site.group.existing} nodes are protected from scale-in",
        ),
        (
            not discard and size - len(left) < site.within.min,
            f"{site.title}: {size - len(left)} would be below the minimum {site.within.min}",
        ),
        (
            not discard and site.pool.desired - len(left) < site.whole.min,
            f"{site.title}: {site.pool.desired - len(left)} would be below the minimum {site.whole.min} of its pool",
        ),
    )
    for applies, text in rows:
        if applies:
            raise InvalidRequest(text)
    context.check_cluster()


def _delete(context: CceContext, operation: Operation, left: Mapping[str, CceNode]) -> InProgress:
    jobs = []
    for name in left:
        try:
            jobs.append(context.api.delete_node(name))
        except NotFound:
            if living(context, [name]):  # it exists, so NotFound refers to something different
                raise
    return InProgress(
        FIRST,
        STEP,
        {SENT: "yes", JOBS: ",".join([each for each in jobs if each][:_MOST_JOBS])},
        f"{operation.spec.group}: CCE deletes {', '.join(left)}",
    )


def _look(context: CceContext, operation: Operation, targets: CceTargets, left: Mapping[str, CceNode]) -> Outcome:
    """Follow the deletions through the node list, and failed ones through their jobs. A finished job may precede the
    list."""
    if not left:
        return _done(operation, targets)
    working, failed = _jobs(context, operation)
    reported = f"{operation.spec.group}: {', '.join(left)} still there"
    facts: dict[str, str | int] = {"removed": len(targets.nodes) - len(left), "left": ",".join(left)}
    if failed:
        return Failed("Unknown", f"{reported}: {failed}", facts=facts)
    if working:
        return later(operation, reported)
    return doubted(operation, reported) or Failed(
        "Unknown", f"{reported} though CCE has taken the deletion", facts=facts
    )


def _jobs(context: CceContext, operation: Operation) -> tuple[bool, str]:
    """Return whether a job is running, and why one failed. Jobs are short-lived and serve only for progress."""
    working, failed = False, ""
    for name in operation.status.data.get(JOBS, "").split(","):
        if not name:
            continue
        try:
            job = context.api.job(name)
        except ProviderError:
            continue
        working = working or job.phase in {"Initializing", "Running"}
        failed = failed or (f"job {name} failed: {job.reason}" if job.phase == "Failed" else "")
    return working, failed


def _done(operation: Operation, targets: CceTargets) -> Succeeded:
    return Succeeded({"removed": len(targets.nodes) + len(targets.placeholders), "group": operation.spec.group})
