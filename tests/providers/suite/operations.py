"""Operations as a plan builds them, and the executor that runs them on a bench."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.operations.runner import run_step
from chalicelib.operations.step_context import StepContext
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import Conflict, ProviderError, Throttled, Transient
from infra.emulators.aws_faults import FunctionKilled
from infra.emulators.fake_cluster import InMemoryCluster
from tests.operations import PROVIDER_METHODS, new_operation
from tests.providers.suite.provider_fixture import NodeLifeFixture, ProviderFixture
from tests.providers.suite.recording_provider import Ear, RecordingProvider

STEPS = 120  # longer than any operation takes


@dataclass
class OperationDriver:
    """A bench, an output recorder for its providers, and the cluster that the executor sees."""

    bench: ProviderFixture
    ear: Ear
    cluster: InMemoryCluster = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = InMemoryCluster(self.bench.now)

    def needs(self, what: str) -> None:
        """Skips the test where the vendor lacks that feature."""
        if what in self.bench.lacks:
            pytest.skip(f"{self.bench.name}: {self.bench.lacks[what]}")

    def life(self, *methods: str) -> NodeLifeFixture:
        """Returns the bench as one with these methods; skips the test where the
        vendor has no such thing."""
        for method in methods:
            if not hasattr(self.bench, method):
                pytest.skip(f"{self.bench.name}: its bench has no {method}")
        return cast(NodeLifeFixture, self.bench)

    def provider(self, credential: str = "good") -> RecordingProvider:
        """Returns a new provider, as a function that has just started builds it."""
        return RecordingProvider(self.bench.provider(credential=credential), self.ear)

    def observe(self) -> Observation:
        """Observes as a reconcile pass does."""
        return self.provider().observe(self.bench.nodes())

    def group(self, group: str) -> NodeGroup:
        """Returns one group as a reconcile pass reads it; fails if it cannot be read."""
        found = {each.id: each for each in self.observe().groups}[group]
        assert not found.error
        return found

    def instances(self, group: str) -> list[Instance]:
        """Returns its running machines with a Node, oldest first."""
        by_handle = {
            each.handle: each
            for each in self.group(group).instances
            if each.state is InstanceState.RUNNING
        }
        return [by_handle[handle] for handle in self.bench.machines(group) if handle in by_handle]

    # -- operations

    def growth(
        self, group: str, to: int, *, start: int | None = None, op: str = "grow-1"
    ) -> Operation:
        """Builds a scale-up from the vendor's current target unless told otherwise."""
        return self._order(
            op,
            group,
            OperationKind.SCALE_UP,
            self.bench.target(group) if start is None else start,
            to,
        )

    def removal(
        self,
        group: str,
        *instances: Instance,
        kind: OperationKind = OperationKind.DELETE_NODES,
        op: str = "remove-1",
        start: int | None = None,
    ) -> Operation:
        """Builds a removal of these machines. An unregistered machine has no node name,
        because the plan knows none."""
        nodes = {node.provider_id: node.name for node in self.bench.nodes()}
        named = kind is OperationKind.DELETE_NODES
        targets = tuple(
            RemovalTarget(nodes.get(each.id, each.handle) if named else "", each.id, each.handle)
            for each in instances
        )
        size = self.bench.target(group) if start is None else start
        return self._order(op, group, kind, size, size - len(targets)).with_spec(targets=targets)

    def shrinkage(self, group: str, to: int, *, op: str = "shrink-1") -> Operation:
        """Builds a target decrease from the vendor's current target."""
        return self._order(op, group, OperationKind.DECREASE_TARGET, self.bench.target(group), to)

    def restart(self, group: str, instance: Instance, *, op: str = "restart-1") -> Operation:
        """Builds a restart of this machine, which has a Node."""
        nodes = {node.provider_id: node for node in self.bench.nodes()}
        node = nodes[instance.id]
        target = RemovalTarget(node.name, instance.id, instance.handle, uid=node.uid)
        size = self.bench.target(group)
        return self._order(op, group, OperationKind.RESTART_NODE, size, size).with_spec(
            targets=(target,)
        )

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

    # -- execution

    def ask(self, call: Callable[[RecordingProvider], Outcome]) -> Outcome | ProviderError:
        """Makes one call with a new provider; an error that it raises is returned as the answer."""
        try:
            return call(self.provider())
        except ProviderError as error:
            return error

    def begin(self, operation: Operation) -> tuple[Outcome | ProviderError, Operation]:
        """Makes the first call that may change something at the vendor; returns the operation as
        the table stores it then. A provider may at first only announce, for the table, what it
        will request: an InProgress without a delay."""
        answer = self.ask(lambda provider: provider.scale_up(operation))
        if isinstance(answer, InProgress) and not answer.after:
            operation = _next(operation.with_status(step=answer.step, data=answer.data))
            answer = self.ask(lambda provider: provider.poll(operation))
        return answer, _next(operation)

    def run(self, operation: Operation, *, dies: int = 0) -> Outcome:
        """Runs all steps with the executor, a new provider for each, while virtual time passes.
        dies: how many times a function ends right after a request to the vendor, and another begins
        with the previous table."""
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
        """Repeats only the vendor's part of an operation, as messages do, with a new provider each
        time. For an operation of which the test itself carried out a part."""
        verb, said = PROVIDER_METHODS[operation.spec.kind], InProgress(0.0, "")
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
        """Builds the cluster with the current Nodes; taints are kept."""
        there = {node.name: node.provider_id for node in self.bench.nodes()}
        for name in set(self.cluster.nodes) - set(there):
            self.cluster.remove_node(name)
        for name in sorted(set(there) - set(self.cluster.nodes)):
            self.cluster.add_node(name, there[name])
        return self.cluster

    def finish(self, group: str) -> list[str]:
        """Lets the vendor finish; returns the machines that exist then."""
        self.bench.settle()
        return self.bench.machines(group)


def _next(operation: Operation) -> Operation:
    """Returns the operation as the next attempt claims it, also after one that died."""
    return operation.with_status(attempt=operation.status.attempt + 1)


def _dying(times: int) -> Callable[[str], None]:
    def checkpoint(place: str) -> None:
        if times:
            raise FunctionKilled(place)

    return checkpoint


def class_of(answer: Outcome | ProviderError) -> str:
    """Returns the error class of a failure, raised or returned; `Done` or
    `Pending` for other outcomes."""
    if isinstance(answer, Failed | ProviderError):
        return answer.error_class
    return "Done" if isinstance(answer, Succeeded) else "Pending"
