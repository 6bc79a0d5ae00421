"""Memory updates at the end of an operation: requests, cooldowns, backoff. Pure; the
code reads like this table.

    grow    done     the request gets one more purchase with a date of its own;
                     last_add, last_scale_up unless it is part of a replacement, after
                     which removals need not wait
            failed   backoff by class; a target changed by another party is
                     not a failure of the group
    remove  done     last_delete, last_scale_down
            failed   last_failure, last_scale_down_failure; the node's next removal is delayed, and
                     only this where a sick node has recovered
            interrupted, done: the target is lower by what the provider has deleted, and no cooldown
            starts; failed: nothing, because the vendor has not taken the node; the next evacuation
            of a node whose notice was taken back is delayed, longer every time, and nothing else
            is; a notice whose signals ended is forgotten
    restart done     nothing
            failed   the node's next removal or restart is delayed; no cooldown starts.
                     One that ended before its vendor was asked is no restart, after which
                     the node would be replaced
    shrink  done     the target is what it was lowered to; purchases of these nodes are over
    discard done     the target is lower by the number of deleted instances
    close   done     the group is forgotten but for what it taught
    shrink, discard, close failed   not retried for a while, each time longer; the
                             group's other operations do not wait

The end of an operation that is part of a replacement is also recorded in the replacement's row.

See docs/reference/node-groups.md "Scale-up requests" and "Backoff",
docs/reference/scale-down.md "Cooldowns".

Upstream starts the cooldown only where tainting failed, and so retries a node whose drain got stuck
in the next loop (5,035 failed drains in a week were reported). Outscaler starts it for every
removal that failed, but not for one that it cancelled itself. A repair that failed for a
conflict waits, too: a rollout conflicts with it for hours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from chalicelib.model.memory import (
    NOT_BEGUN,
    FailedRemoval,
    GroupMemory,
    Memory,
    PurchaseRow,
    Replacement,
)
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import (
    ABANDONED,
    NODE_RECOVERED,
    NOTICE_TAKEN_BACK,
    SIGNAL_GONE,
    Failed,
    Succeeded,
)
from chalicelib.model.purchases import after_shrink, with_purchase
from chalicelib.operations.removal_progress import read
from chalicelib.operations.step_context import NOT_STARTED
from chalicelib.plan.state import backoff
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import provision_deadline, retry_delay

_WHY = 300  # characters of a failure that are remembered
OURS = frozenset({ABANDONED, NOT_STARTED})
"""Results that say nothing about the group or the node, because the cause lies in Outscaler."""
NOT_A_PROVIDER_FAILURE = OURS | {"Conflict"}
"""Failures after which the group may be retried at once: the cluster was
not in the planned state."""

GroupPatch = Callable[[GroupMemory], GroupMemory]
MemoryPatch = Callable[[Memory], Memory]
ReplacementPatch = Callable[[Replacement], Replacement]
MemoryUpdate = tuple[GroupPatch | None, MemoryPatch | None]
NO_UPDATE: MemoryUpdate = (None, None)


def memory_updates(
    operation: Operation, outcome: Succeeded | Failed, options: Options, now: float
) -> MemoryUpdate:
    """Return the patches to be written with the operation's end, by kind and outcome. They may be
    applied more than once, to any newer state of memory."""
    if isinstance(outcome, Succeeded):
        return _DONE[operation.spec.kind](operation, outcome, options, now)
    return _FAILED[operation.spec.kind](operation, outcome, options, now)


def replacement_update(
    operation: Operation, outcome: Succeeded | Failed
) -> Callable[[Replacement], Replacement] | None:
    """Return the patch of the replacement that the operation is part of, None where it is part of
    none. It is written with the operation's end, so that a pass always knows what became of an
    operation that is not open any more."""
    if not operation.spec.replacement:
        return None
    if isinstance(outcome, Succeeded):
        why = ""
    else:
        why = (
            NOT_BEGUN
            if outcome.error_class == NOT_STARTED
            else outcome.message[:_WHY] or "it failed"
        )

    def patch(replacement: Replacement) -> Replacement:
        return msgspec.structs.replace(
            replacement, ends={**replacement.ends, operation.spec.id: why}
        )

    return patch


def _scaled_up(
    operation: Operation,
    outcome: Succeeded,  # noqa: ARG001
    options: Options,
    now: float,
) -> MemoryUpdate:
    def group(memory: GroupMemory) -> GroupMemory:
        spec = operation.spec
        count = spec.to_size - spec.from_size - memory.failed_early
        expected_at = now + provision_deadline(operation, options)
        purchase = PurchaseRow(
            count, now, expected_at, spec.created_at, spec.awaited, spec.more_awaited
        )
        request = with_purchase(memory.request, purchase) if count > 0 else memory.request
        added = memory.last_add if spec.replacement else now
        return msgspec.structs.replace(
            memory, request=request, last_add=added, target=spec.to_size, failed_early=0
        )

    if operation.spec.replacement:
        return group, None
    return group, lambda memory: msgspec.structs.replace(
        memory, last_scale_up=max(memory.last_scale_up, now)
    )


def _not_scaled_up(
    operation: Operation,
    failure: Failed,
    options: Options,
    now: float,
) -> MemoryUpdate:
    if failure.error_class in NOT_A_PROVIDER_FAILURE:
        return NO_UPDATE

    def group(memory: GroupMemory) -> GroupMemory:
        failed = backoff.fail(
            memory.backoff, now, options, failure.error_class, failure.code, failure.message
        )
        until = max(failed.until, now + failure.retry_after)
        opens = operation.spec.choice is not None and operation.spec.from_size == 0
        if opens and backoff.refuses_machine(failure.error_class, failure.code):
            until = max(until, now + backoff.REFUSED_FOR)
        return msgspec.structs.replace(
            memory, backoff=msgspec.structs.replace(failed, until=until), failed_early=0
        )

    return group, None


def _removed(
    operation: Operation,
    outcome: Succeeded,
    options: Options,  # noqa: ARG001
    now: float,
) -> MemoryUpdate:
    if operation.spec.interrupted:
        return _interrupted(operation, outcome), None
    count = int(outcome.facts.get("removed", len(operation.spec.targets)))

    def group(memory: GroupMemory) -> GroupMemory:
        return msgspec.structs.replace(
            memory, last_delete=now, target=max(0, memory.target - count)
        )

    return group, lambda memory: msgspec.structs.replace(
        memory, last_scale_down=max(memory.last_scale_down, now)
    )


def _interrupted(operation: Operation, outcome: Succeeded) -> GroupPatch:
    """Return the patch after a node that its vendor took back. Where the machine went by itself,
    the vendor says in the next pass what its group's target is."""
    count = (
        0
        if "gone" in outcome.facts
        else int(outcome.facts.get("removed", len(operation.spec.targets)))
    )
    return lambda memory: msgspec.structs.replace(memory, target=max(0, memory.target - count))


