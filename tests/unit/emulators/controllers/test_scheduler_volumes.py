"""PersistentVolumeClaims and volumes."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.controllers.scheduler.cluster_view import (
    NO_SPACE,
    NOTHING_TO_BIND,
    Surroundings,
)
from infra.emulators.controllers.scheduler.predicates import (
    DISK_IN_USE,
    EXCLUSIVE,
    NO_ZONE,
    NODE_CONFLICT,
    TOO_MANY_VOLUMES,
    UNBOUND_IMMEDIATE,
)
from infra.emulators.kube.objects import KubeObject
from tests.unit.emulators.controllers.objects import ZONE, expression, fitting, node, pod, reasons

A, B, BARE = node("a1", "a"), node("b1", "b"), node("bare")


def using(*claims: str, **more: Any) -> KubeObject:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return pod(**{"volumes": volumes, **more})


def claim(
    name: str = "data",
    volume: str = "",
    storage_class: str = "",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    annotations: dict[str, str] | None = None,
) -> KubeObject:
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {
            "volumeName": volume,
            "storageClassName": storage_class,
            "accessModes": list(modes),
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }


def volume(name: str, labels: dict[str, str] | None = None, **spec: Any) -> KubeObject:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], **spec},
    }


def in_zone(zone: str) -> KubeObject:
    return {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [expression(ZONE, "In", zone)]}]}
    }


WAITING = {
    "metadata": {"name": "local"},
    "volumeBindingMode": "WaitForFirstConsumer",
    "provisioner": "kubernetes.io/no-provisioner",
}


def dynamic(**more: Any) -> KubeObject:
    return {**WAITING, "metadata": {"name": "fast"}, "provisioner": "csi.example", **more}


def test_scheduler_volume_zone_of_a_bound_volume() -> None:
    around = Surroundings(claims=(claim(volume="v"),), volumes=(volume("v", {ZONE: "a__b"}),))
    assert reasons(using("data"), [A, B, node("c1", "c"), BARE], around=around) == {
        "a1": [],
        "b1": [],
        "c1": [NO_ZONE],
        "bare": [],
    }


def test_scheduler_volume_legacy_zone_label_is_equivalent() -> None:
    around = Surroundings(
        claims=(claim(volume="v"),),
        volumes=(volume("v", {"failure-domain.beta.kubernetes.io/zone": "a"}),),
    )
    assert fitting(using("data"), [A, B], around=around) == {"a1"}


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        pytest.param((claim(),), UNBOUND_IMMEDIATE, id="P35-immediate"),
        pytest.param((), 'persistentvolumeclaim "data" not found', id="missing"),
    ],
)
def test_scheduler_volume_claim_that_no_node_can_serve(
    claims: tuple[KubeObject, ...], why: str
) -> None:
    assert reasons(using("data"), [A], around=Surroundings(claims=claims)) == {"a1": [why]}


def test_scheduler_volume_allowed_topologies_of_a_storage_class() -> None:
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
    around = Surroundings(
        claims=(claim(storage_class="fast"),), storage_classes=(dynamic(allowedTopologies=allowed),)
    )
    assert reasons(using("data"), [A, B], around=around) == {"a1": [], "b1": [NOTHING_TO_BIND]}


def test_scheduler_volume_node_affinity() -> None:
    around = Surroundings(
        claims=(claim(volume="v"),), volumes=(volume("v", nodeAffinity=in_zone("a")),)
    )
    assert reasons(using("data"), [A, B], around=around) == {"a1": [], "b1": [NODE_CONFLICT]}


def test_scheduler_volume_pending_claim_binds_a_free_matching_volume() -> None:
    free = volume("v", storageClassName="local", nodeAffinity=in_zone("a"))
    one = Surroundings(
        claims=(claim(storage_class="local"), claim("logs", storage_class="local")),
        storage_classes=(WAITING,),
        volumes=(free,),
    )
    assert fitting(using("data"), [A, B], around=one) == {"a1"}
    assert not fitting(using("data", "logs"), [A, B], around=one)


@pytest.mark.parametrize(
    "spec",
    [
        {"claimRef": {"name": "other"}},
        {"capacity": {"storage": "5Gi"}},
        {"accessModes": ["ReadOnlyMany"]},
    ],
)
def test_scheduler_volume_bound_or_too_small_volume_is_not_free(spec: dict[str, Any]) -> None:
    around = Surroundings(
        claims=(claim(storage_class="local"),),
        storage_classes=(WAITING,),
        volumes=(volume("v", **{"storageClassName": "local", **spec}),),
    )
    assert not fitting(using("data"), [A], around=around)


def test_scheduler_volume_claim_assigned_to_another_node() -> None:
    chosen = claim(storage_class="fast", annotations={"volume.kubernetes.io/selected-node": "b1"})
    around = Surroundings(claims=(chosen,), storage_classes=(dynamic(),))
    assert fitting(using("data"), [A, B], around=around) == {"b1"}


def test_scheduler_volume_read_write_once_pod_allows_one_pod() -> None:
    around = Surroundings(
        claims=(claim(volume="v", modes=("ReadWriteOncePod",)),), volumes=(volume("v"),)
    )
    user = using("data", name="user", on="b1")
    assert reasons(using("data"), [A, B], [user], around) == {"a1": [EXCLUSIVE], "b1": [EXCLUSIVE]}
    assert fitting(using("data"), [A, B], around=around) == {"a1", "b1"}


def test_scheduler_volume_attach_limit_counts_a_shared_volume_once() -> None:
    csi = {"driver": "csi.example"}
    around = Surroundings(
        claims=(claim(volume="v"), claim("logs", volume="w")),
        volumes=(
            volume("v", csi={**csi, "volumeHandle": "1"}),
            volume("w", csi={**csi, "volumeHandle": "2"}),
        ),
        csi_nodes=(
            {
                "metadata": {"name": "a1"},
                "spec": {"drivers": [{"name": "csi.example", "allocatable": {"count": 1}}]},
            },
        ),
    )
    there = [using("data", name="user", on="a1")]
    assert reasons(using("logs"), [A, B], there, around) == {"a1": [TOO_MANY_VOLUMES], "b1": []}
    assert fitting(using("data"), [A], there, around) == {"a1"}


def test_scheduler_volume_ephemeral_claim_is_named_after_its_pod() -> None:
    asking = pod("web", volumes=[{"name": "scratch", "ephemeral": {}}])
    assert fitting(
        asking,
        [A],
        around=Surroundings(claims=(claim("web-scratch", volume="v"),), volumes=(volume("v"),)),
    )


@pytest.mark.parametrize(
    ("left", "fits"),
    [
        pytest.param(
            {"nodeTopology": {"matchLabels": {ZONE: "a"}}, "capacity": "10Gi"},
            {"a1"},
            id="enough-in-a",
        ),
        pytest.param({"nodeTopology": {}, "capacity": "9Gi"}, set(), id="too-little"),
        pytest.param(
            {"nodeTopology": {}, "capacity": "90Gi", "maximumVolumeSize": "9Gi"},
            set(),
            id="none-so-large",
        ),
        pytest.param({"capacity": "90Gi"}, set(), id="reaches-no-node"),
        pytest.param(
            {"nodeTopology": {}, "capacity": "90Gi", "storageClassName": "slow"},
            set(),
            id="another-class",
        ),
    ],
)
def test_scheduler_volume_remaining_csi_storage_capacity(
    left: dict[str, Any], fits: set[str]
) -> None:
    around = Surroundings(
        claims=(claim(storage_class="fast"),),
        storage_classes=(dynamic(),),
        csi_drivers=({"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": True}},),
        capacities=({"metadata": {"name": "c"}, "storageClassName": "fast", **left},),
    )
    assert reasons(using("data"), [A, B], around=around) == {
        name: [] if name in fits else [NO_SPACE] for name in ("a1", "b1")
    }
    silent = Surroundings(
        claims=around.claims, storage_classes=around.storage_classes, capacities=around.capacities
    )
    assert fitting(using("data"), [A, B], around=silent) == {"a1", "b1"}


@pytest.mark.parametrize(
    ("source", "read_only", "conflict"),
    [
        ({"gcePersistentDisk": {"pdName": "d"}}, False, True),
        ({"gcePersistentDisk": {"pdName": "d"}}, True, False),
        ({"awsElasticBlockStore": {"volumeID": "d"}}, True, True),
        ({"iscsi": {"iqn": "i", "lun": 0}}, False, True),
        ({"rbd": {"monitors": ["m"], "image": "i"}}, False, True),
        ({"rbd": {"monitors": ["m"], "image": "i"}}, True, False),
        ({"iscsi": {"iqn": "i", "lun": 0}}, True, False),
        ({"nfs": {"server": "s", "path": "/"}}, False, False),
    ],
)
def test_scheduler_volume_disk_conflicts_on_a_node(
    source: dict[str, dict[str, Any]], read_only: bool, conflict: bool
) -> None:
    volumes = [
        {
            "name": "v",
            **{kind: {**details, "readOnly": read_only} for kind, details in source.items()},
        }
    ]
    there = pod("user", on="a1", volumes=volumes)
    assert reasons(pod(volumes=volumes), [A, B], [there]) == {
        "a1": [DISK_IN_USE] if conflict else [],
        "b1": [],
    }


def test_scheduler_volume_smallest_claim_takes_the_smallest_volume() -> None:
    small, large = (
        volume("s", storageClassName="local"),
        volume("l", storageClassName="local", capacity={"storage": "20Gi"}),
    )
    big = claim("big", storage_class="local")
    big["spec"]["resources"]["requests"]["storage"] = "20Gi"
    around = Surroundings(
        claims=(big, claim(storage_class="local")),
        storage_classes=(WAITING,),
        volumes=(large, small),
    )
    assert fitting(using("big", "data"), [A], around=around) == {"a1"}


def test_scheduler_volume_claim_of_a_vanished_volume_fits_nowhere() -> None:
    assert reasons(using("data"), [A], around=Surroundings(claims=(claim(volume="v"),))) == {
        "a1": ['persistentvolume "v" not found']
    }
