"""Volumes: zones, node affinity, binding, restrictions and attach limits
(docs/reference/scheduling.md "Volumes").
"""

from __future__ import annotations

import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from tests.unit.plan.storage_objects import (
    DRIVER,
    HOST,
    NO_PROVISIONER,
    OLD_ZONE,
    PUBLISHES,
    REGION,
    ZONE,
    Json,
    StorageObjectsCluster,
    affinity,
    asks,
    claim,
    csi,
    csi_node,
    left,
    node,
    pod,
    storage_class,
    uses,
    volume,
)

A, B, BARE = node("a1", "a"), node("b1", "b"), node("bare")
NODES = (A, B, BARE)
P0 = pod("p0", uses("data"))


@pytest.mark.parametrize(
    ("labels", "fits_on"),
    [
        pytest.param({ZONE: "a__b"}, {"a1", "b1", "bare"}, id="P34-a-set"),
        pytest.param({ZONE: "b__c"}, {"b1", "bare"}, id="P34-another-zone"),
        pytest.param({OLD_ZONE: "a"}, {"a1", "bare"}, id="old-label"),
        pytest.param({ZONE: "a__"}, {"a1", "b1", "bare"}, id="malformed"),
        pytest.param({REGION: "eu"}, {"bare"}, id="a-region-that-zoned-nodes-do-not-name"),
    ],
)
def test_bound_volume_limits_its_pod_to_the_volumes_zone(labels: Json, fits_on: set[str]) -> None:
    seen = StorageObjectsCluster(*NODES, P0, claim(volume="pv"), volume("pv", labels))
    assert seen.fitting() == fits_on
    for name in {"a1", "b1", "bare"} - fits_on:
        assert seen.why(name) == (Reason.of(ReasonCode.VOLUME_ZONE, volume="pv"),)


@pytest.mark.parametrize(
    ("objects", "fits_on"),
    [
        pytest.param((storage_class(waits=False), claim()), set(), id="P35-immediate"),
        pytest.param(
            (
                storage_class(
                    allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
                ),
                claim(),
            ),
            {"a1"},
            id="P35-waits-allowed-in-a",
        ),
        pytest.param((storage_class(), claim()), {"a1", "b1", "bare"}, id="made-anywhere"),
        pytest.param((claim(),), set(), id="no-such-class"),
        pytest.param(
            (storage_class(allowedTopologies=[{}]), claim()),
            set(),
            id="an-empty-topology-term-is-nowhere",
        ),
        pytest.param((NO_PROVISIONER, claim()), set(), id="nobody-makes-one"),
        pytest.param(
            (NO_PROVISIONER, claim(), volume("pv", **affinity(HOST, "b1"))),
            {"b1"},
            id="a-free-one-on-b1",
        ),
        pytest.param(
            (NO_PROVISIONER, claim(), volume("pv", capacity={"storage": "9Gi"})),
            set(),
            id="too-small",
        ),
        pytest.param(
            (NO_PROVISIONER, claim(), volume("pv", volumeMode="Block")), set(), id="another-mode"
        ),
        pytest.param(
            (NO_PROVISIONER, claim(modes=["ReadWriteMany"]), volume("pv")),
            set(),
            id="another-access-mode",
        ),
        pytest.param(
            (NO_PROVISIONER, claim(), volume("pv", status={"phase": "Released"})),
            set(),
            id="released",
        ),
        pytest.param(
            (
                NO_PROVISIONER,
                claim(),
                volume("pv", meta={"deletionTimestamp": "2026-11-21T00:00:00Z"}),
            ),
            set(),
            id="being-deleted",
        ),
        pytest.param(
            (
                NO_PROVISIONER,
                claim(),
                volume("pv", claimRef={"namespace": "default", "name": "other"}),
            ),
            set(),
            id="claimed",
        ),
        pytest.param(
            (
                NO_PROVISIONER,
                claim(selector={"matchLabels": {"k": "v"}}),
                volume("pv"),
                volume("pw", {"k": "v"}),
            ),
            {"a1", "b1", "bare"},
            id="selected",
        ),
        pytest.param(
            (
                NO_PROVISIONER,
                claim(),
                volume("pv"),
                volume(
                    "pw", claimRef={"namespace": "default", "name": "data"}, **affinity(HOST, "b1")
                ),
            ),
            {"b1"},
            id="set-aside",
        ),
        pytest.param(
            (
                storage_class(),
                claim(meta={"annotations": {"volume.kubernetes.io/selected-node": "b1"}}),
            ),
            {"b1"},
            id="promised-to-b1",
        ),
        pytest.param(
            (claim(volume="pv"), volume("pv", **affinity(ZONE, "b"))), {"b1"}, id="bound-to-b"
        ),
        pytest.param(
            (
                claim(volume="pv"),
                volume("pv", nodeAffinity={"required": {"nodeSelectorTerms": []}}),
            ),
            set(),
            id="bound-to-nowhere",
        ),
        pytest.param((claim(volume="pv"),), set(), id="bound-to-a-volume-that-is-gone"),
        pytest.param(
            (claim(volume="pv") | {"status": {"phase": "Pending"}}, storage_class(), volume("pv")),
            set(),
            id="prebound",
        ),
        pytest.param(
            (claim(meta={"deletionTimestamp": "2026-11-21T00:00:00Z"}), storage_class()),
            set(),
            id="going",
        ),
        pytest.param((), set(), id="missing"),
    ],
)
def test_claim_limits_the_nodes_of_its_pod(objects: tuple[Json, ...], fits_on: set[str]) -> None:
    assert StorageObjectsCluster(*NODES, P0, *objects).fitting() == fits_on


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param(
            (storage_class(waits=False), claim()),
            Reason.of(ReasonCode.UNBOUND_IMMEDIATE, claim="data"),
            id="P35",
        ),
        pytest.param((), Reason.of(ReasonCode.CLAIM_NOT_FOUND, claim="data"), id="missing"),
        pytest.param(
            (claim(meta={"deletionTimestamp": "2026-11-21T00:00:00Z"}),),
            Reason.of(ReasonCode.CLAIM_BEING_DELETED, claim="data"),
            id="going",
        ),
        pytest.param(
            (claim(volume="pv"), volume("another")),
            Reason.of(ReasonCode.VOLUME_NOT_FOUND, volume="pv"),
            id="its-volume-is-gone",
        ),
    ],
)
def test_pod_whose_volumes_fit_nowhere_has_a_reason_and_no_node(
    objects: tuple[Json, ...], reason: Reason
) -> None:
    seen = StorageObjectsCluster(*NODES, P0, *objects)
    assert seen.volumes.nowhere(seen.cls) == reason
    assert not seen.volumes.mask(seen.cls, seen.table).any()


