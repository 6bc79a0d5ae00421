"""Parsing of volumes, claims and soft preferences from saved clusters, and the gap
where storage was not saved.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.saved.saved_cluster import read
from chalicelib.model.pod import PodClass, Volume
from chalicelib.model.selector import NodeTerm, Requirement, Selector
from chalicelib.model.snapshot import PriorityConfig, Snapshot
from chalicelib.model.storage import Claim, PersistentVolume, StorageCapacity, StorageClass
from chalicelib.policy import priority_configmap

ZONE = "topology.kubernetes.io/zone"
GI = 2**30
NODE = {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}}


def pod(name: str = "p", namespace: str = "ns", **spec: Any) -> dict[str, Any]:
    asked = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**asked, **spec},
    }


def thing(kind: str, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        **more.pop("metadata", {}),
    }
    return {"kind": kind, "metadata": meta, **more}


def claim(
    name: str = "data", metadata: Any = None, status: Any = None, **spec: Any
) -> dict[str, Any]:
    return thing(
        "PersistentVolumeClaim", name, "ns", metadata=metadata or {}, spec=spec, status=status or {}
    )


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    def take(*items: dict[str, Any], namespace: str = "kube-system") -> Snapshot:
        everything = (
            [NODE, *items] if any(i["kind"] == "Pod" for i in items) else [NODE, pod(), *items]
        )
        (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": everything}))
        for name in ("pdbs", "workloads"):
            (tmp_path / f"{name}.json").write_text('{"kind": "List", "items": []}')
        (tmp_path / "manifest.json").write_text('{"nodeGroups": []}')
        return read(tmp_path, node_groups=None, cluster="c", taken_at=0.0, namespace=namespace)

    return take


def only(snapshot: Snapshot) -> PodClass:
    [one] = snapshot.pods
    return snapshot.cls(one)


BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            claim(
                storageClassName="fast",
                accessModes=["ReadWriteOnce"],
                volumeMode="Block",
                resources={"requests": {"storage": "10Gi"}},
                selector={"matchLabels": {"a": "b"}},
            ),
            Claim(
                "ns",
                "data",
                "fast",
                "",
                ("ReadWriteOnce",),
                10 * GI,
                "Block",
                Selector((Requirement("a", "In", ("b",)),)),
            ),
            id="waiting",
        ),
        pytest.param(
            claim(metadata=BOUND, volumeName="v"), Claim("ns", "data", volume="v"), id="bound"
        ),
        pytest.param(
            claim(status={"phase": "Bound"}, volumeName="v"),
            Claim("ns", "data", volume="v"),
            id="by-phase",
        ),
        pytest.param(claim(volumeName="v"), Claim("ns", "data", volume="v"), id="written-by-hand"),
        pytest.param(
            claim(status={"phase": "Pending"}, volumeName="v"),
            Claim("ns", "data", volume="v", unsettled=True),
            id="prebound",
        ),
        pytest.param(
            claim(
                metadata={"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
                storageClassName="new",
            ),
            Claim("ns", "data", "old"),
            id="class-by-annotation",
        ),
        pytest.param(
            claim(metadata={"annotations": {"volume.kubernetes.io/selected-node": "n7"}}),
            Claim("ns", "data", selected_node="n7"),
            id="promised",
        ),
        pytest.param(
            claim(metadata={"deletionTimestamp": "2026-11-21T07:20:54Z"}),
            Claim("ns", "data", deleted=True),
            id="going",
        ),
    ],
)
def test_storage_claim_is_parsed(saved: Any, raw: dict[str, Any], expected: Claim) -> None:
    assert saved(raw).storage.claims == (expected,)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {
                "csi": {"driver": "d", "volumeHandle": "h"},
                "capacity": {"storage": "1Gi"},
                "storageClassName": "s",
                "accessModes": ["ReadWriteMany", "ReadOnlyMany"],
            },
            {
                "driver": "d",
                "handle": "h",
                "capacity": GI,
                "storage_class": "s",
                "access_modes": ("ReadOnlyMany", "ReadWriteMany"),
            },
            id="csi",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "vol-1"}},
            {"driver": "ebs.csi.aws.com", "handle": "vol-1"},
            id="in-tree",
        ),
        pytest.param(
            {"nfs": {"server": "s"}, "claimRef": {"namespace": "ns", "name": "data"}},
            {"claim": "ns/data"},
            id="claimed-and-never-attached",
        ),
        pytest.param(
            {
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
                        ]
                    }
                }
            },
            {"node_terms": (NodeTerm((Requirement(ZONE, "In", ("a",)),)),)},
            id="affinity",
        ),
        pytest.param(
            {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}},
            {"node_terms": ()},
            id="nowhere",
        ),
    ],
)
def test_storage_volume_is_parsed(
    saved: Any, spec: dict[str, Any], expected: dict[str, Any]
) -> None:
    raw = thing(
        "PersistentVolume",
        "v",
        metadata={"labels": {ZONE: "a"}},
        spec=spec,
        status={"phase": "Available"},
    )
    assert saved(raw).storage.volumes == (
        PersistentVolume("v", {ZONE: "a"}, phase="Available", **expected),
    )


def test_storage_class_and_its_remaining_capacity_are_parsed(saved: Any) -> None:
    stored = saved(
        thing(
            "StorageClass",
            "fast",
            provisioner="csi.example",
            volumeBindingMode="WaitForFirstConsumer",
            metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}],
        ),
        thing(
            "StorageClass",
            "ebs",
            provisioner="kubernetes.io/aws-ebs",
            volumeBindingMode="Immediate",
        ),
        thing("CSIDriver", "csi.example", spec={"storageCapacity": True}),
        thing("CSIDriver", "silent", spec={}),
        thing(
            "CSIStorageCapacity",
            "c1",
            "csi",
            storageClassName="fast",
            capacity="7Gi",
            maximumVolumeSize="5Gi",
            nodeTopology={"matchLabels": {ZONE: "a"}},
        ),
        thing(
            "CSINode",
            "n1",
            spec={
                "drivers": [
                    {"name": "csi.example", "allocatable": {"count": 25}},
                    {"name": "unlimited"},
                ]
            },
        ),
    ).storage
    assert stored.classes == (
        StorageClass("ebs", "ebs.csi.aws.com"),
        StorageClass(
            "fast",
            "csi.example",
            waits=True,
            is_default=True,
            topologies=(NodeTerm((Requirement(ZONE, "In", ("a", "b")),)),),
        ),
    )
    assert stored.publishing == ("csi.example",)
    assert stored.capacities == (
        StorageCapacity("fast", Selector((Requirement(ZONE, "In", ("a",)),)), 7 * GI, 5 * GI),
    )
    assert {n.name: n.limits for n in stored.csi_nodes} == {"n1": {"csi.example": 25}}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "data"}},
            Volume("v", "persistentVolumeClaim", "data"),
            id="claim",
        ),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            Volume(
                "v", "gcePersistentDisk", disk="d", read_only=True, driver="pd.csi.storage.gke.io"
            ),
            id="gce",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "d"}},
            Volume("v", "awsElasticBlockStore", disk="d", driver="ebs.csi.aws.com"),
            id="ebs",
        ),
        pytest.param(
            {"iscsi": {"targetPortal": "t", "iqn": "iqn.a", "lun": 2}},
            Volume("v", "iscsi", disk="iqn.a"),
            id="iscsi",
        ),
        pytest.param(
            {"rbd": {"monitors": ["b", "a"], "image": "i"}},
            Volume("v", "rbd", disk="rbd/i", monitors=("a", "b")),
            id="rbd-with-its-default-pool",
        ),
        pytest.param({"csi": {"driver": "d"}}, Volume("v", "csi", driver="d"), id="inline-csi"),
        pytest.param(
            {"emptyDir": {"medium": "Memory"}}, Volume("v", "emptyDirMemory"), id="memory"
        ),
        pytest.param(
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "storageClassName": "fast",
                            "resources": {"requests": {"storage": "1Gi"}},
                        }
                    }
                }
            },
            Volume("v", "ephemeral", template=Claim("", "", "fast", request=GI)),
            id="ephemeral",
        ),
        pytest.param(
            {"ephemeral": {}},
            Volume("v", "ephemeral", template=Claim("", "", any_class=True)),
            id="ephemeral-of-the-default-class",
        ),
    ],
)
def test_storage_volume_of_a_pod_is_parsed(
    saved: Any, raw: dict[str, Any], expected: Volume
) -> None:
    assert only(saved(pod(volumes=[{"name": "v", **raw}]))).volumes == (expected,)


def test_storage_ephemeral_volumes_share_a_pod_class_unless_a_claim_differs(saved: Any) -> None:
    asks = [
        {
            "name": "tmp",
            "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}},
        }
    ]
    pods = [pod(f"p{at}", volumes=asks) for at in range(5)]
    pods.append(pod("runs", volumes=asks, nodeName="n1"))
    taken = saved(
        *pods,
        claim("p0-tmp", storageClassName="fast"),
        claim("p1-tmp", storageClassName="fast"),
        claim("p2-tmp", BOUND, storageClassName="fast", volumeName="v"),
        claim("p3-tmp", {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}),
    )
    named = {p.name: taken.cls(p).volumes[0].claim for p in taken.pods}
    assert named == {"p0": "", "p1": "", "p2": "p2-tmp", "p3": "p3-tmp", "p4": "p4-tmp", "runs": ""}
    assert len({p.cls for p in taken.pods if p.name in {"p0", "p1", "runs"}}) == 1


def test_storage_malformed_claim_template_is_a_malformed_pod(saved: Any) -> None:
    bad = {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "much"}}}}}
    taken = saved(pod("bad", volumes=[{"name": "v", "ephemeral": bad}]), pod("good"))
    assert ([p.name for p in taken.pods], [g.name for g in taken.gaps]) == (["good"], ["ns/bad"])


@pytest.mark.parametrize(
    ("volume", "kinds"),
    [
        pytest.param({"emptyDir": {}}, [], id="nobody-asks"),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "data"}},
            ["PersistentVolumeClaim"],
            id="a-claim",
        ),
        pytest.param({"ephemeral": {}}, ["PersistentVolumeClaim"], id="ephemeral"),
    ],
)
def test_storage_not_saved_is_one_gap_only_where_it_matters(
    saved: Any, volume: Any, kinds: Any
) -> None:
    taken = saved(pod(volumes=[{"name": "v", **volume}]))
    assert [gap.kind for gap in taken.gaps] == kinds
    assert all(gap.affected_decisions for gap in taken.gaps)


@pytest.mark.parametrize(
    ("namespace", "data", "expected"),
    [
        ("kube-system", {"priorities": "10: [a]"}, PriorityConfig("10: [a]", ((10, ("a",)),))),
        (
            "kube-system",
            {"priorities": "ten: [a]"},
            priority_configmap.read({"priorities": "ten: [a]"}),
        ),
        ("kube-system", {}, priority_configmap.read({})),
        ("kube-system", None, priority_configmap.read(None)),
        ("elsewhere", {"priorities": "10: [a]"}, None),
    ],
)
def test_files_saved_priority_config_map_is_read(
    saved: Any, namespace: str, data: Any, expected: Any
) -> None:
    others = thing(
        "ConfigMap", "other", "kube-system", data={"priorities": "1: [b]"}, binaryData={"x": "AA=="}
    )
    assert (
        saved(
            thing("ConfigMap", "cluster-autoscaler-priority-expander", namespace, data=data), others
        ).priorities
        == expected
    )


def test_files_soft_preferences_are_read_with_the_hard_constraints(saved: Any) -> None:
    wanted = {"key": "disk", "operator": "In", "values": ["ssd"]}
    spread: list[dict[str, Any]] = [
        {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": when, "labelSelector": {}}
        for when in ("ScheduleAnyway", "DoNotSchedule")
    ]
    cls = only(
        saved(
            pod(
                topologySpreadConstraints=spread,
                affinity={
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 30, "preference": {"matchExpressions": [wanted]}}
                        ]
                    }
                },
            )
        )
    )
    assert [(p.weight, p.term) for p in cls.preferred_nodes] == [
        (30, NodeTerm((Requirement("disk", "In", ("ssd",)),)))
    ]
    assert cls.required_affinity is None
    assert (len(cls.spread), len(cls.preferred_spread)) == (1, 1)


@pytest.mark.parametrize(
    ("condition", "status", "cpu"),
    [
        pytest.param(
            "PodResizeInProgress", {"allocatedResources": {"cpu": "3"}}, 3100, id="shrinking"
        ),
        pytest.param(
            "PodResizeInProgress",
            {"resources": {"requests": {"cpu": "4"}}},
            4100,
            id="still-in-force",
        ),
        pytest.param(
            "PodResizePending", {"allocatedResources": {"cpu": "500m"}}, 2100, id="growing"
        ),
        pytest.param("Ready", {"allocatedResources": {"cpu": "3"}}, 2100, id="no-resize"),
    ],
)
def test_files_pod_being_resized_counts_the_larger_request(
    saved: Any, condition: str, status: Any, cpu: int
) -> None:
    resized = pod(
        "r",
        nodeName="n1",
        overhead={"cpu": "100m"},
        containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
    )
    resized["status"] = {
        "phase": "Running",
        "conditions": [{"type": condition, "status": "True"}],
        "containerStatuses": [{"name": "c", **status}],
    }
    assert only(saved(resized)).requests["cpu"] == cpu
