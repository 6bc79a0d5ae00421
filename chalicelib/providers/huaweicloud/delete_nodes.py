"""Removes nodes by id, with one DELETE each, which also lowers the sizes of the group and its pool.

A lower total is never requested, because CCE would then choose the nodes to delete. All requests are sent in one call,
which first reads and checks all targets, so it may be interrupted and repeated at any point; later calls only poll.

    placeholders among the targets   lower the size, never below what exists
    absent, or Deleting              removed
    another group's, or protected    refused, before anything is sent
    a node, although unregistered instances are to be deleted    refused
    alive                            DELETE, if the group and its pool stay at or above their minimum
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import InvalidRequest, NotFound, ProviderError
from chalicelib.providers.huaweicloud.context import CceContext, Site
from chalicelib.providers.huaweicloud.decrease_target import take_back
from chalicelib.providers.huaweicloud.models import CceNode
from chalicelib.providers.huaweicloud.operation_polling import FIRST, SENT, STEP, doubted, later
from chalicelib.providers.huaweicloud.scale_in_protection import why_held
from chalicelib.providers.huaweicloud.size_bounds import total_of
from chalicelib.providers.huaweicloud.targets import (
    CceTargets,
    check_membership,
    check_nodes,
    living,
    read_targets,
    spare_the_joined,
)

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
