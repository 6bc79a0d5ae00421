"""Tests of reading all Cluster API objects through the real client."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.kit.errors import InvalidRequest, Transient, Unauthorized
from infra.emulators.controllers import objects
from infra.emulators.kube import crds
from infra.emulators.kube.api import ApiLoggedRequest
from infra.emulators.kube.auth import RbacRule
from tests.providers.clusterapi.management import fill, management, operation
from tests.providers.clusterapi.objects import (
    GROUP,
    Json,
    bounds,
    capacity,
    cluster,
    deployment,
    leaving,
    machine,
    machine_set,
    node,
)
from tests.reference_data import SHARED, needs_shared

OURS = [node("cp", "c:///cp")]


def test_capi_group_as_passed_to_the_planner() -> None:
    annotations = {
        **bounds(1, 5),
        **capacity(cpu="4", memory="8Gi"),
        f"{GROUP}/autoscaling-options-scaledownunneededtime": "5m",
    }
    with management() as there:
        nodes = fill(there, 3, joined=2, annotations=annotations)
        observed = there.provider([GroupPolicy("clusterapi", "md-0", max=8, priority=3)]).observe(
            nodes
        )
    assert observed.gaps == ()
    [group] = observed.groups
    assert (group.id, group.provider) == ("MachineDeployment/default/md-0", "clusterapi")
    assert (group.min, group.max, group.target, group.priority) == (1, 8, 3, 3)
    assert [(each.id, each.state, each.node) for each in group.instances] == [
        ("c:///i-0", InstanceState.RUNNING, "n-0"),
        ("c:///i-1", InstanceState.RUNNING, "n-1"),
        ("pending-machine-default_m-2", InstanceState.CREATING, ""),
    ]
    assert group.options.scale_down_unneeded_time == 300.0
    assert group.template is not None
    assert group.template.allocatable == {"cpu": 4000, "memory": 8 * 2**30, "pods": 110}
    assert group.error == ""


@pytest.mark.parametrize("count", [1, 25])
def test_capi_call_count_does_not_grow_with_groups_or_nodes(count: int) -> None:
    with management() as there:
        reported = {**bounds(), **capacity(cpu="4", memory="8Gi")}
        nodes = fill(there, count, annotations=reported)
        for name in (f"more-{index}" for index in range(count)):
            there.add(deployment(name, annotations=reported), machine_set(f"{name}-ms", of=name))
        assert len(there.provider().observe(nodes).groups) == count + 1
        assert [each.split()[1] for each in there.requests()] == [
            "discovery",
            "/v1beta2",
            "machinesets",
            "machinedeployments",
            "machinepools",
            "machines",
            "clusters",
            "machinehealthchecks",
        ]


def test_capi_preferred_version_is_used_unless_one_is_set() -> None:
    with management() as there:
        fill(there, 1)
        there.provider().observe(OURS)
        assert f"/apis/{GROUP}/v1beta2/machines" in _paths(there.server.requests)
        there.provider(settings={"version": "v1beta1"}).observe(OURS)
        assert f"/apis/{GROUP}/v1beta1/machines" in _paths(there.server.requests)


def _paths(requests: Iterable[ApiLoggedRequest]) -> set[str]:
    return {each.path.partition("?")[0] for each in requests}


@pytest.mark.parametrize("settings", [{"group": "not.here"}, {"version": "v9"}])
def test_capi_unserved_group_or_version_is_a_settings_error(settings: dict[str, str]) -> None:
    with management() as there, pytest.raises(InvalidRequest, match=r"providers\.clusterapi\."):
        there.provider(settings=settings).observe(OURS)


def test_capi_missing_machine_pool_api_does_not_block_other_kinds() -> None:
    with management() as there:
        there.store.resources.drop("machinepools", GROUP)
        nodes = fill(there, 1)
        observed = there.provider().observe(nodes)
    assert (len(observed.groups), observed.gaps) == (1, ())


def test_capi_two_namespaces_are_read_without_duplicates() -> None:
    lines = ("namespace=default", "namespace=second,color=red", "namespace=default,color=red")
    settings = {"autoDiscovery": "\n".join(f"clusterapi:{line}" for line in lines)}
    with management() as there:
        there.add(
            deployment("md-0", labels={"color": "red"}),
            deployment("md-1"),
            deployment("md-2", namespace="second", labels={"color": "red"}),
            deployment("md-3", namespace="second"),
            deployment("md-4", namespace="third"),
        )
        first = there.provider(settings=settings).observe(OURS)
        second = there.provider(settings=settings).observe([node("cp", namespace="second")])
    assert [group.id for group in first.groups] == [
        "MachineDeployment/default/md-0",
        "MachineDeployment/default/md-1",
    ]
    assert [group.id for group in second.groups] == ["MachineDeployment/second/md-2"]


def test_capi_custom_api_group_uses_annotation_keys_of_that_group(tmp_path: Path) -> None:
    own = "test.k8s.io"
    for path in crds.OWN.glob("m*.yaml"):
        (tmp_path / path.name).write_text(path.read_text().replace(GROUP, own))

    def renamed(obj: Json) -> Json:
        made: Json = json.loads(json.dumps(obj).replace(GROUP, own))
        return made

    here = node("n-0", "c:///i-0")
    named = {
        f"{own}/machine": "m-0",
        f"{own}/cluster-name": "c1",
        f"{own}/cluster-namespace": "default",
    }
    with management(crds=tmp_path) as there:
        there.store.load(
            "machinedeployments", [renamed(deployment("md-0", annotations=bounds(2, 4)))], own
        )
        there.store.load("machinesets", [renamed(machine_set("ms", of="md-0"))], own)
        there.store.load("machines", [renamed(machine("m-0", "ms", node="n-0"))], own)
        provider = there.provider(settings={"group": own})
        [group] = provider.observe([msgspec.structs.replace(here, annotations=named)]).groups
        assert (group.min, group.max) == (2, 4)
        assert [each.node for each in group.instances] == ["n-0"]
        paused = deployment(
            "md-0", annotations={**bounds(2, 4), "cluster.x-k8s.io/paused": "", "x": ""}
        )
        kept = renamed(paused)
        # this key is the same in every group
        kept["metadata"]["annotations"]["cluster.x-k8s.io/paused"] = ""
        there.store.load("machinedeployments", [kept], own)
        assert provider.observe([msgspec.structs.replace(here, annotations=named)]).groups == ()


def test_capi_one_malformed_object_is_a_gap() -> None:
    broken = machine("broken", "md-0-ms")
    broken["status"] = {"nodeRef": "n-9"}
    with management() as there:
        nodes = fill(there, 2)
        there.add(broken)
        observed = there.provider().observe(nodes)
    assert len(observed.groups[0].instances) == 2
    [gap] = observed.gaps
    assert (gap.kind, gap.name) == ("Machine", "default/broken")


def test_capi_truncated_list_is_an_error_of_that_list_only() -> None:
    with management() as there:
        nodes = fill(there, 2)
        there.add(machine_set("alone"))
        there.fault("GET", "/machinedeployments", truncate=40, times=-1)
        observed = there.provider().observe(nodes)
    assert [group.id for group in observed.groups] == ["MachineSet/default/alone"]
    assert [gap.kind for gap in observed.gaps] == ["MachineDeployment"]


def test_capi_unlistable_machines_leave_groups_with_a_gap() -> None:
    readable = RbacRule(
        verbs=("get", "list"), groups=(GROUP,), resources=("machinedeployments", "machinesets")
    )
    urls = RbacRule(verbs=("get",), urls=("/apis/*",))
    with management([readable, urls]) as there:
        nodes = fill(there, 1)
        observed = there.provider().observe(nodes)
    [group] = observed.groups
    assert "Machines could not be listed" in group.error
    assert "forbidden" in group.error
    assert sorted(gap.kind for gap in observed.gaps) == ["Cluster", "Machine", "MachinePool"]


def test_capi_nothing_readable_is_an_error() -> None:
    with (
        management([RbacRule(verbs=("get",), urls=("/apis/*",))]) as there,
        pytest.raises(Unauthorized),
    ):
        there.provider().observe(OURS)
    with management() as there:
        there.fault("GET", "/apis/", 503, times=-1)
        with pytest.raises(Transient):
            there.provider().observe(OURS)


def test_capi_deleting_machines_keep_their_node() -> None:
    with management() as there:
        nodes = fill(there, 1)
        there.add(leaving(machine("old", "md-0-ms", provider_id="c:///i-9", node="n-9")))
        observed = there.provider().observe([*nodes, node("n-9", "c:///i-9", of="old")])
    [group] = observed.groups
    assert [(each.id, each.node) for each in group.instances] == [
        ("c:///i-0", "n-0"),
        ("deleting-machine-default_old", "n-9"),
    ]


def test_capi_pools_with_and_without_machines_match_their_controllers() -> None:
    made = [
        objects.machine_pool(name, 2, 0, 5, machines=machines, cluster="c1")
        for name, machines in (("backed", True), ("bare", False))
    ]
    with management() as there:
        objects.apply(there.store, *made)
        there.work(80)
        backed, bare = there.provider().observe(there.nodes()).groups
    assert (backed.target, bare.target) == (2, 2)
    for group, begins in ((backed, "default/"), (bare, "listed:local:///default/bare-")):
        assert [each.state for each in group.instances] == [InstanceState.RUNNING] * 2
        assert all(each.node and each.handle.startswith(begins) for each in group.instances)
        assert group.template is not None


def test_capi_paused_cluster_is_untouched_until_resumed() -> None:
    with management() as there:
        nodes = fill(there, 2)
        there.add(cluster("c1", paused=True))
        observed = there.provider().observe(nodes)
        assert (observed.groups, [gap.name for gap in observed.gaps]) == ((), ["default/c1"])
        outcome = there.provider().scale_up(operation(OperationKind.SCALE_UP, 2, 3))
        assert isinstance(outcome, Failed)
        assert "paused with its Cluster" in outcome.message
        assert there.writes() == []
        there.change("c1", "Cluster", paused=False)
        assert len(there.provider().observe(nodes).groups) == 1
        assert isinstance(
            there.provider().scale_up(operation(OperationKind.SCALE_UP, 2, 3)), Succeeded
        )


def test_capi_size_set_by_the_topology_is_reported_with_its_entry() -> None:
    with management() as there:
        there.add(
            deployment("w", labels={"topology.cluster.x-k8s.io/deployment-name": "big"}),
            cluster("c1", topology={"big": 3, "small": None}),
        )
        [group] = there.provider().observe(OURS).groups
    assert "sets replicas of big" in group.error


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize(
    ("fault", "cls"),
    [
        ("out-of-stock", "OutOfStock"),
        ("quota", "QuotaExceeded"),
        ("provisioning-failure", "Unknown"),
    ],
)
def test_capi_stockout_and_quota_errors_have_their_class(
    version: str, fault: str, cls: str
) -> None:
    with management() as there:
        there.version = version
        there.controllers.fail_next("default/md-0", fault)
        objects.apply(
            there.store, objects.machine_deployment("md-0", 1, 0, 5, cluster="c1", version=version)
        )
        there.work(60)
        [found] = there.provider(settings={"stuckAfter": "30s"}).observe(OURS).groups[0].instances
        assert (found.state, found.error is not None and found.error.cls) == (
            InstanceState.CREATING,
            cls,
        )
        [before] = there.provider().observe(OURS).groups[0].instances
        # only in this version does the phase say Failed
        assert (before.error is not None) is (version == "v1beta1")


def test_capi_node_of_a_deleted_machine_is_not_an_instance() -> None:
    with management() as there:
        nodes = fill(there, 2)
        there.store.remove("machines", "m-1", "default", GROUP)
        observed = there.provider().observe([*nodes, node("stranger", "c:///s")])
    assert [each.node for each in observed.groups[0].instances] == ["n-0"]
    assert observed.gaps == ()


@needs_shared
def test_capi_real_cluster_api_definitions_are_served_alike() -> None:
    with management(crds=SHARED / "data" / "capi-crds") as there:
        nodes = fill(there, 2)
        observed = there.provider().observe(nodes)
    assert [len(group.instances) for group in observed.groups] == [2]
    assert observed.gaps == ()
