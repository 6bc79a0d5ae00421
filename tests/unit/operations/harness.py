"""Runs an operation from its first step to its end as queues and table do, with a clock that jumps.

Between any two steps the operation is encoded as JSON: what a step does not put in its outcome
is lost, as in production.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from chalicelib.model.group import Instance
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.operations.runner import run_step
from chalicelib.operations.step_context import Recheck, StepContext
from chalicelib.policy.settings.cluster_options import Options
from infra.emulators.fake_cluster import InMemoryCluster
from infra.emulators.fake_provider import InMemoryProvider
from tests.operations import new_operation

START = 1_795_245_654.0


class HarnessCrash(Exception):
    """The function dies here; nothing after this point runs."""


@dataclass
class OperationFixture:
    """kill_at: the number of the checkpoint (0 is the first) at which the
    function is killed, once."""

    options: Options = field(default_factory=Options)
    kill_at: int | None = None
    now: float = START
    polls: int = 0
    checkpoints: list[str] = field(default_factory=list)
    steps: list[tuple[str, float]] = field(default_factory=list)
    holds: dict[str, Recheck] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = InMemoryCluster(lambda: self.now)
        self.provider = InMemoryProvider(
            polls=self.polls,
            on_delete=self._machine_gone,
            on_restart=lambda machine: self.cluster.reboot_node(machine.node),
        )

    def _machine_gone(self, machine: Instance) -> None:
        self.cluster.remove_node(machine.node)

    def group(self, size: int, *, least: int = 0) -> None:
        """Group `g` with nodes g-1 … g-<size>, all joined."""
        self.provider.add_pool("g", size=size, least=least)
        for name in self.provider.pools["g"].machines:
            self.cluster.add_node(name)

    def checkpoint(self, place: str) -> None:
        self.checkpoints.append(place)
        if self.kill_at is not None and len(self.checkpoints) == self.kill_at + 1:
            raise HarnessCrash(place)

    def world(self) -> StepContext:
        return StepContext(
            lambda: self.provider,
            self.cluster,
            self.options,
            recheck=lambda name: self.holds.get(name, Recheck()),
            checkpoint=self.checkpoint,
        )

    def step(self, operation: Operation) -> tuple[Operation, Outcome]:
        """Runs one delivery of the message; a killed function leaves the operation as it
        was, and SQS delivers again."""
        operation = msgspec.json.decode(msgspec.json.encode(operation), type=Operation)
        self.steps.append((operation.status.step, self.now))
        try:
            outcome = run_step(operation, self.world(), self.now)
        except HarnessCrash:
            self.now += 120.0
            return operation, InProgress(0.0, operation.status.step)
        if isinstance(outcome, InProgress):
            self.now += outcome.after
            operation = operation.with_status(step=outcome.step, data=outcome.data)
        return operation, outcome

    def play(self, operation: Operation, most: int = 500) -> Succeeded | Failed:
        """Runs the operation to its end."""
        for _ in range(most):
            operation, outcome = self.step(operation)
            if not isinstance(outcome, InProgress):
                return outcome
        raise AssertionError(f"no end after {most} steps: {self.steps[-5:]}")

    def play_until(self, operation: Operation, step: str) -> Operation:
        """Runs until `step` is next."""
        for _ in range(100):
            operation, outcome = self.step(operation)
            assert isinstance(outcome, InProgress), outcome
            if operation.status.step == step:
                return operation
        raise AssertionError(f"never came to {step}: {self.steps[-5:]}")


def grow(size: int, to: int, **fields: Any) -> Operation:
    return make(OperationKind.SCALE_UP, from_size=size, to_size=to, **fields)


def remove(
    *nodes: str, evict: dict[str, tuple[str, ...]] | None = None, **fields: Any
) -> Operation:
    targets = tuple(
        RemovalTarget(name, f"memory://{name}", name, (evict or {}).get(name, ())) for name in nodes
    )
    return make(OperationKind.DELETE_NODES, targets=targets, **fields)


def interrupted(
    node: str, *evict: str, leaves_at: float = START + 300.0, **fields: Any
) -> Operation:
    return remove(node, evict={node: evict}, reason="interrupted", leaves_at=leaves_at, **fields)


def restart(node: str, *evict: str, **fields: Any) -> Operation:
    target = RemovalTarget(node, f"memory://{node}", node, evict)
    return make(OperationKind.RESTART_NODE, targets=(target,), **{"reason": "repair", **fields})


def make(kind: OperationKind, **fields: Any) -> Operation:
    known: dict[str, Any] = {
        "id": f"{kind}-1",
        "cluster": "c",
        "provider": "clusterapi",
        "group": "g",
        "plan": "p",
        "created_at": START,
    }
    return new_operation(kind=kind, **{**known, **fields})
