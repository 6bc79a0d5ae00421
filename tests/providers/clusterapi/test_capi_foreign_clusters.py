"""A management cluster can hold several clusters, and annotations of our
Nodes may name another one.

An attacker who controls a kubelet writes the annotations and the providerID of its Node. The victim
is another cluster of the same management cluster, whose Machines have their own Nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pytest

from chalicelib.cluster.connect import connect
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.providers.clusterapi.scale_up import MAY_LOWER_FOR
from chalicelib.providers.kit.base import Connection, Observation, Provider
from chalicelib.providers.kit.errors import InvalidRequest, Transient
from chalicelib.providers.kit.services import ProviderServices
from chalicelib.providers.registry import build
from tests.providers.clusterapi.management import Management, fill, finalized, management, operation
from tests.providers.clusterapi.objects import (
    GROUP,
    Json,
    cluster,
    deployment,
    machine,
    machine_set,
    node,
    pool,
)

OURS = ["MachineDeployment/default/md-0"]
NAME, SPACE, MACHINE = f"{GROUP}/cluster-name", f"{GROUP}/cluster-namespace", f"{GROUP}/machine"
VICTIM = {NAME: "victim", SPACE: "victim", MACHINE: "v-0"}
FULL = {"clusterName": "c1", "namespace": "default"}
SETTINGS: dict[str, dict[str, str]] = {
    "no settings": {},
    "clusterName": {"clusterName": "c1"},
    "both": FULL,
    "autoDiscovery": {"autoDiscovery": "clusterapi:namespace=default,clusterName=c1"},
}
# Annotations and ids that an attacker writes on one of our Nodes.
LIES: dict[str, dict[str, str]] = {
    "another namespace": {SPACE: "victim"},
    "another cluster": {NAME: "victim"},
    "a whole identity": VICTIM,
    "the namesake": {SPACE: "victim", NAME: "c1"},
    "a cluster that is not there": {NAME: "nothing", SPACE: "nowhere"},
    "nothing": {NAME: "", SPACE: "", MACHINE: ""},
    "an empty namespace": {SPACE: ""},
    "much": {NAME: "x" * 200_000, SPACE: "y" * 50_000, MACHINE: "z"},
    "rubbish": {NAME: "../../victim\n", SPACE: "\u0000", MACHINE: "a/b"},
}


def in_namespace(obj: Json, namespace: str) -> Json:
    return {
        **obj,
        "metadata": {
            **obj["metadata"],
            "namespace": namespace,
            "uid": f"{obj['metadata']['uid']}-2",
        },
    }


def add_victim(there: Management, name: str = "victim", size: int = 3) -> None:
    """Adds the other cluster: a MachineDeployment in its namespace, whose
    Machines have Nodes elsewhere."""
    there.add(
        in_namespace(cluster(name), "victim"),
        deployment("v", namespace="victim", cluster=name, replicas=size),
        machine_set("v-set", of="v", namespace="victim", cluster=name, replicas=size),
    )
    there.add(
        *(
            finalized(
                machine(
                    f"v-{at}",
                    "v-set",
                    namespace="victim",
                    cluster=name,
                    node=f"victim-{at}",
                    provider_id=f"c:///v-{at}",
                )
            )
            for at in range(size)
        )
    )


@pytest.fixture
def there() -> Iterator[Management]:
    with management() as made:
        made.add(cluster())
        add_victim(made)
        yield made


def lying(nodes: Sequence[Node], lie: Mapping[str, str], *which: int) -> list[Node]:
    return [
        msgspec.structs.replace(each, annotations={**each.annotations, **lie})
        if at in which
        else each
        for at, each in enumerate(nodes)
    ]


def ids(observed: Observation) -> list[str]:
    return [group.id for group in observed.groups]


def apart(there: Management, settings: Mapping[str, str], secret: str = "management") -> Provider:
    """Returns the policy settings for a separate management cluster."""
    config = there.server.kubeconfig(there.user)

    def to(access: KubernetesAccess) -> object:
        return connect(
            access, lambda _: config, clock=there.clock, sleep=lambda _: None, jitter=lambda: 0.5
        )

    return build(
        "clusterapi",
        Connection(
            "test",
            {"kubeconfigSecret": secret, **settings},
            (),
            lambda name: name,
            there.kube(),
            there.clock,
            KubernetesAccess(kubeconfig_secret="workload"),
            ProviderServices(connect=to),
        ),
    )


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_capi_annotations_of_one_node_change_no_group(
    there: Management, lie: dict[str, str], settings: dict[str, str]
) -> None:
    nodes = fill(there, 3)
    provider = there.provider(settings=settings)
    honest, attacked = provider.observe(nodes), provider.observe(lying(nodes, lie, 1))
    assert ids(attacked) == OURS
    assert attacked.groups == honest.groups
    assert all(len(gap.detail) < 1000 for gap in attacked.gaps)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_capi_annotations_of_all_nodes_adopt_no_other_cluster(
    there: Management, lie: dict[str, str], settings: dict[str, str]
) -> None:
    nodes = fill(there, 3)
    assert ids(there.provider(settings=settings).observe(lying(nodes, lie, 0, 1, 2))) == OURS


@pytest.mark.parametrize(
    "settings", [FULL, SETTINGS["autoDiscovery"]], ids=["settings", "autoDiscovery"]
)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_capi_settings_select_our_cluster_in_a_management_cluster(
    there: Management, lie: dict[str, str], settings: dict[str, str]
) -> None:
    nodes = fill(there, 3)
    assert ids(apart(there, settings).observe(lying(nodes, lie, 0, 1, 2))) == OURS
    assert ids(apart(there, settings).observe(())) == OURS


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"namespace": "default"},
        {"labels": "a=b"},
        {"autoDiscovery": "clusterapi:namespace=default"},
        {
            "autoDiscovery": (
                "clusterapi:namespace=default,clusterName=c1 clusterapi:namespace=victim"
            )
        },
    ],
)
def test_capi_management_cluster_without_cluster_name_yields_no_groups(
    there: Management, settings: dict[str, str]
) -> None:
    nodes = fill(there, 3)
    there.requests()
    with pytest.raises(InvalidRequest, match=r"providers\.clusterapi\.(clusterName|autoDiscovery)"):
        apart(there, settings).observe(nodes)
    assert there.requests() == []


@pytest.mark.parametrize("nodes_know", [True, False], ids=["annotated", "bare"])
def test_capi_cluster_name_used_in_two_namespaces_needs_the_namespace(
    there: Management, nodes_know: bool
) -> None:
    nodes = fill(there, 3) if nodes_know else []
    if not nodes_know:
        there.add(deployment("md-0"))
    add_victim(there, "c1")
    for observed in (
        apart(there, {"clusterName": "c1"}).observe(nodes),
        apart(there, {"clusterName": "c1"}).observe(lying(nodes, {SPACE: "victim"}, 0, 1, 2)),
    ):
        assert observed.groups == ()
        [gap] = observed.gaps
        assert "default/c1, victim/c1" in gap.detail
        assert "set namespace" in gap.detail
    assert ids(apart(there, FULL).observe(nodes)) == OURS


def test_capi_namesake_is_not_adopted_while_our_cluster_has_no_group(there: Management) -> None:
    """Ours exists only as a Cluster, so the only group with its name is the victim's."""
    add_victim(there, "c1")
    observed = apart(there, {"clusterName": "c1"}).observe(())
    assert observed.groups == ()
    assert "set namespace" in observed.gaps[0].detail


