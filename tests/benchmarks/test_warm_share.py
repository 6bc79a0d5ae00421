"""Share of the passes that read changes, where chance decides which process gets a message.

Every cluster is due once a minute. Lambda gives each message to any process that is free; here all
are alike, which is the worst case, because Lambda prefers those that it used last. A process keeps
lists for ten minutes from their full read.
"""

from __future__ import annotations

import random
from typing import cast

import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.list_state import ListOrigin, ListState
from chalicelib.cluster.live_cluster import KeptLists
from infra.emulators.controllers.clock import ManualClock

MINUTES = 24 * 60
ASKED = "all"


class _AnyCluster:
    """What KeptLists asks of a client."""

    def access(self) -> str:
        return "the same"


def share(clusters: int, processes: int, seed: int = 0) -> float:
    """Return the share of passes in a day that find lists to follow."""
    draws, clock = random.Random(seed), ManualClock(0.0)
    kept = [KeptLists(10**12, clock) for _ in range(processes)]
    kube, origin = cast(KubeClient, _AnyCluster()), ListOrigin("the same", ASKED)
    warm = total = 0
    for _ in range(MINUTES):
        clock.advance(60.0)
        for cluster in range(clusters):
            mine, name = draws.choice(kept), f"c{cluster}"
            lists, _, _ = mine.take(name, origin, "kube-system")
            total += 1
            if lists is None:
                lists = ListState("kube-system")
                lists.versions = {"Node": "1", "Pod": "1"}
                lists.begin(origin, kube, clock())
            else:
                warm += 1
            mine.put(name, lists)
    return warm / total


@pytest.mark.parametrize(
    ("processes", "least", "most"), [(1, 0.89, 0.91), (2, 0.79, 0.86), (20, 0.25, 0.40)]
)
def test_share_of_passes_that_read_changes(processes: int, least: float, most: float) -> None:
    found = share(5, processes)
    print(f"\n{processes} processes: {found:.0%} of the passes read changes")
    assert least <= found <= most
