"""Builds operations as a plan does and runs the provider as queue messages do."""

from __future__ import annotations

from chalicelib.model.group import NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.providers.kit.errors import Conflict, Throttled, Transient
from tests.operations import ask, new_operation
from tests.providers.alicloud.fixture import AlicloudBench

_MOST = 60


def order(
    bench: AlicloudBench,
    kind: OperationKind,
    group: str,
    start: int,
    end: int,
    *handles: str,
    op: str = "op-0123456789abcdef",
) -> Operation:
    """Builds an operation. handles: the instances to remove."""
    nodes = {node.name for node in bench.nodes()}
    targets = tuple(
        RemovalTarget(each if each in nodes else "", f"cn-hangzhou.{each}", each)
        for each in handles
    )
    now = bench.now()
    return new_operation(
        id=op,
        cluster="ours",
        provider="alicloud",
        group=group,
        kind=kind,
        plan="plan",
        created_at=now,
        from_size=start,
        to_size=end,
        due_at=now,
        deadline=now + 7200.0,
        targets=targets,
    )


def drive(bench: AlicloudBench, operation: Operation) -> Outcome:
    """Runs an operation to its end; each step uses a newly built provider, as after a cold start.
    Temporary errors are retried after ten seconds."""
    for _ in range(_MOST):
        try:
            outcome = ask(bench.provider(), operation)
        except (Conflict, Throttled, Transient) as error:
            bench.settle(max(10.0, error.retry_after))
            continue
        if not isinstance(outcome, InProgress):
            return outcome
        operation = operation.with_status(step=outcome.step, data=outcome.data)
        bench.settle(max(1.0, outcome.after))
    raise AssertionError(f"not over after {_MOST} steps: {outcome}")


def seen(bench: AlicloudBench, group: str) -> NodeGroup:
    """Returns the group as the next reconcile pass reads it."""
    return {each.id: each for each in bench.provider().observe(bench.nodes()).groups}[group]
