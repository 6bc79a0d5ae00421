"""Managed pools at any vendor: a cluster with an identity, operations that open groups, and an
executor whose steps may be lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, operation_id
from chalicelib.model.outcome import Failed, InProgress, Outcome
from chalicelib.operations.waiting import MAX_TRIES
from chalicelib.providers.kit.base import Observation, PoolMaker, Provider
from chalicelib.providers.kit.errors import Conflict, Throttled, Transient
from chalicelib.providers.kit.services import KubeLists, ListPage
from tests.operations import ask, new_operation

UID = "7f1c0c1e-8a3e-4c7b-9b0e-2f6d1a5b9c11"
OTHER_UID = "00000000-0000-4000-8000-000000000000"
DAY = 86400.0
_NAMESPACES = "/api/v1/namespaces"
_MOST_STEPS = 150


class NamespacesPage(msgspec.Struct, frozen=True):
    """A page of a list, as the cluster's client returns it."""

    body: bytes
    first: bool = True


class IdentifiedWorkload:
    """A cluster whose namespace kube-system has a uid; everything else is in `lists`."""

    def __init__(self, lists: KubeLists, uid: str) -> None:
        self._lists, self._uid = lists, uid

    def list_pages(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> Iterable[ListPage]:
        if path != _NAMESPACES:
            return self._lists.list_pages(path, query=query)
        assert query == {"fieldSelector": "metadata.name=kube-system"}
        item = {"metadata": {"name": "kube-system", "uid": self._uid}}
        return [NamespacesPage(json.dumps({"kind": "NamespaceList", "items": [item]}).encode())]


class ManagedBench(Protocol):
    """What these tests need of a vendor's bench."""

    name: str

    def now(self) -> float: ...

    def nodes(self) -> tuple[Node, ...]: ...

    def provider(self, *, credential: str = "good") -> Provider: ...

    def settle(self, seconds: float = 600.0) -> None: ...


def refreshed(bench: ManagedBench) -> None:
    """Reads the catalogue, as the end of a pass does."""
    provider = bench.provider()
    assert isinstance(provider, PoolMaker)
    provider.refresh_catalogue(buying=False)


def observed(bench: ManagedBench) -> Observation:
    """Returns what a pass sees."""
    return bench.provider().observe(bench.nodes())


def own_group(bench: ManagedBench, name: str) -> NodeGroup:
    """Returns an own group that exists."""
    return {group.id: group for group in observed(bench).groups}[name]


def offered(bench: ManagedBench, instance_type: str, **choice: str) -> NodeGroup:
    """Returns the one candidate of a type. choice: other fields of its machines."""
    wanted = {"instance_type": instance_type, **choice}
    groups = [
        group
        for group in observed(bench).candidates
        if group.managed is not None
        and all(getattr(group.managed.choice, key) == text for key, text in wanted.items())
    ]
    assert len(groups) == 1, [group.managed for group in groups]
    return groups[0]


def growth(
    bench: ManagedBench, node_group: NodeGroup, to_size: int, from_size: int = 0, **changes: Any
) -> Operation:
    """Returns the operation that a plan makes of a candidate, or of an own group. changes: of its
    spec, as a forger makes them."""
    assert node_group.managed is not None
    now, kind = bench.now(), OperationKind.SCALE_UP
    operation = new_operation(
        id=operation_id("ours", node_group.id, kind, from_size, to_size, (), f"plan at {now}"),
        cluster="ours",
        provider=bench.name,
        group=node_group.id,
        kind=kind,
        plan="plan",
        created_at=now,
        from_size=from_size,
        to_size=to_size,
        due_at=now,
        deadline=now + 7200.0,
        choice=node_group.managed.choice,
    )
    return operation.with_spec(**changes)


def carried_out(
    bench: ManagedBench,
    operation: Operation,
    forgets: Callable[[int], bool] = lambda _: False,
    before: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Runs an operation to its end as the executor does: a new provider and a new attempt for each
    step, temporary errors again after a while, at most MAX_TRIES in a row. forgets: whether what a
    step has returned is lost, by the number of calls so far, so that it is repeated with the data
    from before. before: called before each call with its number."""
    tries = 0
    for number in range(_MOST_STEPS):
        before(number)
        operation = operation.with_status(attempt=operation.status.attempt + 1)
        try:
            outcome = ask(bench.provider(), operation)
        except (Conflict, Throttled, Transient) as error:
            tries += 1
            if tries > MAX_TRIES:
                return Failed(error.error_class, error.message, error.code)
            bench.settle(max(10.0, error.retry_after))
            continue
        if forgets(number):
            bench.settle(5.0)
            continue
        tries = 0
        if not isinstance(outcome, InProgress):
            return outcome
        operation = operation.with_status(step=outcome.step, data=outcome.data)
        bench.settle(max(0.1, outcome.after))
    raise AssertionError(f"not over after {_MOST_STEPS} steps: {outcome}")


def failed(outcome: Outcome) -> tuple[str, str]:
    """Returns the class and code of a failure."""
    assert isinstance(outcome, Failed), outcome
    return outcome.error_class, outcome.code
