"""Operations as a plan would write them, and the provider driven through them as messages would drive it."""

from __future__ import annotations

from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.providers.base import Provider
from chalicelib.providers.errors import Conflict, ProviderError, Throttled, Transient
from tests.contract.provider_fixtures.cherryservers import CherryBench
from tests.operations import new_operation

_VERBS = {
    OperationKind.SCALE_UP: "grow",
    OperationKind.DECREASE_TARGET: "shrink_target",
    OperationKind.DELETE_NODES: "remove",
    OperationKind.DELETE_INSTANCES: "remove",
}
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
    """targets: what to remove."""
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
    """As a plan names an instance that it has seen."""
    return RemovalTarget(instance.node, instance.id, instance.handle)


def ask(provider: Provider, operation: Operation) -> Outcome:
    """The first call of an operation, or the next one of one that is under way."""
    made: Outcome = getattr(provider, "poll" if operation.status.step else _VERBS[operation.spec.kind])(operation)
    return made


def answer(bench: CherryBench, operation: Operation) -> Outcome | ProviderError:
    """The same by a fresh provider; an error that it raises is an answer too."""
    try:
        return ask(bench.provider(), operation)
    except ProviderError as error:
        return error


def follows(operation: Operation, outcome: InProgress) -> Operation:
    """The operation as the table has it after that step."""
    return operation.with_status(step=outcome.step, data=outcome.data)


def claimed(operation: Operation) -> Operation:
    """As the next attempt claims it; one that died in between has counted."""
    return operation.with_status(attempt=operation.status.attempt + 1)


def drive(bench: CherryBench, operation: Operation) -> Outcome:
    """To its end, each step by a provider that has just been built, as after a cold start. What is temporary is met
    again after ten seconds."""
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
    """The group as the next pass sees it."""
    return {each.id: each for each in bench.provider().observe(bench.nodes()).groups}[group]


def orders(bench: CherryBench) -> list[str]:
    """The creations that have reached the vendor so far, granted or not, by hostname."""
    return [call.about.partition(" ")[0] for call in bench.server.log if call.action == "create_server"]