def test_capi_cluster_name_differing_from_our_machines_is_reported(there: Management) -> None:
    """clusterName is mistyped: according to Cluster API's own Machines, most Nodes
    belong to another cluster."""
    nodes = fill(there, 3)
    observed = apart(there, {"clusterName": "victim"}).observe(nodes)
    assert observed.groups == ()
    assert "correct clusterName" in observed.gaps[0].detail


def test_capi_node_with_the_id_of_a_foreign_machine_keeps_our_cluster(there: Management) -> None:
    nodes = fill(there, 3)
    thief = msgspec.structs.replace(
        nodes[1], name="victim-0", provider_id="c:///v-0", annotations=VICTIM
    )
    for settings in ({}, {"clusterName": "c1"}):
        assert ids(there.provider(settings=settings).observe([nodes[0], thief, nodes[2]])) == OURS


def test_capi_nodes_without_machines_follow_the_majority_annotation(there: Management) -> None:
    """Without a Machine or a pool that lists them, only the annotations remain; half of the
    Nodes is not a majority."""
    there.add(deployment("md-0"))
    bare = [node(f"b-{at}") for at in range(3)]
    provider = there.provider()
    assert ids(provider.observe(lying(bare, VICTIM, 0))) == OURS
    torn = provider.observe([*lying(bare, VICTIM, 0, 1), node("b-3")])
    assert torn.groups == ()
    assert "set clusterName and namespace" in torn.gaps[0].detail


