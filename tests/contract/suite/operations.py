"""What the suite's tests do with a bench: orders as a plan would write them, and the executor that carries them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.model.policy import Options
from chalicelib.operations.registry import run_step
from chalicelib.operations.step_context import StepContext
from chalicelib.providers.base import Observation
from chalicelib.providers.errors import Conflict, ProviderError, Throttled, Transient
from infra.emulators.crash_injection import FunctionKilled
from infra.emulators.fake_cluster import InMemoryCluster
from tests.contract.suite.provider_fixture import ProviderFixture
from tests.contract.suite.recording_provider import Ear, RecordingProvider
from tests.operations import new_operation

STEPS = 120  # more than any operation takes


@dataclass
class OperationDriver:
    """A bench, an ear at its providers, and the cluster that the executor sees."""

    bench: ProviderFixture
    ear: Ear
    cluster: InMemoryCluster = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = InMemoryCluster(self.bench.now)

    def needs(self, what: str) -> None:
        """Skip the test where the vendor does not have that."""
        if what in self.bench.lacks:
            pytest.skip(f"{self.bench.name}: {self.bench.lacks[what]}")

    def provider(self, credential: str = "good") -> RecordingProvider:
        """A fresh one, as a function that has just started builds it."""
        return RecordingProvider(self.bench.provider(credential=credential), self.ear)

    def observe(self) -> Observation:
        """As a pass sees it."""
        return self.provider().observe(self.bench.nodes())

    def group(self, group: str) -> NodeGroup:
        """One group as a pass sees it, which must be able to."""
        found = {each.id: each for each in self.observe().groups}[group]
        assert not found.error
        return found

    def instances(self, group: str) -> list[Instance]:
        """Its running machines with a Node, oldest first."""
        by_handle = {each.handle: each for each in self.group(group).instances if each.state is InstanceState.RUNNING}
        return [by_handle[handle] for handle in self.bench.machines(group) if handle in by_handle]

    # -- orders

    def growth(self, group: str, to: int, *, start: int | None = None, op: str = "grow-1") -> Operation:
        """From the vendor's present target unless told otherwise."""
        return self._order(op, group, OperationKind.SCALE_UP, self.bench.target(group) if start is None else start, to)

    def removal(
        self,
        group: str,
        *instances: Instance,
        kind: OperationKind = OperationKind.DELETE_NODES,
        op: str = "remove-1",
        start: int | None = None,
    ) -> Operation:
        """Of these machines. A discarded one goes without a node's name, as the plan knows none."""
        nodes = {node.provider_id: node.name for node in self.bench.nodes()}
        named = kind is OperationKind.DELETE_NODES
        targets = tuple(
            RemovalTarget(nodes.get(each.id, each.handle) if named else "", each.id, each.handle) for each in instances
        )
        size = self.bench.target(group) if start is None else start
        return self._order(op, group, kind, size, size - len(targets)).with_spec(targets=targets)

    def shrinkage(self, group: str, to: int, *, op: str = "shrink-1") -> Operation:
        """From the vendor's present target."""
        return self._order(op, group, OperationKind.DECREASE_TARGET, self.bench.target(group), to)

    def _order(self, op: str, group: str, kind: OperationKind, start: int, end: int) -> Operation:
        now = self.bench.now()
        return new_operation(
            id=f"{op}-0123456789abcdef",
            cluster="suite",
            provider=self.bench.name,
            group=group,
            kind=kind,
            plan="plan",
            created_at=now,
            from_size=start,
            to_size=end,
            due_at=now,
            deadline=now + 7200.0,
        )

    # -- doing it

    def ask(self, call: Callable[[RecordingProvider], Outcome]) -> Outcome | ProviderError:
        """One call of a fresh provider; an error it raises is an answer too."""
        try:
            return call(self.provider())
        except ProviderError as error:
            return error

    def begin(self, operation: Operation) -> tuple[Outcome | ProviderError, Operation]:
        """The first call that may tell the vendor something, and the operation as the table has it then. A provider
        may only announce at first, for the table, what it will ask for: a Pending that need not wait."""
        answer = self.ask(lambda provider: provider.grow(operation))
        if isinstance(answer, InProgress) and not answer.after:
            operation = _next(operation.with_status(step=answer.step, data=answer.data))
            answer = self.ask(lambda provider: provider.poll(operation))
        return answer, _next(operation)

    def run(self, operation: Operation, *, dies: int = 0) -> Outcome:
        """All steps by the executor, a fresh provider for each, while virtual time passes. dies: so many times a
        function ends right after it has told the vendor something, and another begins with what the table had."""
        now = self.bench.now()
        for _ in range(STEPS):
            operation = _next(operation)
            world = StepContext(self.provider, self._cluster(), Options(), checkpoint=_dying(dies))
            try:
                outcome = run_step(operation, world, now)
            except FunctionKilled:
                dies -= 1
                continue
            self.ear.hear(outcome)
            if not isinstance(outcome, InProgress):
                return outcome
            operation = operation.with_status(step=outcome.step, data=outcome.data)
            self.ear.hear(operation)
            if outcome.after:
                self.bench.settle(outcome.after)
            now = max(now + outcome.after, self.bench.now())
        raise AssertionError(f"not over after {STEPS} steps: {outcome}")

    def drive(self, operation: Operation) -> Outcome:
        """Only what the vendor has to do of it, again and again as messages come, by a fresh provider each time. For an
        operation of which a part was carried out by the test."""
        verb, said = (
            str(
                operation.spec.kind
                if operation.spec.kind is not OperationKind.DELETE_INSTANCES
                else OperationKind.DELETE_NODES
            ),
            InProgress(0.0, ""),
        )
        verb = {"shrink": "shrink_target"}.get(verb, verb)
        for _ in range(STEPS):
            asked = operation.with_status(step=said.step, data=said.data)
            try:
                outcome: Outcome = getattr(self.provider(), verb)(asked)
            except (Conflict, Throttled, Transient) as error:
                self.bench.settle(max(error.retry_after, 10.0))
                continue
            if not isinstance(outcome, InProgress):
                return outcome
            self.bench.settle(max(outcome.after, 1.0))
            verb, said = "poll", outcome
        raise AssertionError(f"not over after {STEPS} calls: {said}")

    def _cluster(self) -> InMemoryCluster:
        """With the Nodes that there are now; what was tainted stays so."""
        there = {node.name: node.provider_id for node in self.bench.nodes()}
        for name in set(self.cluster.nodes) - set(there):
            self.cluster.remove_node(name)
        for name in sorted(set(there) - set(self.cluster.nodes)):
            self.cluster.add_node(name, there[name])
        return self.cluster

    def finish(self, group: str) -> list[str]:
        """Let the vendor finish; the machines there are then."""
        self.bench.settle()
        return self.bench.machines(group)


def _next(operation: Operation) -> Operation:
    """As the next attempt claims it, also after one that died."""
    return operation.with_status(attempt=operation.status.attempt + 1)


def _dying(times: int) -> Callable[[str], None]:
    def checkpoint(place: str) -> None:
        if times:
            raise FunctionKilled(place)

    return checkpoint


def class_of(answer: Outcome | ProviderError) -> str:
    """The error class of what failed, whichever way it was said; `Done` or `Pending` for what did not."""
    if isinstance(answer, Failed | ProviderError):
        return answer.error_class
    return "Done" if isinstance(answer, Succeeded) else "Pending"
