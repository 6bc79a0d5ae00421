"""Claims of one plan that compete for the same free volumes: each volume is assigned once,
whichever node its pod gets."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.reasons.no_place import no_place
from tests.builders import NOW
from tests.builders import node as built
from tests.unit.plan.storage_objects import (
    DRIVER,
    HOST,
    NO_PROVISIONER,
    PUBLISHES,
    ZONE,
    Json,
    StorageObjectsCluster,
    affinity,
    asks,
    claim,
    csi_node,
    left,
    node,
    pod,
    storage_class,
    uses,
    volume,
)

REFUSED = {
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    "phase": "Pending",
}
READY = {
    "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
}


def wants(name: str, *volumes: Json) -> Json:
    """A pod that the scheduler has rejected."""
    return {**pod(name, *volumes), "status": REFUSED}


def there(name: str, zone: str = "a") -> Json:
    """A ready node."""
    made = node(name, zone)
    return {**made, "status": {**made["status"], **READY}}


def planned(objects: Sequence[Json], *, zones: Sequence[str] = ()) -> Plan:
    """Plans with one expandable group per zone, whose nodes hold two pods each."""
    groups = tuple(
        NodeGroup(
            id=f"g-{zone}", provider="test", max=9, template=built("t", "8", pods=2, zone=zone)
        )
        for zone in zones
    )
    snapshot = msgspec.structs.replace(StorageObjectsCluster(*objects).snapshot, groups=groups)
    return plan_cluster(snapshot, Policy(name="test", mode=Mode.ACTIVE), Memory(), NOW, 0)[0]


def got(plan: Plan) -> int:
    """Pods with a placement."""
    return len(plan.fits_existing) + sum(len(up.pods) for up in plan.scale_ups)


TWO = [wants("p0", uses("c0")), wants("p1", uses("c1"))]
CLAIMS = [claim("c0"), claim("c1")]


@pytest.mark.parametrize(
    ("volumes", "pods"),
    [
        pytest.param([volume("v0")], 1, id="one-volume"),
        pytest.param([volume("v0"), volume("v1")], 2, id="two-volumes"),
        pytest.param(
            [volume("v0", **affinity(ZONE, "a")), volume("v1", **affinity(ZONE, "b"))],
            2,
            id="one-per-zone",
        ),
        pytest.param(
            [volume("v0", **affinity(ZONE, "c")), volume("v1", **affinity(ZONE, "a"))],
            1,
            id="one-elsewhere",
        ),
        pytest.param(
            [volume("v0", capacity={"storage": "1Gi"}), volume("v1")], 1, id="one-too-small"
        ),
        pytest.param(
            [volume("v0", claimRef={"namespace": "default", "name": "c1"}), volume("v1")],
            2,
            id="one-set-aside",
        ),
    ],
)
def test_free_volume_is_assigned_to_one_claim(volumes: list[Json], pods: int) -> None:
    plan = planned([there("n0", "a"), there("n1", "b"), NO_PROVISIONER, *CLAIMS, *TWO, *volumes])
    assert len(plan.fits_existing) == pods
    left_out = [reason.code for each in plan.unschedulable for reason, _ in each.against]
    assert left_out == [ReasonCode.NOTHING_TO_BIND] * (2 - pods)


@pytest.mark.parametrize(("count", "pods", "nodes"), [(0, 0, 0), (1, 1, 1), (3, 3, 2), (9, 5, 3)])
def test_new_nodes_are_bought_only_for_as_many_pods_as_volumes_are_free(
    count: int, pods: int, nodes: int
) -> None:
    objects = [NO_PROVISIONER, *(volume(f"v{at}") for at in range(count))]
    objects += [
        each for at in range(5) for each in (claim(f"c{at}"), wants(f"p{at}", uses(f"c{at}")))
    ]
    plan = planned(objects, zones=("a",))
    assert [(up.to_size, len(up.pods)) for up in plan.scale_ups] == (
        [(nodes, pods)] if nodes else []
    )


def test_free_volumes_of_two_zones_need_a_node_in_each() -> None:
    objects = [
        NO_PROVISIONER,
        *CLAIMS,
        *TWO,
        volume("v0", **affinity(ZONE, "a")),
        volume("v1", **affinity(ZONE, "b")),
    ]
    assert {up.group: len(up.pods) for up in planned(objects, zones=("a", "b")).scale_ups} == {
        "g-a": 1,
        "g-b": 1,
    }


def test_volumes_used_on_existing_nodes_are_not_free_for_new_ones() -> None:
    objects = [there("n0"), NO_PROVISIONER, *CLAIMS, *TWO, volume("v0")]
    plan = planned(objects, zones=("a",))
    assert (len(plan.fits_existing), plan.scale_ups) == (1, ())
    assert [reason.code for reason in plan.unschedulable[0].reasons["g-a"]] == [
        ReasonCode.NOTHING_TO_BIND
    ]


def test_pods_of_different_workloads_and_sizes_share_the_free_volumes() -> None:
    """The smaller claim gets the small volume, so the large one remains for the other claim."""
    objects = [
        there("n0"),
        NO_PROVISIONER,
        claim("c0", size="5Gi"),
        claim("c1"),
        *TWO,
        volume("v0"),
        volume("v1", capacity={"storage": "5Gi"}),
    ]
    assert len(planned(objects).fits_existing) == 2
    assert (
        len(planned([each for each in objects if each["metadata"]["name"] != "v1"]).fits_existing)
        == 1
    )


def test_sibling_pods_with_ephemeral_volumes_take_one_volume_each() -> None:
    objects = [
        there("n0"),
        NO_PROVISIONER,
        volume("v0"),
        volume("v1"),
        *(wants(f"p{at}", asks("1Gi")) for at in "012"),
        *(claim(f"p{at}-v0", size="1Gi") for at in "012"),
    ]
    assert len(planned(objects).fits_existing) == 2


def test_pods_that_share_a_claim_share_its_volume_and_its_place() -> None:
    objects = [
        there("n0", "a"),
        there("n1", "b"),
        NO_PROVISIONER,
        claim("c0"),
        volume("v0", **affinity(ZONE, "b")),
        *(wants(f"p{at}", uses("c0")) for at in "0123"),
    ]
    plan = planned(objects)
    assert len(plan.fits_existing) == 4
    assert {promise.node for promise in plan.promises} == {"n1"}


def test_pod_does_not_wait_for_a_free_volume_where_one_can_be_provisioned() -> None:
    assert (
        len(planned([there("n0"), storage_class(), *CLAIMS, *TWO, volume("v0")]).fits_existing) == 2
    )


def test_published_storage_capacity_is_checked_for_each_claim_separately() -> None:
    """As in the scheduler: 15Gi are enough for a claim of 10Gi, and for a second one."""
    objects = [there("n0"), storage_class(), PUBLISHES, left("15Gi", ""), *CLAIMS, *TWO]
    assert len(planned(objects).fits_existing) == 2


def test_nominated_pod_has_taken_its_volume() -> None:
    first = {**TWO[0], "status": {**REFUSED, "nominatedNodeName": "n0"}}
    assert (
        planned([there("n0"), NO_PROVISIONER, *CLAIMS, first, TWO[1], volume("v0")]).fits_existing
        == ()
    )


def test_volumes_bound_to_host_names_are_assigned_per_host() -> None:
    objects = [
        *(there(f"n{at}") for at in range(4)),
        NO_PROVISIONER,
        *(volume(f"v{at}", **affinity(HOST, f"n{at}")) for at in range(3)),
    ]
    objects += [
        each for at in range(4) for each in (claim(f"c{at}"), wants(f"p{at}", uses(f"c{at}")))
    ]
    plan = planned(objects, zones=("a",))
    assert got(plan) == 3
    assert sorted(promise.node for promise in plan.promises) == ["n0", "n1", "n2"]


def test_estimate_of_a_group_counts_every_free_volume_once() -> None:
    """Three pods would fit on a node in zone a, but only one volume is free there."""
    free = [volume(f"v{at}", **affinity(ZONE, zone)) for at, zone in enumerate("abb")]
    pods = [
        each
        for at in "012"
        for each in (wants(f"p{at}", asks("1Gi")), claim(f"p{at}-v0", size="1Gi"))
    ]
    groups = tuple(
        NodeGroup(
            id=f"g-{zone}", provider="test", max=9, template=built("t", "8", pods=fit, zone=zone)
        )
        for zone, fit in (("a", 3), ("b", 2))
    )
    snapshot = StorageObjectsCluster(NO_PROVISIONER, *free, *pods).snapshot
    options = Options(max_nodes_total=1, expander=("most-pods",))
    policy = Policy(name="test", mode=Mode.ACTIVE, options=options)
    plan = plan_cluster(msgspec.structs.replace(snapshot, groups=groups), policy, Memory(), NOW, 0)[
        0
    ]
    assert [(each.group, each.option_nodes, each.option_pods) for each in plan.groups] == [
        ("g-a", 1, 1),
        ("g-b", 1, 2),
    ]
    assert [(up.group, len(up.pods)) for up in plan.scale_ups] == [("g-b", 2)]


def test_full_group_in_the_zone_of_a_volume_is_nearer_than_groups_elsewhere() -> None:
    objects = (wants("p0", uses("data")), claim(volume="pv"), volume("pv", {ZONE: "a"}))
    groups = tuple(
        NodeGroup(id=f"g-{zone}", provider="test", max=most, template=built("t", "8", zone=zone))
        for zone, most in (("a", 0), ("b", 9), ("c", 9))
    )
    snapshot = msgspec.structs.replace(StorageObjectsCluster(*objects).snapshot, groups=groups)
    plan = plan_cluster(snapshot, Policy(name="test", mode=Mode.ACTIVE), Memory(), NOW, 0)[0]
    assert no_place(plan.unschedulable[0]).line == (
        "g-a: max node group size reached (max 0); 2 other groups: volume in another zone 2"
    )


def test_pod_with_too_many_volumes_names_the_driver_and_its_limit() -> None:
    pods = [wants("p0", *[asks("1Gi")] * 3), *(claim(f"p0-v{at}", size="1Gi") for at in range(3))]
    snapshot = StorageObjectsCluster(
        there("n0"), csi_node("n0", 2), storage_class(), *pods
    ).snapshot
    members = (Instance(id="i0", handle="i0", node="n0"),)
    group = NodeGroup(
        id="g", provider="test", max=9, target=1, template=built("t", "8"), instances=members
    )
    snapshot = msgspec.structs.replace(snapshot, groups=(group,))
    plan = plan_cluster(snapshot, Policy(name="test", mode=Mode.ACTIVE), Memory(), NOW, 0)[0]
    too_many = Reason.of(ReasonCode.VOLUME_COUNT, driver=DRIVER, max=2)
    assert [verdict.reasons for verdict in plan.unschedulable] == [{"g": (too_many,)}]
    assert plan.unschedulable[0].against == ((too_many, 1),)
