"""Two clusters of one deployment share a node group: one of them owns it at a time, and a named
group takes precedence over a discovered one (docs/reference/node-groups.md "Group ownership")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from chalicelib.model.node import Node
from chalicelib.passes.reconciler import handle
from chalicelib.providers.kit.base import Observation
from chalicelib.runtime.messages import ReconcileMessage, encode
from chalicelib.store import Store
from infra.emulators.fake_provider import InMemoryProvider
from tests.functional.operations.harness import OperationHarness

DAY = 86400.0
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}


@dataclass
class Discovering(InMemoryProvider):
    """The same cloud for a cluster that has discovered its groups only through nodes."""

    cloud: InMemoryProvider

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cloud, name)

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """See Provider."""
        seen = self.cloud.observe(nodes)
        return msgspec.structs.replace(
            seen,
            groups=tuple(msgspec.structs.replace(group, discovered=True) for group in seen.groups),
        )


@pytest.fixture
def two(
    stage: OperationHarness, new_store: Callable[..., Store]
) -> Iterator[tuple[OperationHarness, OperationHarness]]:
    """Two clusters, each with a full node of group g and a pending pod that needs a second one."""
    other = OperationHarness(new_store)
    with other.server:
        other.policy()
        for claim in stage.store.group_ownership.all():  # left by an earlier test
            stage.store.group_ownership.release(claim.owner, [(claim.provider, claim.key)])
        for each in (stage, other):
            _furnish(each)
        yield stage, other


def _furnish(stage: OperationHarness) -> None:
    stage.provider.add_pool("g", size=1)
    stage.provider.claim = "one-place"
    stage.kube.create(
        "nodes",
        {
            "metadata": {"name": "g-1"},
            "spec": {"providerID": "memory://g-1"},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": ROOM,
                "capacity": ROOM,
            },
        },
    )
    ask = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]
    stage.pod("full", "g-1", containers=ask)
    stage.pod("waits", containers=ask)
    pod = stage.kube.get("pods", "waits", "default")
    assert pod is not None
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    stage.kube.update("pods", pod)
    stage.clock.advance(10)


def _pass(stage: OperationHarness, others: OperationHarness) -> list[str]:
    """Runs a pass; returns the ids of its planned operations."""
    clock = max(stage.clock(), others.clock()) + 60.0
    for each in (stage, others):
        each.clock.advance(clock - each.clock())
    handle(encode(ReconcileMessage(stage.name, "schedule", stage.clock())).decode(), stage.runtime)
    return [each.spec.id for each in stage.store.operations.list_open(stage.name)]


def _owner(stage: OperationHarness) -> str:
    return next(iter({each.owner for each in stage.store.group_ownership.all()}))


def test_cluster_that_names_a_group_precedes_one_that_discovered_it(
    two: tuple[OperationHarness, OperationHarness],
) -> None:
    thief, owner = two
    found = Discovering(thief.provider)
    thief.providers = lambda: [found]
    assert _pass(thief, owner)
    assert not _pass(owner, thief), "an operation of the other is open on the group"
    thief.play()
    assert _owner(owner) == thief.name
    assert _pass(owner, thief)
    assert _owner(owner) == owner.name
    owner.play()
    assert not _pass(thief, owner)


def test_group_ownership_of_a_cluster_that_is_off_expires_after_a_week(
    two: tuple[OperationHarness, OperationHarness],
) -> None:
    first, second = two
    assert _pass(first, second)
    first.play()
    first.policy("off")
    assert not _pass(second, first)
    second.clock.advance(7.5 * DAY)
    assert _pass(second, first)
    assert _owner(second) == second.name


def test_first_of_two_clusters_that_name_a_group_owns_the_group_indefinitely(
    two: tuple[OperationHarness, OperationHarness],
) -> None:
    first, second = two
    assert _pass(first, second)
    first.play()
    for _ in range(3):
        second.clock.advance(6 * DAY)
        _pass(first, second)
        assert not _pass(second, first)
    assert _owner(second) == first.name


def test_claim_under_a_former_key_keeps_a_group_from_others_until_it_ends(
    two: tuple[OperationHarness, OperationHarness],
) -> None:
    first, second = two
    former = ("clusterapi", f"outscaler/{first.name}/kubeconfig#g")
    assert first.store.group_ownership.claim_groups(second.name, [former]) == {}
    assert not _pass(first, second)
    assert first.store.group_ownership.owners() == {former: second.name}
    first.clock.advance(7.5 * DAY)
    assert _pass(first, second)
    assert first.store.group_ownership.owners()["clusterapi", "one-place#g"] == first.name
