"""Identification of our cluster in a management cluster with several."""

from __future__ import annotations

import msgspec

from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.capi_state import CapiState, Doubt, OwnCluster, own_cluster
from chalicelib.providers.clusterapi.models import CapiAnnotations
from chalicelib.providers.clusterapi.settings import Spec
from tests.cases import each_row
from tests.providers.clusterapi.objects import GROUP, node

A, B = OwnCluster("default", "a"), OwnCluster("other", "a")
EVERY = (Spec(),)


def of(name: str, namespace: str | None = "default") -> Node:
    """A Node of that cluster; None: annotated by a version that did not write the namespace."""
    annotations = {f"{GROUP}/cluster-name": name}
    if namespace is not None:
        annotations[f"{GROUP}/cluster-namespace"] = namespace
    return msgspec.structs.replace(node("n"), annotations=annotations)


PLAIN = msgspec.structs.replace(node("n"), annotations={})


@each_row(
    ("nodes", "specs", "discovered", "ours"),
    [
        ((of("a"),), EVERY, (), A),  # the Nodes identify it
        ((PLAIN, of("a"), of("a")), EVERY, (A, OwnCluster("default", "b")), A),
        # the settings take precedence
        ((of("a", "other"),), (Spec(cluster="a"), Spec(cluster="b")), (A,), A),
        ((of("b"), of("b")), (Spec(cluster="a"),), (A,), A),
        ((of("a"), of("a", None)), EVERY, (), A),  # an old Node does not name the namespace
        ((of("a", None),), EVERY, (), OwnCluster("", "a")),
        ((of("a", None),), EVERY, (A,), A),
        # half of the Nodes is not a majority
        ((of("a"), of("a"), of("b"), of("a", "other")), EVERY, (), None),
        ((of("a"), of("a"), of("b")), EVERY, (), A),
        # no Node identifies it: the settings apply
        ((PLAIN,), (Spec(cluster="a"),), (A, OwnCluster("default", "b")), A),
        ((), (Spec("default", "a"), Spec("other", "b")), (A,), A),
        # Nodes of two clusters, and the settings select one
        ((of("a"), of("b")), (Spec(cluster="a"),), (A,), A),
    ],
)
def test_capi_own_cluster_follows_from_nodes_and_settings(
    nodes: tuple[Node, ...],
    specs: tuple[Spec, ...],
    discovered: tuple[OwnCluster, ...],
    ours: OwnCluster | None,
) -> None:
    found = own_cluster(nodes, specs, discovered, CapiAnnotations()).cluster
    assert (None if isinstance(found, Doubt) else found) == ours


@each_row(
    ("nodes", "specs", "discovered", "says"),
    [
        ((PLAIN,), EVERY, (A,), "set clusterName"),  # even where only one exists
        ((), (Spec(cluster="a"), Spec("n")), (A,), "set clusterName"),
        ((of("a"), of("b")), EVERY, (), "none has more than half"),
        ((of("a"), of("a", "other")), EVERY, (), "none has more than half"),
        ((of("a", None),), EVERY, (A, B), "could all be this cluster"),
        (
            (of("a"),),
            (Spec(cluster="a"), Spec(cluster="b")),
            (A, OwnCluster("default", "b")),
            "could all be",
        ),
        ((), (Spec(cluster="a"),), (A, B), "could all be this cluster"),
        ((), (Spec(cluster="c"),), (A, B), "MachinePool of cluster c"),
    ],
)
def test_capi_own_cluster_is_none_if_ambiguous(
    nodes: tuple[Node, ...], specs: tuple[Spec, ...], discovered: tuple[OwnCluster, ...], says: str
) -> None:
    found = own_cluster(nodes, specs, discovered, CapiAnnotations()).cluster
    assert isinstance(found, Doubt)
    assert says in found.problem


def test_capi_cluster_annotations_follow_the_api_group() -> None:
    keys = CapiAnnotations("test.k8s.io")
    assert isinstance(own_cluster((of("a"),), EVERY, (), keys).cluster, Doubt)
    annotations = {keys.cluster_name: "a", keys.cluster_namespace: "default"}
    own = own_cluster(
        (msgspec.structs.replace(node("n"), annotations=annotations),), EVERY, (), keys
    )
    assert own.cluster == A


@each_row(
    ("specs", "clusters", "says"),
    [
        # a Cluster without a group counts
        ((Spec(cluster="a"),), {("other", "a")}, "could all be this cluster"),
        ((Spec("default", "a"),), {("other", "a")}, ""),
        ((Spec(cluster="a"),), {("other", "b")}, ""),
    ],
)
def test_capi_namesake_without_groups_makes_a_name_ambiguous(
    specs: tuple[Spec, ...], clusters: set[tuple[str, str]], says: str
) -> None:
    found = own_cluster(
        (), specs, (A,), CapiAnnotations(), CapiState({}, (), clusters=frozenset(clusters))
    ).cluster
    assert says in found.problem if isinstance(found, Doubt) else (found, says) == (A, "")
