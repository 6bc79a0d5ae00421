"""Memory updates at the end of an operation: requests, cooldowns, backoff. Pure; the code reads like this table.

    grow    done     request += increase, both its instants set anew; last_add, last_scale_up
            failed   backoff by class; a target changed by another party is not a failure of the group
    remove  done     last_delete, last_scale_down
            failed   last_failure, last_scale_down_failure
    shrink  done     the request is over; the target is what it was lowered to
    discard done     the target is lower by the number of deleted instances
    shrink, discard failed   not retried for a while, each time longer; the group's other operations do not wait

See docs/reference/node-groups.md "Scale-up requests" and "Backoff", docs/reference/scale-down.md "Cooldowns".

Upstream starts the cooldown only where tainting failed, and so retries a node whose drain got stuck in the next loop
(5,035 failed drains in a week were reported). Outscaler starts it for every removal that failed, but not for one that
it cancelled itself. A repair that failed for a conflict waits, too: a rollout conflicts with it for hours.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.memory import FailedRemoval, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import ABANDONED, Failed, Succeeded
from chalicelib.model.policy import Options
from chalicelib.model.timeouts import provision_deadline, retry_delay
from chalicelib.operations.step_context import NOT_STARTED
from chalicelib.plan.state import backoff

_WHY = 300  # characters of a failure that are remembered
OURS = frozenset({ABANDONED, NOT_STARTED})
"""Results that say nothing about the group or the node, because the cause lies in Outscaler."""
NOT_A_PROVIDER_FAILURE = OURS | {"Conflict"}
"""Failures after which the group may be retried at once: the cluster was not in the planned state."""

GroupPatch = Callable[[GroupMemory], GroupMemory]
MemoryPatch = Callable[[Memory], Memory]
MemoryUpdate = tuple[GroupPatch | None, MemoryPatch | None]


def memory_updates(operation: Operation, outcome: Succeeded | Failed, options: Options, now: float) -> MemoryUpdate:
    """Return the patches to be written with the operation's end, by kind and outcome. They may be applied more than
    once, to any newer state of memory."""
    teach = _LESSONS.get((operation.spec.kind, type(outcome)))
    return teach(operation, outcome, options, now) if teach else (None, None)


def _grown(operation: Operation, outcome: Succeeded | Failed, options: Options, now: float) -> MemoryUpdate:
    del outcome

    def group(memory: GroupMemory) -> GroupMemory:
        before = memory.request.increase if memory.request else 0
        request = ScaleUpRequest(
            before + operation.spec.to_size - operation.spec.from_size,
            now,
            now + provision_deadline(operation, options),
        )
        return msgspec.structs.replace(memory, request=request, last_add=now, target=operation.spec.to_size)

    return group, lambda memory: msgspec.structs.replace(memory, last_scale_up=max(memory.last_scale_up, now))


def _not_grown(operation: Operation, outcome: Succeeded | Failed, options: Options, now: float) -> MemoryUpdate:
    del operation
    if not isinstance(outcome, Failed) or outcome.error_class in NOT_A_PROVIDER_FAILURE:
        return None, None

    def group(memory: GroupMemory) -> GroupMemory:
        failed = backoff.fail(memory.backoff, now, options, outcome.error_class, outcome.code, outcome.message)
        asked = max(failed.until, now + outcome.retry_after)
        return msgspec.structs.replace(memory, backoff=msgspec.structs.replace(failed, until=asked))

    return group, None


def _removed(operation: Operation, outcome: Succeeded | Failed, options: Options, now: float) -> MemoryUpdate:
    del options
    count = int(outcome.facts.get("removed", len(operation.spec.targets)))

    def group(memory: GroupMemory) -> GroupMemory:
        return msgspec.structs.replace(memory, last_delete=now, target=max(0, memory.target - count))

    return group, lambda memory: msgspec.structs.replace(memory, last_scale_down=max(memory.last_scale_down, now))


def _not_removed(operation: Operation, outcome: Succeeded | Failed, options: Options, now: float) -> MemoryUpdate:
    """Return the patch that delays the node's next removal, longer after every failure, so that it is not the first in
    every pass and does not block all others."""
    if not isinstance(outcome, Failed) or outcome.error_class in OURS:
        return None, None
    why = outcome.message[:_WHY]

    def group(memory: GroupMemory) -> GroupMemory:
        failed = dict(memory.failed_removals)
        for target in operation.spec.targets:
            times = failed[target.node].times + 1 if target.node in failed else 1
            failed[target.node] = FailedRemoval(now + retry_delay(times, options), times, why)
        return msgspec.structs.replace(memory, last_failure=now, failed_removals=failed)

    return (
        group,
        lambda memory: msgspec.structs.replace(
            memory, last_scale_down_failure=max(memory.last_scale_down_failure, now)
        ),
    )


def _shrunk(operation: Operation, outcome: Succeeded | Failed, options: Options, now: float) -> MemoryUpdate:
    del outcome, options, now
    return lambda memory: msgspec.structs.replace(
        memory, request=None, target=operation.spec.to_size, repair_failures=0, repair_after=0.0
    ), None


def _discarded(operation: Operation, outcome: Succeeded | Failed, options: Options, now: float) -> MemoryUpdate:
    del outcome, options, now
    count = len(operation.spec.targets)
    return lambda memory: msgspec.structs.replace(
        memory, target=max(0, memory.target - count), repair_failures=0, repair_after=0.0
    ), None


def _not_repaired(operation: Operation, outcome: Succeeded | Failed, options: Options, now: float) -> MemoryUpdate:
    del operation
    if not isinstance(outcome, Failed) or outcome.error_class in OURS:
        return None, None
    asked = outcome.retry_after

    def group(memory: GroupMemory) -> GroupMemory:
        failures = memory.repair_failures + 1
        return msgspec.structs.replace(
            memory, repair_failures=failures, repair_after=now + max(retry_delay(failures, options), asked)
        )

    return group, None


_LESSONS: dict[
    tuple[OperationKind, type[Succeeded] | type[Failed]],
    Callable[[Operation, Succeeded | Failed, Options, float], MemoryUpdate],
] = {
    (OperationKind.SCALE_UP, Succeeded): _grown,
    (OperationKind.SCALE_UP, Failed): _not_grown,
    (OperationKind.DELETE_NODES, Succeeded): _removed,
    (OperationKind.DELETE_NODES, Failed): _not_removed,
    (OperationKind.DECREASE_TARGET, Succeeded): _shrunk,
    (OperationKind.DECREASE_TARGET, Failed): _not_repaired,
    (OperationKind.DELETE_INSTANCES, Succeeded): _discarded,
    (OperationKind.DELETE_INSTANCES, Failed): _not_repaired,
}