@pytest.mark.parametrize(
    ("capacities", "fits_on"),
    [
        pytest.param((left("10Gi", "a"),), {"a1"}, id="enough-in-a"),
        pytest.param((left("9Gi", ""),), set(), id="too-little"),
        pytest.param((left("90Gi", "", largest="9Gi"),), set(), id="none-so-large"),
        pytest.param(
            (left("1Gi", "", largest="10Gi"),),
            {"a1", "b1", "bare"},
            id="the-largest-counts-if-it-is-said",
        ),
        pytest.param((left("90Gi"),), set(), id="reaches-no-node"),
        pytest.param((left("90Gi", "", of="slow"),), set(), id="another-class"),
        pytest.param((left("9Gi", "a"), left("10Gi", "b")), {"b1"}, id="one-of-two"),
        pytest.param((left(None, ""),), set(), id="says-nothing"),
    ],
)
def test_remaining_storage_capacity_of_a_driver_limits_claims(
    capacities: tuple[Json, ...], fits_on: set[str]
) -> None:
    seen = StorageObjectsCluster(*NODES, P0, claim(), storage_class(), PUBLISHES, *capacities)
    assert seen.fitting() == fits_on
    for name in {"a1", "b1", "bare"} - fits_on:
        assert seen.why(name) == (Reason.of(ReasonCode.STORAGE_CAPACITY, claim="data"),)
    assert StorageObjectsCluster(*NODES, P0, claim(), storage_class(), *capacities).fitting() == {
        "a1",
        "b1",
        "bare",
    }


def test_two_claims_of_one_pod_need_two_volumes() -> None:
    both = pod("p0", uses("data"), uses("logs"))
    one = (NO_PROVISIONER, claim(), claim("logs"), volume("v1", **affinity(HOST, "a1", "b1")))
    assert StorageObjectsCluster(*NODES, both, *one).fitting() == set()
    assert StorageObjectsCluster(
        *NODES, both, *one, volume("v2", **affinity(HOST, "a1"))
    ).fitting() == {"a1"}