def _without_notices(operation: Operation) -> GroupPatch:
    """Return the patch that forgets the notices of nodes that stay: a signal that
    comes again is a new one."""
    names = {target.node for target in operation.spec.targets}

    def group(memory: GroupMemory) -> GroupMemory:
        if memory.risk is None or names.isdisjoint(memory.risk.notices):
            return memory
        left = {name: notice for name, notice in memory.risk.notices.items() if name not in names}
        return msgspec.structs.replace(
            memory, risk=msgspec.structs.replace(memory.risk, notices=left)
        )

    return group


def _delay_next(operation: Operation, failure: Failed, options: Options, now: float) -> GroupPatch:
    """Return the patch that delays the node's next removal, longer after every failure, so that it
    is not the first in every pass and does not block all others. A notice that was taken back
    delays the next evacuation only."""
    why, taken_back = failure.message[:_WHY], failure.error_class == NOTICE_TAKEN_BACK

    def group(memory: GroupMemory) -> GroupMemory:
        failed = dict(memory.failed_removals)
        for target in operation.spec.targets:
            before = failed.get(target.node)
            times = (
                before.times + 1 if before is not None and before.taken_back == taken_back else 1
            )
            failed[target.node] = FailedRemoval(
                now + retry_delay(times, options), times, why, taken_back
            )
        return msgspec.structs.replace(memory, failed_removals=failed)

    return group


