"""Serialises operations: a size decrease waits until a started scale-up of the group is recorded,
and only one operation at a time sets the total size of a pool.

A scale-up says "from 3 to 4". After a crash its next attempt reads the size to learn whether the
first attempt succeeded. If a concurrent removal has lowered the size to 3 by then, the size
suggests that it did not, and the machine would be bought a second time. Operations that lower sizes
therefore wait while a scale-up is open that may have called its provider; that scale-up ends by
itself, at its own deadline at the latest.

    grow     3 ──► 4 ✝ (nothing recorded)                  asks: 4, done ──► recorded
    remove         waits ─────────────────────────────────────────────────────► 4 ──► 3

Groups of one pool share one number at the vendor (Operation.pool; docs/reference/node-groups.md
"Pools"). Two executors that read 5 and request 5 + 2 and 5 + 1 buy two machines instead of three,
and a total lower than a concurrent higher one deletes machines that no operation named. The older
operation therefore goes first until its request has been accepted. No operation waits for a younger
one, so they never wait for each other. At a provider with pools, polls only read (part of its
contract), so a pool is not blocked while machines are created.

    grow  a  5 ──► 7 taken, is polled ─────────────────────────►
    grow  b     waits  ──► 7 ──► 8 taken, is polled ───────────►

A removal also lowers that number, by one with each node. A total computed a moment before would buy
what the removal lowers, so no operation sets a total while a removal of the pool deletes; a removal
that only waits blocks no operation.

A drain may also wait for what replaces its node (OperationSpec.after). A removal never starts
on doubt: an operation that is not known, or whose row has expired, counts as failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from chalicelib.model.operation import Operation, OperationKind, OperationState
from chalicelib.model.outcome import ABANDONED, Failed, InProgress
from chalicelib.operations.steps.drain import time_of_further_groups
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import interruption_deadline, operation_timeout
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.operations import CLOCKS

WAITED = "own.waited"
"""The key in the operation's data: the number of the last attempt up to which all
attempts only waited for a turn."""
AFTER = 10.0
SOON = 3.0
"""Seconds between checks while waiting for a scale-up to be recorded or for
another operation of the pool."""
_LOWERS: Mapping[OperationKind, frozenset[str]] = MappingProxyType(
    {
        OperationKind.DELETE_NODES: frozenset({"delete", "poll"}),
        OperationKind.DELETE_INSTANCES: frozenset({"", "delete", "poll"}),
        OperationKind.DECREASE_TARGET: frozenset({"", "lower", "poll"}),
    }
)
"""The steps of an operation that may lower a size; "" is the first."""
_SETS: Mapping[OperationKind, frozenset[str]] = MappingProxyType(
    {
        OperationKind.SCALE_UP: frozenset({"", "request"}),
        OperationKind.DELETE_INSTANCES: frozenset({"", "delete"}),
        OperationKind.DECREASE_TARGET: frozenset({"", "lower"}),
    }
)
"""The steps of an operation that may send a pool's total size to the vendor."""


def blocked_by_other_operation(
    operation: Operation, options: Options, runtime: Runtime
) -> InProgress | Failed | None:
    """Return a delay where another operation goes first, and the failure of an operation that is
    called off because one that it waits for did not succeed; None where the step may run, and past
    its deadline, where it is given up. Raises StoreError."""
    if runtime.clock() >= deadline_of(operation, options):
        return None
    data = operation.status.data
    if never_begun(operation):
        data = {**data, WAITED: str(operation.status.attempt)}
    blocked = None if operation.status.step else _blocked_until_after(operation, data, runtime)
    if blocked is not None or not (_lowers(operation) or _sets(operation)):
        return blocked
    for other in runtime.store.operations.list_open(operation.spec.cluster):
        if other.spec.id == operation.spec.id:
            continue
        if _sets(operation) and _sets(other) and operation.spec.pool == other.spec.pool:
            if _age(other) < _age(operation):
                return InProgress(
                    SOON,
                    operation.status.step,
                    data,
                    f"until {other.spec.id} has changed their pool",
                )
            continue
        if (
            _sets(operation)
            and _deletes(other, runtime.clock())
            and operation.spec.pool == other.spec.pool
        ):
            return InProgress(
                SOON,
                operation.status.step,
                data,
                f"until {other.spec.id} has deleted nodes of their pool",
            )
        if _lowers(operation) and _may_have_grown(other, operation):
            return InProgress(
                AFTER,
                operation.status.step,
                data,
                f"until {other.spec.id}, which has begun, is recorded",
            )
    return None