def test_smallest_claim_gets_the_smallest_volume() -> None:
    both = pod("p0", uses("big"), uses("data"))
    objects = (
        NO_PROVISIONER,
        claim("big", size="20Gi"),
        claim(),
        volume("v2"),
        volume("v1", capacity={"storage": "20Gi"}),
    )
    assert StorageObjectsCluster(A, both, *objects).fitting() == {"a1"}


@pytest.mark.parametrize(
    ("source", "other", "conflict"),
    [
        pytest.param({"gcePersistentDisk": {"pdName": "d"}}, None, True, id="gce"),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}}, None, False, id="gce-readers"
        ),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            {"gcePersistentDisk": {"pdName": "d"}},
            True,
            id="gce-one-writes",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "d", "readOnly": True}},
            None,
            True,
            id="ebs-even-readers",
        ),
        pytest.param(
            {"iscsi": {"iqn": "i", "lun": 0}},
            {"iscsi": {"iqn": "i", "lun": 1}},
            True,
            id="iscsi-whatever-lun",
        ),
        pytest.param(
            {"rbd": {"monitors": ["m", "n"], "image": "i"}},
            {"rbd": {"monitors": ["n"], "image": "i"}},
            True,
            id="rbd",
        ),
        pytest.param(
            {"rbd": {"monitors": ["m"], "image": "i"}},
            {"rbd": {"monitors": ["n"], "image": "i"}},
            False,
            id="rbd-of-other-monitors",
        ),
        pytest.param(
            {"rbd": {"monitors": ["m"], "image": "i"}},
            {"rbd": {"monitors": ["m"], "image": "i", "pool": "p"}},
            False,
            id="rbd-of-another-pool",
        ),
    ],
)
def test_disk_conflict_excludes_a_node_and_limits_pods_per_node(
    source: Json, other: Json | None, conflict: bool
) -> None:
    seen = StorageObjectsCluster(A, B, pod("p0", source), pod("there", other or source, on="a1"))
    assert seen.fitting() == ({"b1"} if conflict else {"a1", "b1"})
    assert seen.why("a1") == ((Reason.of(ReasonCode.DISK_CONFLICT),) if conflict else ())
    assert seen.volumes.clash(seen.cls, seen.classes["there"]) is conflict
    if other is None:
        assert seen.volumes.per_node(seen.cls) == (1 if conflict else None)


def test_read_write_once_pod_claim_is_used_by_one_pod_of_the_cluster() -> None:
    objects = (A, B, P0, claim(volume="pv", modes=["ReadWriteOncePod"]), volume("pv"))
    free = StorageObjectsCluster(*objects)
    assert (free.fitting(), free.volumes.most(free.cls)) == ({"a1", "b1"}, 1)
    taken = StorageObjectsCluster(*objects, pod("there", uses("data"), uses("data"), on="b1"))
    assert taken.volumes.nowhere(taken.cls) == Reason.of(ReasonCode.EXCLUSIVE_CLAIM, claim="data")
    gone = StorageObjectsCluster(*objects, pod("there", uses("data"), on="b1", phase="Failed"))
    assert gone.volumes.nowhere(gone.cls) is None


def test_running_pod_with_a_read_write_once_pod_claim_may_move() -> None:
    seen = StorageObjectsCluster(
        A,
        B,
        pod("p0", uses("data"), on="a1"),
        claim(volume="pv", modes=["ReadWriteOncePod"]),
        volume("pv"),
    )
    assert seen.volumes.nowhere(seen.cls) is not None
    assert seen.volumes.nowhere(seen.cls, moving=True) is None


