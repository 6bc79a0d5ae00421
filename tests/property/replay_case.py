"""A random cluster as a recorded decision."""

from __future__ import annotations

from msgspec.structs import replace

from chalicelib.plan.planner import plan_cluster
from chalicelib.replay.recorded_decision import RecordedDecision
from tests.property.checker import policy_of
from tests.property.clusters import RandomCluster
from tests.property.objects import NOW
from tests.property.snapshot_reader import read


def recorded(cluster: RandomCluster) -> RecordedDecision:
    """The decision of a pass that does not act, as it is recorded."""
    policy, memory = policy_of(cluster), cluster.memory()
    snapshot = read(cluster.lists, cluster.manifest, NOW)
    plan, _ = plan_cluster(snapshot, policy, memory, NOW, 7)
    return RecordedDecision(snapshot, policy, memory, NOW, 7, replace(plan, operations=()))
