"""Builds operations as a plan does and runs the provider as queue messages do."""

from __future__ import annotations

from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from tests.operations import ask, new_operation
from tests.providers.cherryservers.fixture import CherryBench

_MOST = 80


def order(
    bench: CherryBench,
    kind: OperationKind,
    group: str,
    start: int,
    end: int,
    *targets: RemovalTarget,
    op: str = "op-0123456789abcdef",
) -> Operation:
    """Builds an operation. targets: the instances to remove."""
    now = bench.now()
    return new_operation(
        id=op,
        cluster="ours",
        provider="cherryservers",
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


def target(instance: Instance) -> RemovalTarget:
    """Returns the removal target that a plan makes of an instance."""
    return RemovalTarget(instance.node, instance.id, instance.handle)


def answer(bench: CherryBench, operation: Operation) -> Outcome | ProviderError:
    """Like `ask`, with a new provider; an error that it raises is returned as the answer."""
    try:
        return ask(bench.provider(), operation)
    except ProviderError as error:
        return error


def follows(operation: Operation, outcome: InProgress) -> Operation:
    """Returns the operation as the table stores it after that step."""
    return operation.with_status(step=outcome.step, data=outcome.data)


def claimed(operation: Operation) -> Operation:
    """Returns the operation as the next attempt claims it; an attempt that died in
    between has been counted."""
    return operation.with_status(attempt=operation.status.attempt + 1)


def drive(bench: CherryBench, operation: Operation) -> Outcome:
    """Runs an operation to its end; each step uses a newly built provider, as after a cold start.
    Temporary errors are retried after ten seconds."""
    for _ in range(_MOST):
        operation = claimed(operation)
        try:
            outcome = ask(bench.provider(), operation)
        except (Conflict, Throttled, Transient) as error:
            bench.settle(max(10.0, error.retry_after))
            continue
        if not isinstance(outcome, InProgress):
            return outcome
        operation = follows(operation, outcome)
        bench.settle(outcome.after)
    raise AssertionError(f"not over after {_MOST} steps: {outcome}")


def seen(bench: CherryBench, group: str) -> NodeGroup:
    """Returns the group as the next reconcile pass reads it."""
    return {each.id: each for each in bench.provider().observe(bench.nodes()).groups}[group]


def orders(bench: CherryBench) -> list[str]:
    """Returns the create requests that have reached the vendor so far, granted
    or refused, by hostname."""
    return [
        call.about.partition(" ")[0] for call in bench.server.log if call.action == "create_server"
    ]