def _not_removed(
    operation: Operation, failure: Failed, options: Options, now: float
) -> MemoryUpdate:
    delay_next = _delay_next(operation, failure, options, now)
    if operation.spec.interrupted:
        if failure.error_class != NOTICE_TAKEN_BACK:
            return NO_UPDATE
        return _without_notices(operation) if failure.code == SIGNAL_GONE else delay_next, None
    if failure.error_class in OURS:
        return NO_UPDATE
    if failure.error_class == NODE_RECOVERED:
        return delay_next, None

    def group(memory: GroupMemory) -> GroupMemory:
        return msgspec.structs.replace(delay_next(memory), last_failure=now)

    def cluster(memory: Memory) -> Memory:
        return msgspec.structs.replace(
            memory, last_scale_down_failure=max(memory.last_scale_down_failure, now)
        )

    return group, cluster


def _restarted(
    operation: Operation,  # noqa: ARG001
    outcome: Succeeded,  # noqa: ARG001
    options: Options,  # noqa: ARG001
    now: float,  # noqa: ARG001
) -> MemoryUpdate:
    return NO_UPDATE


def _not_restarted(
    operation: Operation, failure: Failed, options: Options, now: float
) -> MemoryUpdate:
    delay_next = (
        None if failure.error_class in OURS else _delay_next(operation, failure, options, now)
    )
    progress = read(operation)
    if progress.ordered or any(node.restarting for node in progress.nodes.values()):
        return delay_next, None
    planned = dict.fromkeys(
        (target.node for target in operation.spec.targets), operation.spec.created_at
    )

    def group(memory: GroupMemory) -> GroupMemory:
        memory = msgspec.structs.replace(memory, not_restarted=memory.not_restarted | planned)
        return delay_next(memory) if delay_next is not None else memory

    return group, None


def _repaired(
    operation: Operation,
    outcome: Succeeded,  # noqa: ARG001
    options: Options,  # noqa: ARG001
    now: float,  # noqa: ARG001
) -> MemoryUpdate:
    def group(memory: GroupMemory) -> GroupMemory:
        memory = msgspec.structs.replace(memory, repair_failures=0, repair_after=0.0)
        if operation.spec.kind is OperationKind.DECREASE_TARGET:
            request = after_shrink(
                memory.request, operation.spec.from_size - operation.spec.to_size
            )
            return msgspec.structs.replace(memory, request=request, target=operation.spec.to_size)
        return msgspec.structs.replace(
            memory, target=max(0, memory.target - len(operation.spec.targets))
        )

    return group, None


def _group_removed(
    operation: Operation,  # noqa: ARG001
    outcome: Succeeded,  # noqa: ARG001
    options: Options,  # noqa: ARG001
    now: float,  # noqa: ARG001
) -> MemoryUpdate:
    def group(memory: GroupMemory) -> GroupMemory:
        return msgspec.structs.replace(
            memory, empty_since=0.0, target=0, repair_failures=0, repair_after=0.0
        )

    return group, None


def _not_repaired(
    operation: Operation,  # noqa: ARG001
    failure: Failed,
    options: Options,
    now: float,
) -> MemoryUpdate:
    if failure.error_class in OURS:
        return NO_UPDATE

    def group(memory: GroupMemory) -> GroupMemory:
        failures = memory.repair_failures + 1
        after = now + max(retry_delay(failures, options), failure.retry_after)
        return msgspec.structs.replace(memory, repair_failures=failures, repair_after=after)

    return group, None


_DONE: Mapping[OperationKind, Callable[[Operation, Succeeded, Options, float], MemoryUpdate]] = (
    MappingProxyType(
        {
            OperationKind.SCALE_UP: _scaled_up,
            OperationKind.DELETE_NODES: _removed,
            OperationKind.DECREASE_TARGET: _repaired,
            OperationKind.DELETE_INSTANCES: _repaired,
            OperationKind.RESTART_NODE: _restarted,
            OperationKind.REMOVE_GROUP: _group_removed,
        }
    )
)
_FAILED: Mapping[OperationKind, Callable[[Operation, Failed, Options, float], MemoryUpdate]] = (
    MappingProxyType(
        {
            OperationKind.SCALE_UP: _not_scaled_up,
            OperationKind.DELETE_NODES: _not_removed,
            OperationKind.DECREASE_TARGET: _not_repaired,
            OperationKind.DELETE_INSTANCES: _not_repaired,
            OperationKind.RESTART_NODE: _not_restarted,
            OperationKind.REMOVE_GROUP: _not_repaired,
        }
    )
)
