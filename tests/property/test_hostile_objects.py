"""No single object of a cluster can fail the pass, and everything that does not depend on
the object stays unchanged."""

from __future__ import annotations

import random
from functools import cache

import msgspec
import pytest

from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import ObservedGroups
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from tests.property import clusters, corrupted_objects, hostile_tenants
from tests.property.objects import NOW

FEW = 8  # seeds for each kind
_GOOD = 25  # number of random clusters from which the seeds choose
# Kinds of which one object may legitimately change other pods' results: a node adds room, a rule
# object or a ConfigMap changes the configuration.
_COUNTS = frozenset(
    {
        "Node",
        "DaemonSet",
        "ConfigMap",
        "HorizontalNodeAutoscaler",
        "PersistentVolume",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "CSIStorageCapacity",
        "Namespace",
    }
)


def _plan(seed: int, *objects: corrupted_objects.Json) -> Plan:
    """The plan for the cluster of a seed with these additional objects."""
    cluster = clusters.make(seed)
    folder = SnapshotBuilder()
    for name, items in cluster.lists.items():
        folder.add_page(msgspec.json.encode({"kind": "List", "items": items}), name)
    folder.add_page(msgspec.json.encode({"kind": "List", "items": objects}), "hostile")
    groups = tuple(hostile_tenants.group(at) for at in range(3))
    plan, memory = plan_cluster(
        folder.snapshot("c", NOW, ObservedGroups(groups)),
        Policy(name="c"),
        Memory(first_seen=NOW - 86_400),
        NOW,
        1,
    )
    msgspec.json.encode((plan, memory))  # objects that cannot be encoded cannot be saved
    return plan


def _others(plan: Plan) -> dict[str, object]:
    """Results outside the hostile namespace: the placed pods and the removable nodes."""
    return {
        "promised": sorted(
            pod for each in plan.promises for pod in each.pods if not pod.startswith("hostile/")
        ),
        "unneeded": sorted(plan.unneeded),
        "refused": sorted(
            pod
            for each in plan.unschedulable
            for pod in each.pods
            if not pod.startswith("hostile/")
        ),
    }


@cache
def _undisturbed(seed: int) -> dict[str, object]:
    return _others(_plan(seed))


def _try(kind: str, seed: int) -> None:
    draw = random.Random(f"{kind} {seed}")
    cluster = draw.randrange(_GOOD)
    object_ = corrupted_objects.corrupted(kind, draw)
    plan = _plan(cluster, object_)
    if any(gap.place.startswith("hostile") for gap in plan.gaps) and kind not in _COUNTS:
        assert _others(plan) == _undisturbed(cluster), object_


@pytest.mark.parametrize("kind", sorted(corrupted_objects.GOOD))
def test_no_object_of_any_kind_fails_a_pass_or_changes_other_verdicts(kind: str) -> None:
    for seed in range(FEW):
        _try(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(corrupted_objects.GOOD))
def test_no_object_of_two_thousand_seeds_fails_a_pass(kind: str) -> None:
    for seed in range(FEW, 2_000):
        _try(kind, seed)


@pytest.mark.parametrize("kind", sorted(corrupted_objects.GOOD))
def test_uncorrupted_object_can_be_read(kind: str) -> None:
    assert not [
        gap
        for gap in _plan(0, corrupted_objects.good(kind)).gaps
        if gap.place.startswith("hostile")
    ]