def test_attached_volumes_are_counted_once_per_node() -> None:
    seen = StorageObjectsCluster(
        A,
        B,
        pod("p0", uses("data"), uses("logs"), asks("1Gi")),
        storage_class(),
        claim(volume="v"),
        claim("logs"),
        claim("p0-v2"),
        volume("v", **csi("1")),
        csi_node("a1", 5),
        pod("one", uses("data"), on="a1"),
        pod("two", uses("data"), asks("2Gi"), on="a1"),
        claim("two-v1", volume="w"),
        volume("w", **csi("2")),
        volume("nfs"),
        pod("done", uses("logs"), on="a1", phase="Succeeded"),
    )
    assert seen.volumes.attached() == {("a1", DRIVER): 2}
    assert seen.volumes.attaches(seen.cls) == {DRIVER: (1, 2)}
    assert len(seen.volumes.shared(seen.cls).intersection(seen.volumes.in_use("a1"))) == 1
    assert not seen.volumes.in_use("b1")
    assert (seen.volumes.limits("a1"), seen.volumes.limits("b1")) == ({DRIVER: 5}, {})


@pytest.mark.parametrize(
    ("volumes", "fits"),
    [
        pytest.param((uses("data"),), True, id="what-is-there-already"),
        pytest.param((), True, id="none"),
        pytest.param((uses("new"),), False, id="a-new-one"),
        pytest.param((uses("data"), uses("new")), False, id="a-new-one-beside-what-is-there"),
        pytest.param((asks("1Gi"),), False, id="one-of-its-own"),
    ],
)
def test_node_over_its_attach_limit_accepts_pods_without_new_volumes(
    volumes: tuple[Json, ...], fits: bool
) -> None:
    """As in the scheduler, which counts only new volumes and skips the check if there are none."""
    pending = pod("p0", *volumes)
    pending["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    ]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    seen = StorageObjectsCluster(
        {**A, "status": {**A["status"], **ready}},
        pending,
        storage_class(),
        csi_node("a1", 1),
        pod("one", uses("data"), uses("logs"), on="a1"),
        claim("data", volume="v"),
        claim("logs", volume="w"),
        claim("new", volume="x"),
        volume("v", **csi("1")),
        volume("w", **csi("2")),
        volume("x", **csi("3")),
        claim("p0-v0"),
    )
    plan, _ = plan_cluster(seen.snapshot, Policy(name="test"), Memory(), 3600.0, 0)
    assert list(plan.fits_existing) == (["default/p0"] if fits else [])
    assert [pod for verdict in plan.unschedulable for pod in verdict.pods] == (
        [] if fits else ["default/p0"]
    )


@pytest.mark.parametrize(
    ("source", "concerned"),
    [
        ({"emptyDir": {}}, False),
        ({"configMap": {"name": "c"}}, False),
        ({"csi": {"driver": "d"}}, False),
        ({"nfs": {"server": "s", "path": "/"}}, False),
        ({"fc": {}}, False),
        (uses("data"), True),
        (asks("1Gi"), True),
        ({"iscsi": {"iqn": "i"}}, True),
        ({"azureDisk": {"diskURI": "d"}}, True),
        ({"unheardOf": {}}, True),
    ],
)
def test_pod_volumes_that_need_no_check_are_skipped(source: Json, concerned: bool) -> None:
    seen = StorageObjectsCluster(A, pod("p0", source))
    assert seen.volumes.concerns(seen.cls) is concerned


def test_unknown_volume_type_never_fits() -> None:
    seen = StorageObjectsCluster(A, pod("p0", {"unheardOf": {}}))
    assert seen.volumes.nowhere(seen.cls) == Reason.of(ReasonCode.NOT_SIMULATED, what="volumes")


def test_ephemeral_volume_without_a_class_uses_the_default_class() -> None:
    template = {
        "ephemeral": {
            "volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}
        }
    }
    older = storage_class("older", waits=False)
    newer = storage_class(
        "newer", allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    )
    for made, year in ((older, 2024), (newer, 2025)):
        made["metadata"] |= {
            "creationTimestamp": f"{year}-01-01T00:00:00Z",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        }
    seen = StorageObjectsCluster(*NODES, pod("p0", template, on="a1"), older, newer)
    assert seen.fitting() == {"b1"}
    assert (
        StorageObjectsCluster(*NODES, pod("p0", template, on="a1"), storage_class()).fitting()
        == set()
    )


def test_ephemeral_claim_ignores_a_volume_reserved_for_its_pod_volume_name() -> None:
    kept = volume("pv", claimRef={"namespace": "default", "name": "v0"})
    assert (
        StorageObjectsCluster(A, pod("p0", asks("1Gi"), on="a1"), NO_PROVISIONER, kept).fitting()
        == set()
    )
