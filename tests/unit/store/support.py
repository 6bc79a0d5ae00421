"""Shared parts of the store's tests: stores over one table, counted
requests, and a complete memory.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from typing import Any, TypeVar

import pytest

from chalicelib.model.memory import (
    Backoff,
    BreakerState,
    GroupMemory,
    LearntTemplate,
    Memory,
    NodeMemory,
    ScaleUpRequest,
)
from chalicelib.model.node import Node, Taint
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.store import Lease, Store
from chalicelib.store.table_client import Table
from infra.emulators.aws import create_table
from infra.emulators.aws_faults import AwsFaults
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.dynamodb_local import VARIABLE
from infra.emulators.memory_table import MemoryAccount, MemoryTable
from tests.operations import new_operation

START = 1_795_245_654.25
T = TypeVar("T")

KINDS = (os.environ[VARIABLE],) if VARIABLE in os.environ else ("moto", "memory")
"""What the store's suite runs on; an address is DynamoDB Local's."""
over_the_wire = pytest.mark.parametrize(
    "connected", [kind for kind in KINDS if kind != "memory"], indirect=True
)
"""Marks a test of something that the in-memory table does not have."""
moto_is_lax = pytest.mark.parametrize(
    "connected", [kind for kind in KINDS if kind != "moto"], indirect=True
)
"""Marks a test of something that moto does not check or gets wrong."""

READS = {"GetItem", "BatchGetItem", "Query", "TransactGetItems", "Scan"}


@dataclass
class StoreFixture:
    """One cluster in one table. `store` is created once; `fresh` creates another, as
    a new process would have."""

    table: str
    cluster: str
    client: Any
    clock: ManualClock
    faults: AwsFaults
    waits: list[float] = field(default_factory=list)
    _store: Store | None = None

    @property
    def store(self) -> Store:
        """The store for most of a test."""
        if self._store is None:
            self._store = self.fresh()
        return self._store

    def fresh(self, *, faults: AwsFaults | None = None) -> Store:
        """Returns a store without cached state. Its waits only record their length."""
        return Store(
            self.table,
            clock=self.clock,
            sleep=self.waits.append,
            chance=lambda: 0.5,
            client=self.client,
            wrap=(faults or self.faults).wrap,
            table=table_class(self.client),
        )

    def lease(self, owner: str = "reconcile-1") -> Lease:
        """Takes the cluster's lease, for a minute."""
        return self.store.leases.acquire(self.cluster, owner, 60.0)

    def save(
        self, before: Memory, after: Memory, *operations: Operation, owner: str = "reconcile-1"
    ) -> None:
        """Saves once under its own lease."""
        lease = self.lease(owner)
        self.store.memory.save(self.cluster, before, after, operations, lease)
        self.store.leases.release(lease)

    def load(self) -> Memory:
        """Loads as the next pass would."""
        return self.store.memory.load(self.cluster)

    def operation(self, name: str, **values: Any) -> Operation:
        """A planned scale-up of group `workers`."""
        given: dict[str, Any] = {
            "id": f"grow-{name}",
            "cluster": self.cluster,
            "provider": "clusterapi",
            "group": "workers",
            "kind": OperationKind.SCALE_UP,
            "plan": "plan-1",
            "created_at": START,
            "from_size": 1,
            "to_size": 2,
        }
        return new_operation(**given | values)

    def planned(self, *operations: Operation) -> None:
        """Operations saved by a pass that changed nothing else."""
        memory = self.load()
        self.save(memory, memory, *operations)


def new_table(client: Any) -> str:
    """A store's tables under a new name, in moto, in memory or in DynamoDB Local."""
    name = f"outscaler-{uuid.uuid4().hex}"
    if isinstance(client, MemoryAccount):
        client.create(name)
    else:
        create_table(client, name, expires=False)  # the clock of these tests is not the service's
    return name


def table_class(client: Any) -> type[Table]:
    """The store's class for this client."""
    return MemoryTable if isinstance(client, MemoryAccount) else Table


class RequestCounter:
    """Counts the requests that reach DynamoDB, by botocore's own events: `with
    Counter(bench) as counter:`."""

    def __init__(self, bench: StoreFixture) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.items_read = 0
        self._events = bench.client.meta.events
        self._hooks: dict[str, Callable[..., None]] = {
            "provide-client-params.dynamodb.*": self._sent,
            "after-call.dynamodb.*": self._answered,
        }

    def __enter__(self) -> RequestCounter:
        for event, hook in self._hooks.items():
            self._events.register(event, hook)
        return self

    def __exit__(self, *error: object) -> None:
        for event, hook in self._hooks.items():
            self._events.unregister(event, hook)

    @property
    def items_written(self) -> int:
        """Rows put, updated or deleted."""
        return sum(
            self._written(name, arguments) for name, arguments in self.requests if name not in READS
        )

    def _sent(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests.append((model.name, params))

    def _answered(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name == "GetItem":
            self.items_read += 1  # an absent row costs as well
        elif model.name in READS:
            self.items_read += len(parsed.get("Items", [])) + sum(
                map(len, parsed.get("Responses", {}).values())
            )

    @staticmethod
    def _written(name: str, arguments: dict[str, Any]) -> int:
        if name != "TransactWriteItems":
            return 1
        return sum("ConditionCheck" not in item for item in arguments["TransactItems"])


def all_at_once(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Runs the calls in threads that begin together; returns each one's result or
    the exception it raised."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | Exception:
        barrier.wait(timeout=600)
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def full_memory(operations: tuple[Operation, ...] = ()) -> Memory:
    """A memory with every field set, in whole seconds and fractions."""
    node = Node(
        name="template-workers",
        labels={"b": "2", "a": "1"},
        allocatable={"cpu": 3900, "pods": 110},
        taints=(Taint("dedicated", "NoSchedule", "gpu"),),
        created=START,
    )
    return Memory(
        groups={
            "workers": GroupMemory(
                target=4,
                request=ScaleUpRequest(2, START, START + 900),
                last_add=START - 0.1,
                last_delete=5,
                backoff=Backoff(
                    300,
                    START + 300,
                    START,
                    cls="OutOfStock",
                    code="stock",
                    message="none",
                    attempt=2,
                ),
                last_failure=START,
                size_wrong_since=START,
                size_wrong=(3, 4),
                failed_instances=("i-1", "i-2"),
                repair_failures=2,
                repair_after=START,
            ),
            "zone/a#pool": GroupMemory(),
        },
        nodes={
            "n1": NodeMemory(START, START + 1, 0.0),
            "n2": NodeMemory(unremovable_until=START + 300),
        },
        unregistered={"clusterapi://m-1": START},
        templates={"workers": LearntTemplate(node, START)},
        operations=operations,
        last_scale_up=START,
        last_scale_down=START - 60,
        last_scale_down_failure=START - 120,
        first_seen=START - 3600,
        breaker=BreakerState(((START - 60, 3, 40), (START, 1, 0)), tripped_at=START, wanted=12),
    )
