"""A pass that reads changes has the snapshot, and so the plan, that a pass
that reads everything has.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from chalicelib.cluster.live_cluster import KeptLists, ReadResult, read_live_cluster
from chalicelib.model.memory import Memory
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.property.cluster_history import NOW, UNTIL_ENDED, ClusterHistory, client_of

PASSES = 12


def doubled(piece: bytes) -> bytes:
    return piece + piece


def reordered(piece: bytes) -> bytes:
    lines = piece.splitlines(keepends=True)
    return b"".join(lines[::-1])


def spoilt(piece: bytes) -> bytes:
    return piece.replace(b'"metadata"', b'"metad', 1)


FAULTS: tuple[KubeFault, ...] = (
    KubeFault(path="watch=1", close=True, times=3),
    KubeFault(path="pods.*watch=1", truncate=0),
    KubeFault(path="watch=1", truncate=100, times=5),
    KubeFault(path="watch=1", edit=doubled, times=20),
    KubeFault(path="watch=1", edit=reordered, times=20),
    KubeFault(path="watch=1", edit=spoilt, times=20),
    KubeFault(path="watch=1", status=500, times=4),
    KubeFault(path="watch=1", status=403, body=b"{}"),
    KubeFault(path="limit=1&|limit=1$", status=500, times=8),
)


def plan_of(snapshot: Snapshot) -> bytes:
    plan, after = plan_cluster(snapshot, Policy("prod"), Memory(), NOW, 1)
    return msgspec.json.encode([plan, after])


def read(server: ApiServer, kept: KeptLists | None, results: list[ReadResult]) -> Snapshot:
    kube = client_of(server)
    return read_live_cluster(
        "prod",
        kube if kept is None else kept.client("prod", kube),
        lambda _: ObservedGroups(),
        NOW,
        kept=kept,
        report=results.append,
    )


def histories(
    seed: int, disturb: Callable[[ApiServer, random.Random], None], *, pause: float = 0.0
) -> list[ReadResult]:
    """Compare both ways of reading after each of some bursts of changes, and return how the one was
    read. pause: for how long the server's watches are known to pause, in seconds."""
    draws, results = random.Random(seed), list[ReadResult]()
    kept = KeptLists(10**9, lambda: 0.0, quiet=UNTIL_ENDED)
    with ApiServer(ObjectStore(lambda: NOW, seed=seed), longest_watch=0) as server:
        history = ClusterHistory(server.store, seed)
        for number in range(PASSES):
            history.happen(draws.choice((0, 1, 6, 15)))
            if number:
                disturb(server, draws)
            kept.pace("prod", client_of(server)).note(pause)
            changes = read(server, kept, results)
            server.faults.clear()
            full = read(server, None, [])
            assert msgspec.json.encode(changes) == msgspec.json.encode(full)
            assert plan_of(changes) == plan_of(full)
    return results


@pytest.mark.parametrize("seed", range(3))
def test_changes_give_the_plan_that_a_full_read_gives(seed: int) -> None:
    results = histories(seed, lambda *_: None)
    assert [each.scope for each in results] == [ReadScope.FULL, *[ReadScope.CHANGES] * (PASSES - 1)]
    assert not any(each.reread for each in results)
    assert sum(each.folded for each in results) > PASSES


@pytest.mark.parametrize("seed", range(3, 8))
def test_lost_doubled_reordered_and_compacted_changes_never_change_a_plan(seed: int) -> None:
    def disturb(server: ApiServer, draws: random.Random) -> None:
        server.faults.add(draws.choice(FAULTS))
        if draws.random() < 0.3:
            server.store.forget(draws.choice(("pods", "nodes")))

    results = histories(seed, disturb)
    scopes = Counter(each.scope for each in results)
    assert scopes[ReadScope.CHANGES] > PASSES // 2
    assert any(each.reread for each in results)


@pytest.mark.parametrize("seed", range(8, 14))
def test_changes_of_a_server_that_pauses_are_never_missed(seed: int) -> None:
    """Its watches bring all changes, none, or what a fault leaves of them."""

    def disturb(server: ApiServer, draws: random.Random) -> None:
        silent = KubeFault(path="watch=1", edit=lambda _: b"", times=-1)
        server.faults.add(draws.choice((*[silent] * len(FAULTS), *FAULTS)))
        if draws.random() < 0.3:
            server.store.forget(draws.choice(("pods", "nodes")))

    results = histories(seed, disturb, pause=2.0)
    assert any(each.scope is ReadScope.CHANGES and len(each.reread) < 5 for each in results)