def test_capi_pool_listing_our_nodes_outweighs_their_annotations(there: Management) -> None:
    there.add(pool("p", ["c:///p-0", "c:///p-1"]))
    nodes = lying([node("p-0", "c:///p-0"), node("p-1", "c:///p-1")], VICTIM, 0, 1)
    assert ids(there.provider().observe(nodes)) == ["MachinePool/default/p"]


def test_capi_unusual_annotations_are_reported_with_some_node_names(there: Management) -> None:
    nodes = fill(there, 9)
    [gap] = there.provider(settings=FULL).observe(lying(nodes, VICTIM, 1, 2, 3, 4)).gaps
    assert gap.kind == "Node"
    assert "n-1, n-2, n-3 and 1 more" in gap.detail
    assert "victim/victim" in gap.detail


def test_capi_group_ownership_key_is_independent_of_the_secret(there: Management) -> None:
    """Two policies with separate secrets for one management cluster claim the same key."""
    fill(there, 1)
    [one] = apart(there, FULL, secret="outscaler/one/management").observe(()).groups
    [two] = (
        apart(there, {**FULL, "context": "simulated"}, secret="outscaler/two/kubeconfig")
        .observe(())
        .groups
    )
    [own] = there.provider(settings=FULL).observe(()).groups
    assert one.claim
    assert one.claim == two.claim == own.claim


def test_capi_ownership_keys_differ_by_cluster_and_after_recreation(there: Management) -> None:
    fill(there, 1)
    with management() as elsewhere:
        fill(elsewhere, 1)
        [here], [there_] = (
            each.provider(settings={"clusterName": "c1", "namespace": "default"}).observe(()).groups
            for each in (there, elsewhere)
        )
    assert here.id == there_.id
    assert here.claim != there_.claim
    found = there.store.get("machinedeployments", "md-0", "default", GROUP)
    assert found is not None
    there.store.delete("machinedeployments", "md-0", "default", GROUP)
    again = deployment("md-0")
    again["metadata"]["uid"] = "uid-of-its-successor"
    there.add(again)
    [anew] = there.provider(settings=FULL).observe(()).groups
    assert anew.claim != here.claim


def test_capi_operations_of_an_old_policy_are_only_rolled_back(there: Management) -> None:
    """A removal had annotated its Machine when the version that requires
    clusterName was deployed."""
    fill(there, 3)
    begun = operation(OperationKind.DELETE_NODES, 3, 2, 0)
    there.fault("PATCH", "/scale", 500, times=-1)
    with pytest.raises(Transient):
        there.provider().delete_nodes(begun)
    there.server.faults.clear()
    assert set(there.marked()) == {"m-0"}
    there.requests()
    provider = apart(there, {})
    for outcome in (
        provider.delete_nodes(begun),
        provider.poll(begun),
        provider.scale_up(operation(OperationKind.SCALE_UP, 3, 4)),
        provider.decrease_target(operation(OperationKind.DECREASE_TARGET, 3, 2)),
    ):
        assert isinstance(outcome, Failed)
        assert (outcome.error_class, "clusterName" in outcome.message) == ("InvalidRequest", True)
    assert there.requests() == []
    there.clock.advance(MAY_LOWER_FOR + 1)
    assert provider.cancel_delete(begun) is True
    assert (there.marked(), there.size()) == ({}, 3)