def _blocked_until_after(
    operation: Operation, data: dict[str, str], runtime: Runtime
) -> InProgress | Failed | None:
    """Return the same for what the operation waits for before its first step. All of it is asked
    about in every attempt, because an executor may have died before it had asked."""
    blocked: InProgress | None = None
    for name in operation.spec.after:
        other = runtime.store.operations.get(operation.spec.cluster, name)
        if other is not None and other.is_open:
            blocked = InProgress(AFTER, "", data, f"until {name} has succeeded")
        elif other is None:
            return Failed(
                ABANDONED, f"called off: it was to start after {name}, which is not known"
            )
        elif other.status.state is not OperationState.SUCCEEDED:
            why = f"{name}, which did not succeed ({other.status.state}: {other.status.outcome})"
            return Failed(ABANDONED, f"called off: it was to start after {why}")
    return blocked


def _lowers(operation: Operation) -> bool:
    return operation.status.step in _LOWERS.get(operation.spec.kind, ())


def _sets(operation: Operation) -> bool:
    return bool(operation.spec.pool) and operation.status.step in _SETS.get(operation.spec.kind, ())


def _deletes(operation: Operation, now: float) -> bool:
    """Return whether its nodes are being deleted right now. An operation whose function has died
    counts as deleting until its claim is over by any clock."""
    return (
        operation.spec.kind is OperationKind.DELETE_NODES
        and operation.status.step == "delete"
        and operation.status.state is OperationState.RUNNING
        and operation.status.claimed_until + CLOCKS > now
    )


def _may_have_grown(other_operation: Operation, operation: Operation) -> bool:
    """Return whether the other is a scale-up that has begun: of the same group, or of another group
    of its pool, whose request is not known to be accepted."""
    if (
        other_operation.spec.kind is not OperationKind.SCALE_UP
        or not other_operation.status.attempt
    ):
        return False
    return other_operation.spec.group == operation.spec.group or (
        _sets(other_operation) and other_operation.spec.pool == operation.spec.pool
    )


def _age(operation: Operation) -> tuple[float, str]:
    return operation.spec.created_at, operation.spec.id


def deadline_of(operation: Operation, options: Options) -> float:
    """Return the instant after which no new work is started (epoch seconds): the deadline that the
    operation was planned with, or the default duration of its kind. Both include the time for one
    eviction group (policy/timeouts.py). A drain whose pods are evicted in several groups gets the
    time of the further groups in addition, so that the deadline only stops operations that are
    stuck. An interrupted removal evicts all pods at once, and ends by itself after its vendor's
    deadline."""
    spec = operation.spec
    if spec.interrupted:
        return spec.deadline or interruption_deadline(spec)
    planned = spec.deadline or spec.created_at + operation_timeout(spec.kind, options)
    drains = spec.kind in (OperationKind.DELETE_NODES, OperationKind.RESTART_NODE)
    return planned + time_of_further_groups(options) if drains else planned


def never_begun(operation: Operation) -> bool:
    """Return whether all attempts before the current one only waited for their turn, and so had no
    effect; this decides how the operation fails when its deadline has passed. An attempt that was
    not recorded may have called the vendor before its function died. operation: as claimed."""
    text = operation.status.data.get(WAITED, "0")
    waited = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    return not operation.status.step and operation.status.attempt <= waited + 1
