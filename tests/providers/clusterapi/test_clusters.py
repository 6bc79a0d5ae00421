"""Properties that Clusters give their groups, and the requests of discovery."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.clusterapi.api import CapiApi, discover
from chalicelib.providers.clusterapi.capi_state import CapiState, read_capi_state
from chalicelib.providers.clusterapi.models import CapiAnnotations
from chalicelib.providers.kit.errors import InvalidRequest, Transient, Unauthorized
from tests.cases import each_row

GROUP = "cluster.x-k8s.io"
EVERY_KIND = frozenset({"MachineDeployment", "MachineSet", "MachinePool", "Machine", "Cluster"})
Json = dict[str, Any]


class CapiClustersRefusedError(OutscalerError):
    """The error that the cluster's client raises."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class CapiClustersPage(msgspec.Struct, frozen=True):
    body: bytes
    first: bool = True


class CapiClustersKube:
    """Answers by path; a number is a status. All other paths return an empty list."""

    def __init__(self, answers: Mapping[str, Json | int]) -> None:
        self.answers = {f"/apis/{GROUP}{path}": answer for path, answer in answers.items()}
        self.asked: list[str] = []

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        del query, body, content_type
        self.asked.append(f"{method} {path.removeprefix(f'/apis/{GROUP}')}")
        answer = self.answers.get(path, {"items": []})
        if isinstance(answer, int):
            raise CapiClustersRefusedError(answer)
        return json.dumps(answer).encode()

    def list_pages(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> Iterable[CapiClustersPage]:
        yield CapiClustersPage(self.request("GET", path, query=query))


def cluster(name: str, *, namespace: str = "default", **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def workers(kind: str, *entries: Json) -> Json:
    return {"topology": {"workers": {kind: list(entries)}}}


def world(
    *clusters: Json, served: frozenset[str] = EVERY_KIND, status: int = 0
) -> tuple[CapiState, CapiClustersKube]:
    kube = CapiClustersKube({"/v1beta2/clusters": status or {"items": list(clusters)}})
    return read_capi_state(CapiApi(kube, CapiAnnotations(), "v1beta2"), served, ("",)), kube


def test_capi_cluster_paused_in_its_spec_is_paused() -> None:
    found, _ = world(
        cluster("a", paused=True),
        cluster("b", paused=False),
        cluster("c"),
        {"metadata": {"name": "d"}},
        cluster("a", namespace="other"),
    )
    assert found.paused_clusters == {("default", "a")}
    assert found.gaps == ()


def test_capi_pause_annotation_on_a_cluster_pauses_only_that_object() -> None:
    resting = cluster("a")
    resting["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
    assert world(resting)[0].paused_clusters == frozenset()


@each_row("status", [403, 404, 500])
def test_capi_unlistable_clusters_affect_no_decision(status: int) -> None:
    found, _ = world(status=status)
    assert (found.paused_clusters, found.topology_replicas) == (frozenset(), frozenset())
    [gap] = found.gaps
    assert (gap.kind, gap.affected_decisions) == ("Cluster", ())


def test_capi_clusters_that_are_not_served_are_not_requested() -> None:
    found, kube = world(served=EVERY_KIND - {"Cluster"})
    assert found.gaps == ()
    assert not [asked for asked in kube.asked if "clusters" in asked]


def test_capi_every_namespace_is_listed_once_per_kind() -> None:
    kube = CapiClustersKube(
        {"/v1beta2/namespaces/b/clusters": {"items": [cluster("x", namespace="b", paused=True)]}}
    )
    found = read_capi_state(CapiApi(kube, CapiAnnotations(), "v1beta2"), EVERY_KIND, ("a", "b"))
    assert found.paused_clusters == {("b", "x")}
    kinds = ("machinesets", "machinedeployments", "machinepools", "machines", "clusters")
    assert sorted(kube.asked) == sorted(
        f"GET /v1beta2/namespaces/{where}/{kind}" for where in "ab" for kind in kinds
    )


def test_capi_malformed_cluster_hides_no_other() -> None:
    found, _ = world(cluster("bad", paused="yes"), cluster("a", paused=True))
    assert found.paused_clusters == {("default", "a")}
    [gap] = found.gaps
    assert (gap.kind, gap.name) == ("Cluster", "default/bad")


def test_capi_replicas_in_a_topology_belong_to_the_topology() -> None:
    sized, free = {"name": "sized", "replicas": 3, "class": "x"}, {"name": "free", "class": "x"}
    found, _ = world(
        cluster("a", **workers("machineDeployments", sized, free, {"name": "none", "replicas": 0})),
        cluster("b", **workers("machinePools", {**sized, "name": "pool"}, free)),
        cluster("c", topology={"class": "x"}),
        cluster("d", topology={"workers": {}}),
    )
    assert found.topology_replicas == {
        ("default", "a", "sized"),
        ("default", "a", "none"),
        ("default", "b", "pool"),
    }


@each_row(
    ("answer", "expected"),
    [(cluster("a", paused=True), True), (cluster("a"), False), (403, False), (404, False)],
)
def test_capi_cluster_is_read_before_a_change(answer: Json | int, expected: bool) -> None:
    api = CapiApi(
        CapiClustersKube({"/v1beta2/namespaces/default/clusters/a": answer}),
        CapiAnnotations(),
        "v1beta2",
    )
    assert api.cluster_paused("default", "a") is expected


def test_capi_unreadable_cluster_is_not_taken_for_unpaused() -> None:
    api = CapiApi(
        CapiClustersKube({"/v1beta2/namespaces/default/clusters/a": 500}),
        CapiAnnotations(),
        "v1beta2",
    )
    with pytest.raises(Transient):
        api.cluster_paused("default", "a")


def served(
    *versions: str, preferred: str = "", kinds: Iterable[str] = EVERY_KIND
) -> dict[str, Json | int]:
    """The discovery documents of the API group."""
    resources = [{"name": f"{kind.lower()}s", "kind": kind} for kind in kinds] + [
        {"name": "machinesets/scale", "kind": "Scale"}
    ]
    group = {
        "versions": [{"version": each} for each in versions],
        "preferredVersion": {"version": preferred},
    }
    return {"": group, **{f"/{each}": {"resources": resources} for each in versions}}


@each_row(
    ("document", "wanted", "version"),
    [
        (served("v1beta2", "v1beta1", preferred="v1beta2"), "", "v1beta2"),
        (served("v1beta2", "v1beta1", preferred="v1beta2"), "v1beta1", "v1beta1"),
        (served("v1beta1", preferred="v1beta1"), "", "v1beta1"),
        (served("v1beta2", "v1beta1"), "", "v1beta2"),  # no preference: the first
    ],
)
def test_capi_version_selection(document: dict[str, Json | int], wanted: str, version: str) -> None:
    found = discover(CapiClustersKube(document), GROUP, wanted)
    assert (found.version, found.kinds) == (version, EVERY_KIND)


def test_capi_machine_pools_may_be_absent() -> None:
    kinds = EVERY_KIND - {"MachinePool"}
    assert (
        discover(
            CapiClustersKube(served("v1beta2", preferred="v1beta2", kinds=kinds)), GROUP, ""
        ).kinds
        == kinds
    )


@each_row(
    ("document", "wanted", "names"),
    [
        ({"": 404}, "", r"providers\.clusterapi\.group"),
        ({"": 404, "/v1beta1": 404}, "v1beta1", r"providers\.clusterapi\.version"),
        ({"": {}}, "", "serves no version$"),
        (
            {"": {"preferredVersion": {"version": "../../api/v1"}}},
            "",
            r"serves no version but '\.\./\.\./api/v1'$",
        ),
    ],
)
@each_row("kinds", [True, False])
def test_capi_unserved_kind_is_a_settings_error(
    document: dict[str, Json | int], wanted: str, names: str, kinds: bool
) -> None:
    with pytest.raises(InvalidRequest, match=names):
        discover(CapiClustersKube(document), GROUP, wanted, kinds=kinds)


def test_capi_refused_discovery_keeps_its_error_class() -> None:
    with pytest.raises(Unauthorized):
        discover(CapiClustersKube({"": 403}), GROUP, "")
    with pytest.raises(Transient):
        discover(CapiClustersKube({"": {"versions": "none"}}), GROUP, "")


def test_capi_single_change_requests_the_version_and_not_the_kinds() -> None:
    kube = CapiClustersKube(served("v1beta2", preferred="v1beta2"))
    assert discover(kube, GROUP, "", kinds=False).version == "v1beta2"
    assert kube.asked == ["GET "]
    kube = CapiClustersKube(served("v1beta1"))
    discover(kube, GROUP, "v1beta1", kinds=False)
    assert kube.asked == ["GET /v1beta1"]
