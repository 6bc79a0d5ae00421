"""The incremental counts of the removal simulation equal the counts that
simulation/pod_topology computes from scratch."""

from __future__ import annotations

import random

import numpy as np
import pytest

from chalicelib.model.memory import Memory
from chalicelib.plan.demand.pending_pods import collect_pending_pods
from chalicelib.plan.removal.pod_destinations import IncrementalPodTopology
from chalicelib.plan.simulation.cluster_builder import build
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.tables import ResourceColumns
from chalicelib.policy.settings.cluster_policy import Policy
from tests.property.clusters import make
from tests.property.objects import NOW
from tests.property.snapshot_reader import read


def _floor(seed: int) -> SimulatedCluster:
    """The simulated cluster of a random cluster with many rules between pods."""
    made = make(seed)
    snapshot = read(made.lists, made.manifest, NOW)
    world = build_cluster_state(snapshot, Policy("test"), Memory(), NOW)
    return build(world, collect_pending_pods(world).nominated, ResourceColumns(snapshot.classes))


def _agree(floor: SimulatedCluster, neighbours: IncrementalPodTopology) -> int:
    """Compares every class with rules; returns how many there are."""
    compared = 0
    floor.rows.forget()
    for cls in range(len(floor.classes)):
        needs = floor.needs(cls)
        if needs is None:
            continue
        expected, got = floor.rows.open(needs), neighbours.mask(cls)
        assert np.array_equal(expected, got), (cls, needs)
        assert [neighbours.allows(cls, row) for row in range(len(floor.table))] == got.tolist()
        compared += 1
    return compared


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_incremental_topology_counts_equal_counts_from_scratch(first: int) -> None:
    compared = 0
    for seed in range(first, first + 40):
        floor, draw = _floor(seed), random.Random(seed)
        if not len(floor.table):
            continue
        neighbours = IncrementalPodTopology(floor)
        _agree(floor, neighbours)  # every rule is queried before any change
        for _ in range(12):
            cls, row = draw.randrange(len(floor.classes)), draw.randrange(len(floor.table))
            match draw.randrange(5):
                case 0 | 1:
                    neighbours.count(cls, row, 1)
                case 2:
                    neighbours.leave(row)
                case 3:
                    neighbours.leave(row)
                    neighbours.gone(row)
                case 4:
                    neighbours.stay(row, is_open=True)
            compared += _agree(floor, neighbours)
    assert compared > 200


def test_topology_rules_queried_late_start_from_current_counts() -> None:
    compared = 0
    for seed in range(60):
        floor, draw = _floor(seed), random.Random(seed)
        if not len(floor.table):
            continue
        neighbours = IncrementalPodTopology(floor)
        for _ in range(4):
            neighbours.count(
                draw.randrange(len(floor.classes)), draw.randrange(len(floor.table)), 1
            )
        out = draw.randrange(len(floor.table))
        neighbours.leave(out)
        neighbours.gone(out)
        compared += _agree(floor, neighbours)
        neighbours.stay(out, is_open=True)
        compared += _agree(floor, neighbours)
    assert compared > 20
