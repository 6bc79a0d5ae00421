"""Share of the passes that read changes, where chance decides which process gets a message.

Every cluster is due once a minute. Lambda gives each message to any process that is free; here all are alike, which is
the worst case, because Lambda prefers those that it used last. A process keeps lists for ten minutes from their full
read.
"""

from __future__ import annotations

import random
from typing import cast

import pytest

from chalicelib.kube.client import KubeClient
from chalicelib.snapshot.cluster_lists import ClusterLists
from chalicelib.snapshot.live_cluster import KeptLists
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
    kube = cast(KubeClient, _AnyCluster())
    warm = total = 0
    for _ in range(MINUTES):
        clock.advance(60.0)
        for cluster in range(clusters):
            mine, name = draws.choice(kept), f"c{cluster}"
            found = mine.take(name, kube.access(), ASKED)
            total += 1
            if found is None:
                lists = ClusterLists("kube-system")
                lists.versions = {"Node": "1", "Pod": "1"}
                found = mine.start(kube, ASKED, lists)
            else:
                warm += 1
            mine.put(name, found)
    return warm / total


@pytest.mark.parametrize(("processes", "least", "most"), [(1, 0.89, 0.91), (2, 0.79, 0.86), (20, 0.25, 0.40)])
def test_share_of_passes_that_read_changes(processes: int, least: float, most: float) -> None:
    found = share(5, processes)
    print(f"\n{processes} processes: {found:.0%} of the passes read changes")
    assert least <= found <= most
