"""Reading a live cluster: the requests, the gaps caused by refusals, and
the errors that stop it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.cluster import errors
from chalicelib.cluster.listed_resources import PRIORITY_CONFIG, RESOURCES, ListedResource
from chalicelib.cluster.live_cluster import read_live_cluster
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData, ObservedGroups, PriorityConfig, Snapshot
from chalicelib.policy import priority_configmap
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from tests.cases import each_row
from tests.unit.cluster.support import client, status

NOW = 1795246259.0
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "rs",
    "controller": True,
}


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }


def pod(name: str, node_name: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{len(name)}00m"}}}]
    }
    if node_name:
        spec["nodeName"] = node_name
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "ownerReferences": [OWNER]},
        "spec": spec,
        "status": {"phase": "Running" if node_name else "Pending"},
    }


def plain(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": spec}


OBJECTS: dict[str, list[dict[str, Any]]] = {
    "Node": [node("n2"), node("n1")],
    "Pod": [pod("web-1", "n1"), pod("web-22", "n2"), pod("web-333")],
    "DaemonSet": [
        {**plain("agent"), "spec": {"template": {"metadata": {}, "spec": {"containers": []}}}}
    ],
    "ReplicaSet": [plain("web", replicas=3)],
    "StatefulSet": [plain("db", replicas=1)],
    "Job": [],
    "ReplicationController": [],
    "PodDisruptionBudget": [
        {
            **plain("web", selector={"matchLabels": {"app": "web"}}),
            "status": {"disruptionsAllowed": 1},
        }
    ],
    "Namespace": [{"metadata": {"name": "shop", "labels": {"team": "a"}}}],
    "PersistentVolumeClaim": [plain("data", volumeName="pv1", storageClassName="fast")],
    "PersistentVolume": [plain("pv1", capacity={"storage": "1Gi"})],
    "StorageClass": [{"metadata": {"name": "fast"}, "provisioner": "csi.example"}],
    "CSINode": [
        {
            "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": "csi.example", "allocatable": {"count": 3}}]},
        }
    ],
    "CSIDriver": [{"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": True}}],
    "CSIStorageCapacity": [
        {
            "metadata": {"name": "x", "namespace": "csi"},
            "storageClassName": "fast",
            "nodeTopology": {},
            "capacity": "5Gi",
        }
    ],
}
PRIORITIES_AT = PRIORITY_CONFIG.format("kube-system")
NO_CONFIG_MAP = Reply(404, status(404, "NotFound", "configmaps is not there"))


class LiveSnapshotApi:
    """Lists in pages of two; `instead` replaces the answers of a kind, in order."""

    def __init__(self, **instead: list[Reply]) -> None:
        self.instead = instead
        self._lock = threading.Lock()

    def __call__(self, seen: Seen) -> Reply:
        kind = next((r.kind for r in RESOURCES if r.path == seen.path), "ConfigMap")
        with self._lock:
            waiting = self.instead.get(kind)
            if waiting:
                return waiting.pop(0)
        if kind == "ConfigMap":
            return NO_CONFIG_MAP
        start = int(seen.query.get("continue", "0"))
        items = OBJECTS[kind][start : start + 2]
        more: dict[str, str] = (
            {"continue": str(start + 2)} if start + 2 < len(OBJECTS[kind]) else {}
        )
        meta = {"resourceVersion": "9"} | more
        return Reply(body={"kind": f"{kind}List", "metadata": meta, "items": items})


def observe(nodes: Sequence[Node]) -> ObservedGroups:
    return ObservedGroups(
        (NodeGroup("g1", "test", target=len(nodes)),),
        (MissingData("provider/test", "one group is hidden"),),
    )


def snapshot(api: LiveSnapshotApi) -> tuple[Snapshot, list[Seen]]:
    with HttpScript(api) as server:
        return read_live_cluster("prod", client(server), observe, NOW), server.requests


def refused(resource: ListedResource, code: int) -> list[Reply]:
    cause = status(
        code, "Forbidden" if code == 403 else "NotFound", f"{resource.plural} is refused"
    )
    return [Reply(code, cause)]


def test_live_snapshot_contains_everything_in_the_resource_table() -> None:
    taken, _ = snapshot(LiveSnapshotApi())
    assert (taken.cluster, taken.taken_at) == ("prod", NOW)
    assert [n.name for n in taken.nodes] == ["n1", "n2"]
    assert [(p.name, p.node) for p in taken.pods] == [
        ("web-1", "n1"),
        ("web-22", "n2"),
        ("web-333", ""),
    ]
    assert [c.name for c in taken.controllers if c.kind != "DaemonSet"] == ["web", "db"]
    assert [d.name for d in taken.daemonsets] == ["agent"]
    assert [(b.name, b.allowed) for b in taken.budgets] == [("web", 1)]
    assert taken.namespaces == {"shop": {"team": "a"}}
    stored = taken.storage
    assert [(c.key, c.volume) for c in stored.claims] == [("shop/data", "pv1")]
    assert [(v.name, v.capacity) for v in stored.volumes] == [("pv1", 2**30)]
    assert [(c.name, c.provisioner) for c in stored.classes] == [("fast", "csi.example")]
    assert [(n.name, n.limits) for n in stored.csi_nodes] == [("n1", {"csi.example": 3})]
    assert [(c.storage_class, c.capacity) for c in stored.capacities] == [("fast", 5 * 2**30)]
    assert stored.publishing == ("csi.example",)
    assert taken.groups == (NodeGroup("g1", "test", target=2),)
    assert taken.gaps == (MissingData("provider/test", "one group is hidden"),)


@pytest.mark.parametrize(
    ("expected", "desired", "required"),
    [(3, 3, 3), (3, 5, 3), (1, 1, 1), (3, 2, 0), (0, 0, 0), (0, 1, 0)],
)
def test_budget_that_needs_all_of_its_pods_says_how_many(
    expected: int, desired: int, required: int
) -> None:
    counts = {"expectedPods": expected, "desiredHealthy": desired, "disruptionsAllowed": 0}
    body = {
        "kind": "PodDisruptionBudgetList",
        "metadata": {"resourceVersion": "9"},
        "items": [plain("web") | {"status": counts}],
    }
    taken, _ = snapshot(LiveSnapshotApi(PodDisruptionBudget=[Reply(body=body)]))
    assert [(budget.name, budget.required) for budget in taken.budgets] == [("web", required)]


def test_live_snapshot_requests() -> None:
    _, requests = snapshot(LiveSnapshotApi())
    first = {seen.path: dict(seen.query) for seen in requests if "continue" not in seen.query}
    assert first.pop("/api/v1/nodes") == {"limit": "1000"}
    assert first.pop("/api/v1/pods") == {"fieldSelector": UNFINISHED, "limit": "1000"}
    assert first.pop(PRIORITIES_AT) == {}
    assert {tuple(query.items()) for query in first.values()} == {(("limit", "1000"),)}
    assert set(first) == {r.path for r in RESOURCES[2:]}


@each_row("code", [403, 404])
@each_row("resource", [r for r in RESOURCES if not r.required], ids=lambda r: r.plural)
def test_live_snapshot_refused_resource_is_a_gap_naming_affected_decisions(
    resource: ListedResource, code: int
) -> None:
    taken, _ = snapshot(LiveSnapshotApi(**{resource.kind: refused(resource, code)}))
    gap = taken.gaps[0]
    assert (gap.kind, gap.detail, gap.place) == (
        resource.kind,
        f"{resource.plural} is refused",
        resource.path,
    )
    assert gap.affected_decisions == resource.weakens != ()
    assert len(taken.pods) == 3


@each_row(
    ("answer", "expected"),
    [
        pytest.param(NO_CONFIG_MAP, None, id="absent"),
        pytest.param(
            Reply(
                body={
                    "kind": "ConfigMap",
                    "metadata": {
                        "name": "cluster-autoscaler-priority-expander",
                        "namespace": "kube-system",
                    },
                }
            ),
            priority_configmap.read(None),
            id="without-its-key",
        ),
        pytest.param(
            Reply(
                body={
                    "kind": "ConfigMap",
                    "data": {"priorities": "10: [a]", "other": "x"},
                    "metadata": {
                        "name": "cluster-autoscaler-priority-expander",
                        "namespace": "kube-system",
                    },
                }
            ),
            PriorityConfig("10: [a]", ((10, ("a",)),)),
            id="there",
        ),
    ],
)
def test_live_snapshot_reads_the_priority_expanders_config_map(
    answer: Reply, expected: PriorityConfig | None
) -> None:
    taken, _ = snapshot(LiveSnapshotApi(ConfigMap=[answer]))
    assert taken.priorities == expected
    assert [gap.kind for gap in taken.gaps] == ["provider/test"]


def test_live_snapshot_unreadable_config_map_is_a_gap_and_stops_nothing() -> None:
    taken, _ = snapshot(
        LiveSnapshotApi(ConfigMap=[Reply(403, status(403, "Forbidden", "no config maps for you"))])
    )
    assert taken.priorities is None
    gap = taken.gaps[0]
    assert (gap.kind, gap.name, gap.place) == (
        "ConfigMap",
        "kube-system/cluster-autoscaler-priority-expander",
        PRIORITIES_AT,
    )
    assert gap.affected_decisions


def test_live_snapshot_reads_the_config_map_named_in_the_options() -> None:
    body = {
        "kind": "ConfigMap",
        "data": {"priorities": "1: [b]"},
        "metadata": {"name": "cluster-autoscaler-priority-expander", "namespace": "scaling"},
    }
    with HttpScript(LiveSnapshotApi(ConfigMap=[Reply(body=body)])) as server:
        taken = read_live_cluster("prod", client(server), observe, NOW, namespace="scaling")
        paths = {seen.path for seen in server.requests}
    assert PRIORITY_CONFIG.format("scaling") in paths
    assert taken.priorities == PriorityConfig("1: [b]", ((1, ("b",)),))


def test_live_snapshot_malformed_claim_is_a_gap_that_names_the_claim() -> None:
    bad = plain("bad", resources={"requests": {"storage": "1.5Gii"}})
    items = {
        "kind": "PersistentVolumeClaimList",
        "metadata": {},
        "items": [*OBJECTS["PersistentVolumeClaim"], bad],
    }
    taken, _ = snapshot(LiveSnapshotApi(PersistentVolumeClaim=[Reply(body=items)]))
    assert [c.name for c in taken.storage.claims] == ["data"]
    assert [(gap.kind, gap.name) for gap in taken.gaps[:1]] == [
        ("PersistentVolumeClaim", "shop/bad")
    ]


def test_live_snapshot_unread_controller_kind_is_not_taken_for_absent() -> None:
    resource = next(r for r in RESOURCES if r.kind == "Job")
    taken, _ = snapshot(LiveSnapshotApi(Job=refused(resource, 403)))
    assert "Job" not in taken.controller_kinds
    assert {"ReplicaSet", "StatefulSet", "ReplicationController"} <= set(taken.controller_kinds)


@each_row(("code", "cls"), [(403, errors.Forbidden), (404, errors.NotFound)])
@each_row("kind", ["Node", "Pod"])
def test_live_snapshot_needs_nodes_and_pods(
    kind: str, code: int, cls: type[errors.ClusterError]
) -> None:
    resource = next(r for r in RESOURCES if r.kind == kind)
    with pytest.raises(cls, match="is refused"):
        snapshot(LiveSnapshotApi(**{kind: refused(resource, code)}))


def test_live_snapshot_server_error_is_not_a_gap() -> None:
    with pytest.raises(errors.Unavailable):
        snapshot(LiveSnapshotApi(PodDisruptionBudget=[Reply(500, status(500))] * 4))


def test_live_snapshot_detects_a_server_that_is_not_an_api_server() -> None:
    with pytest.raises(errors.Unavailable):
        snapshot(LiveSnapshotApi(Pod=[Reply(body={})] * 4))
    with pytest.raises(errors.Unavailable):
        snapshot(
            LiveSnapshotApi(Pod=[Reply(body={"kind": "PodList", "metadata": {}, "items": "none"})])
        )


def test_live_snapshot_restarted_list_leaves_no_duplicate_and_no_stale_object() -> None:
    gone = {
        "kind": "PodList",
        "metadata": {"continue": "2"},
        "items": [pod("gone", "n1"), pod("web-1", "n1")],
    }
    expired = Reply(410, status(410, "Expired"))
    taken, _ = snapshot(LiveSnapshotApi(Pod=[Reply(body=gone), expired]))
    undisturbed, _ = snapshot(LiveSnapshotApi())
    assert [p.name for p in taken.pods] == ["web-1", "web-22", "web-333"]
    assert len(taken.budgets) == len(undisturbed.budgets)


def test_live_snapshot_does_not_depend_on_the_order_of_answers() -> None:
    first, _ = snapshot(LiveSnapshotApi())
    gate = threading.Event()
    delayed = Reply(body={"kind": "NodeList", "metadata": {}, "items": OBJECTS["Node"]}, held=gate)

    class Late(LiveSnapshotApi):
        def __call__(self, seen: Seen) -> Reply:
            reply = super().__call__(seen)
            if seen.path.endswith("/statefulsets"):
                gate.set()
            return reply

    late, _ = snapshot(Late(Node=[delayed]))
    assert late == first


def test_live_snapshot_malformed_object_is_a_gap_that_names_the_object() -> None:
    wrong = {
        "kind": "NodeList",
        "metadata": {},
        "items": [node("n1"), {"metadata": {"name": "n9"}, "spec": {}}],
    }
    taken, _ = snapshot(LiveSnapshotApi(Node=[Reply(body=wrong)]))
    assert [n.name for n in taken.nodes if n.allocatable] == ["n1"]
    gap = taken.gaps[0]
    assert (gap.kind, gap.name, gap.place) == ("Node", "n9", "/api/v1/nodes")
