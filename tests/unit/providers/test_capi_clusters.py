"""What Clusters say about their groups, and what discovery asks for: clusterapi.md §1.2, §9, D29; case 2 of §11."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.clusterapi.annotations import CapiAnnotations
from chalicelib.providers.clusterapi.api import CapiApi
from chalicelib.providers.clusterapi.api_discovery import discover
from chalicelib.providers.clusterapi.capi_state import CapiState, read_world
from chalicelib.providers.errors import InvalidRequest, Transient, Unauthorized
from tests.cases import each_row

GROUP = "cluster.x-k8s.io"
EVERY_KIND = frozenset({"MachineDeployment", "MachineSet", "MachinePool", "Machine", "Cluster"})
Json = dict[str, Any]


class CapiClustersRefusedError(OutscalerError):
    """As the cluster's client raises it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class CapiClustersPage(msgspec.Struct, frozen=True):
    body: bytes
    first: bool = True


class CapiClustersKube:
    """Answers by path; a number is a status. Everything else is an empty list."""

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

    def list_pages(self, path: str, *, query: Mapping[str, str] | None = None) -> Iterable[CapiClustersPage]:
        yield CapiClustersPage(self.request("GET", path, query=query))


def cluster(name: str, *, namespace: str = "default", **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def workers(kind: str, *entries: Json) -> Json:
    return {"topology": {"workers": {kind: list(entries)}}}


def world(*clusters: Json, served: frozenset[str] = EVERY_KIND, status: int = 0) -> tuple[CapiState, CapiClustersKube]:
    kube = CapiClustersKube({"/v1beta2/clusters": status or {"items": list(clusters)}})
    return read_world(CapiApi(kube, CapiAnnotations(), "v1beta2"), served, ("",)), kube


def test_D29_clusters_whose_spec_pauses_them() -> None:
    found, _ = world(
        cluster("a", paused=True),
        cluster("b", paused=False),
        cluster("c"),
        {"metadata": {"name": "d"}},
        cluster("a", namespace="other"),
    )
    assert found.paused_clusters == {("default", "a")}
    assert found.gaps == ()


def test_D29_the_annotation_on_a_cluster_pauses_its_own_object_only() -> None:
    resting = cluster("a")
    resting["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
    assert world(resting)[0].paused_clusters == frozenset()


@each_row("status", [403, 404, 500])
def test_D29_clusters_that_may_not_be_listed_weaken_nothing(status: int) -> None:
    found, _ = world(status=status)
    assert (found.paused_clusters, found.topology_replicas) == (frozenset(), frozenset())
    [gap] = found.gaps
    assert (gap.kind, gap.affected_decisions) == ("Cluster", ())


def test_D29_clusters_that_are_not_served_are_not_asked_for() -> None:
    found, kube = world(served=EVERY_KIND - {"Cluster"})
    assert found.gaps == ()
    assert not [asked for asked in kube.asked if "clusters" in asked]


def test_D5_D29_every_namespace_is_asked_once_per_kind() -> None:
    kube = CapiClustersKube({"/v1beta2/namespaces/b/clusters": {"items": [cluster("x", namespace="b", paused=True)]}})
    found = read_world(CapiApi(kube, CapiAnnotations(), "v1beta2"), EVERY_KIND, ("a", "b"))
    assert found.paused_clusters == {("b", "x")}
    kinds = ("machinesets", "machinedeployments", "machinepools", "machines", "clusters")
    assert sorted(kube.asked) == sorted(f"GET /v1beta2/namespaces/{where}/{kind}" for where in "ab" for kind in kinds)


def test_one_malformed_cluster_does_not_hide_the_others() -> None:
    found, _ = world(cluster("bad", paused="yes"), cluster("a", paused=True))
    assert found.paused_clusters == {("default", "a")}
    [gap] = found.gaps
    assert (gap.kind, gap.name) == ("Cluster", "default/bad")


def test_replicas_in_a_topology_are_the_topologys() -> None:
    sized, free = {"name": "sized", "replicas": 3, "class": "x"}, {"name": "free", "class": "x"}
    found, _ = world(
        cluster("a", **workers("machineDeployments", sized, free, {"name": "none", "replicas": 0})),
        cluster("b", **workers("machinePools", {**sized, "name": "pool"}, free)),
        cluster("c", topology={"class": "x"}),
        cluster("d", topology={"workers": {}}),
    )
    assert found.topology_replicas == {("default", "a", "sized"), ("default", "a", "none"), ("default", "b", "pool")}


@each_row(
    ("answer", "expected"), [(cluster("a", paused=True), True), (cluster("a"), False), (403, False), (404, False)]
)
def test_D29_one_cluster_is_asked_before_a_change(answer: Json | int, expected: bool) -> None:
    api = CapiApi(CapiClustersKube({"/v1beta2/namespaces/default/clusters/a": answer}), CapiAnnotations(), "v1beta2")
    assert api.cluster_paused("default", "a") is expected


def test_D29_a_cluster_that_gives_no_answer_is_not_taken_for_awake() -> None:
    api = CapiApi(CapiClustersKube({"/v1beta2/namespaces/default/clusters/a": 500}), CapiAnnotations(), "v1beta2")
    with pytest.raises(Transient):
        api.cluster_paused("default", "a")


def served(*versions: str, preferred: str = "", kinds: Iterable[str] = EVERY_KIND) -> dict[str, Json | int]:
    """What the API group's discovery documents say."""
    resources = [{"name": f"{kind.lower()}s", "kind": kind} for kind in kinds] + [
        {"name": "machinesets/scale", "kind": "Scale"}
    ]
    group = {"versions": [{"version": each} for each in versions], "preferredVersion": {"version": preferred}}
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
def test_CAPI_2_the_version_to_speak(document: dict[str, Json | int], wanted: str, version: str) -> None:
    found = discover(CapiClustersKube(document), GROUP, wanted)
    assert (found.version, found.kinds) == (version, EVERY_KIND)


def test_CAPI_2_machine_pools_may_be_absent() -> None:
    kinds = EVERY_KIND - {"MachinePool"}
    assert discover(CapiClustersKube(served("v1beta2", preferred="v1beta2", kinds=kinds)), GROUP, "").kinds == kinds


@each_row(
    ("document", "wanted", "names"),
    [
        ({"": 404}, "", r"providers\.clusterapi\.group"),
        ({"": 404, "/v1beta1": 404}, "v1beta1", r"providers\.clusterapi\.version"),
        ({"": {}}, "", "serves no version"),
        ({"": {"preferredVersion": {"version": "../../api/v1"}}}, "", "serves no version"),
    ],
)
@each_row("kinds", [True, False])
def test_CAPI_2_what_is_not_served_is_a_mistake_of_the_settings(
    document: dict[str, Json | int], wanted: str, names: str, kinds: bool
) -> None:
    with pytest.raises(InvalidRequest, match=names):
        discover(CapiClustersKube(document), GROUP, wanted, kinds=kinds)


def test_a_refused_discovery_is_told_as_what_it_is() -> None:
    with pytest.raises(Unauthorized):
        discover(CapiClustersKube({"": 403}), GROUP, "")
    with pytest.raises(Transient):
        discover(CapiClustersKube({"": {"versions": "none"}}), GROUP, "")


def test_D12_a_change_asks_for_the_version_and_not_for_the_kinds() -> None:
    kube = CapiClustersKube(served("v1beta2", preferred="v1beta2"))
    assert discover(kube, GROUP, "", kinds=False).version == "v1beta2"
    assert kube.asked == ["GET "]
    kube = CapiClustersKube(served("v1beta1"))
    discover(kube, GROUP, "v1beta1", kinds=False)
    assert kube.asked == ["GET /v1beta1"]
