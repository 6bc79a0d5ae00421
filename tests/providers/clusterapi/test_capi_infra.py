"""Node templates end to end: the objects of the management cluster, read by
the real client over HTTP.

golden/*.json are the resulting nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.model.group import NodeGroup
from infra.emulators.kube import crds
from infra.emulators.kube.auth import RbacRule
from infra.emulators.kube.store import ObjectStore
from tests.builders import cluster, growth, words
from tests.providers.clusterapi.management import Management, management
from tests.providers.clusterapi.objects import (
    CAPACITY,
    GROUP,
    Json,
    bounds,
    capacity,
    machine_set,
    node,
)
from tests.providers.clusterapi.objects import resource as made
from tests.providers.suite.golden import assert_golden

GOLDEN = Path(__file__).with_name("golden")
INFRA = "infrastructure.cluster.x-k8s.io"
OURS = [node("cp", "c:///cp")]
PLURALS = {"LocalMachineTemplate": "localmachinetemplates", "LocalMachinePool": "localmachinepools"}
FULL = {"capacity": {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "200Gi", "pods": "58"}}


@pytest.fixture(scope="module")
def there() -> Iterator[Management]:
    """One server for all tests; each test uses its own resource name."""
    with management() as running:
        yield running


def infra_object(
    name: str, status: Json, kind: str = "LocalMachineTemplate", namespace: str = "default"
) -> Json:
    return {
        "apiVersion": f"{INFRA}/v1beta1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
        "status": status,
    }


def add(
    there: Management,
    name: str,
    annotations: dict[str, str],
    status: Json | None = None,
    *,
    kind: str = "MachineDeployment",
    infra_kind: str = "LocalMachineTemplate",
    spec: Json | None = None,
    reference: Json | None = None,
    **more: Any,
) -> None:
    """Adds a resource with 0 replicas and, if a status is given, its infrastructure object."""
    obj = made(kind, name, replicas=0, annotations={**bounds(0, 5), **annotations}, **more)
    template = obj["spec"]["template"]["spec"]
    template["infrastructureRef"] = reference or {
        "apiGroup": INFRA,
        "kind": infra_kind,
        "name": name,
    }
    if kind == "MachinePool":
        obj["spec"].update(spec or {})
    else:
        template.update(spec or {})
    there.add(obj)
    if status is not None:
        there.store.load(PLURALS[infra_kind], [infra_object(name, status, infra_kind)], INFRA)


def group(
    there: Management, name: str, kind: str = "MachineDeployment", **settings: str
) -> NodeGroup:
    observed = there.provider(settings=settings).observe(OURS)
    return next(each for each in observed.groups if each.id == f"{kind}/default/{name}")


def check(there: Management, name: str, kind: str = "MachineDeployment", **settings: str) -> None:
    found = group(there, name, kind, **settings)
    assert found.template_error == ""
    assert_golden(
        found.template,
        GOLDEN / f"{name}.json",
        volumes=found.template_volumes,
        devices=found.template_devices,
    )


def test_capi_golden_node_template_from_annotations_only(there: Management) -> None:
    add(
        there,
        "annotations-only",
        capacity(cpu="16000m", memory="128G", ephemeral_disk="100Gi", maxPods="200"),
    )
    there.requests()
    check(there, "annotations-only")
    assert not [each for each in there.requests() if INFRA in each], "D9: nothing was left to ask"


def test_capi_golden_node_template_from_infrastructure_only(there: Management) -> None:
    add(there, "infra-only", {}, {**FULL, "capacity": {**FULL["capacity"], "cpu": 8}})
    there.requests()
    check(there, "infra-only")
    assert [each for each in there.requests() if INFRA in each] == [
        f"GET /apis/{INFRA} 200",
        f"GET /apis/{INFRA}/v1beta2 200",  # preferred, and without the kind
        f"GET /apis/{INFRA}/v1beta1 200",
        f"GET /apis/{INFRA}/v1beta1/namespaces/default/localmachinetemplates/infra-only 200",
    ]


def test_capi_golden_node_template_split_between_sources(there: Management) -> None:
    add(there, "split", capacity(cpu="4", maxPods="30"), FULL)
    check(there, "split", reservedCpu="100m", reservedMemory="1Gi")


def test_capi_golden_node_template_arm64(there: Management) -> None:
    node_info = {"architecture": "arm64", "operatingSystem": "linux"}
    add(there, "arm64", {}, {**FULL, "nodeInfo": node_info}, spec={"failureDomain": "eu-1a"})
    check(there, "arm64")


def test_capi_golden_node_template_gpu(there: Management) -> None:
    add(
        there,
        "gpu",
        {
            **capacity(cpu="8", memory="64Gi", gpu_type="nvidia.com/gpu", gpu_count="4"),
            CAPACITY + "labels": "cluster-api/accelerator=nvidia-tesla-t4",
        },
    )
    check(there, "gpu")


def test_capi_golden_node_template_taints_and_labels(there: Management) -> None:
    labels = {
        "node-restriction.kubernetes.io/x": "1",
        "a.node.cluster.x-k8s.io/y": "2",
        "node-role.kubernetes.io/z": "",
        "my.label/x": "4",
        "a.node-role.kubernetes.io/x": "5",
    }
    taints = [
        {"key": "a", "value": "1", "effect": "NoSchedule", "propagation": "Always"},
        {"key": "boot", "value": "1", "effect": "NoExecute", "propagation": "OnInitialization"},
    ]
    add(
        there,
        "taints-and-labels",
        {
            **capacity(cpu="1", memory="1Gi"),
            CAPACITY + "labels": "team=blue,kubernetes.io/os=windows",
            CAPACITY + "taints": "a=2:NoSchedule,key1,k=v,k:Bad,a:b:c,gone:NoExecute",
        },
        template={"labels": labels, "taints": taints},
        spec={"failureDomain": "eu-1b"},
    )
    check(there, "taints-and-labels")


def test_capi_golden_node_template_csi_and_dra(there: Management) -> None:
    add(
        there,
        "csi-and-dra",
        capacity(
            cpu="8",
            memory="64Gi",
            csi_driver="ebs.csi.aws.com=25,,=10,x=abc,y=-5,z=25.5,efs=0",
            dra_driver="gpu.nvidia.com",
            gpu_count="2",
        ),
    )
    check(there, "csi-and-dra")


def test_capi_golden_node_template_of_a_pool_and_its_infrastructure(there: Management) -> None:
    add(
        there,
        "pool",
        {},
        FULL,
        kind="MachinePool",
        infra_kind="LocalMachinePool",
        spec={"failureDomains": ["eu-1a"]},
    )
    there.requests()
    check(there, "pool", "MachinePool")
    assert any(
        each.endswith("v1beta2/namespaces/default/localmachinepools/pool 200")
        for each in there.requests()
    )


def test_capi_v1beta1_infrastructure_reference_uses_its_version(there: Management) -> None:
    reference = {
        "apiVersion": f"{INFRA}/v1beta1",
        "kind": "LocalMachineTemplate",
        "name": "old",
        "namespace": "x",
    }
    add(there, "old", {}, FULL, reference=reference)
    found = group(there, "old").template
    assert found is not None
    assert found.capacity["pods"] == 58


def test_capi_infrastructure_object_without_node_info_keeps_the_default(there: Management) -> None:
    add(there, "bare", {}, FULL)
    found = group(there, "bare", scaleZeroDefaultArch="arm64").template
    assert found is not None
    assert (found.labels["kubernetes.io/arch"], found.labels["kubernetes.io/os"]) == (
        "arm64",
        "linux",
    )


def test_capi_missing_infrastructure_object_leaves_the_annotations(there: Management) -> None:
    add(there, "missing", capacity(cpu="1"))
    found = group(there, "missing")
    assert (found.template, found.error) == (None, "")
    assert CAPACITY + "memory" in found.template_error
    assert "localmachinetemplates" in found.template_error


def test_capi_infrastructure_of_a_resource_without_bounds_is_not_read(there: Management) -> None:
    add(there, "unbounded", {})
    there.add(machine_set("of-md", of="unbounded", replicas=0))
    there.store.update("machinedeployments", _without_bounds(there, "unbounded"), GROUP)
    there.requests()
    there.provider().observe(OURS)
    assert not [each for each in there.requests() if "unbounded" in each or "of-md" in each]


def _without_bounds(there: Management, name: str) -> Json:
    found = there.store.get("machinedeployments", name, "default", GROUP)
    assert found is not None
    return {**found, "metadata": {**found["metadata"], "annotations": {}}}


# -- servers that refuse or do not answer


READS = [
    RbacRule(verbs=("get", "list"), groups=(GROUP,), resources=("*",)),
    RbacRule(verbs=("get",), urls=("/apis", "/apis/*")),
]


def test_capi_missing_infrastructure_permission_costs_one_call() -> None:
    with management(READS) as there:
        for at in range(4):
            add(there, f"md-{at}", {}, FULL)
        add(there, "said", capacity(cpu="1", memory="1Gi"), FULL)
        groups = {
            each.id.rpartition("/")[2]: each for each in there.provider().observe(OURS).groups
        }
        asked = [each for each in there.requests() if "localmachinetemplates/" in each]
    assert len(groups) == 5
    assert groups["said"].template is not None
    assert "forbidden" in groups["md-3"].template_error.lower()
    assert [each.rpartition(" ")[2] for each in asked] == ["403"]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"status": 503}, id="503"),
        pytest.param({"close": True}, id="closed"),
        pytest.param({"truncate": 10}, id="cut-off"),
        pytest.param({"status": 200}, id="empty-200"),
    ],
)
def test_capi_silent_infrastructure_api_blocks_no_group(
    there: Management, fault: dict[str, Any]
) -> None:
    name = "faulty"
    if there.store.get("machinedeployments", name, "default", GROUP) is None:
        add(there, name, {}, FULL)
    there.fault("GET", f"localmachinetemplates/{name}", times=-1, **fault)
    try:
        found = group(there, name)
    finally:
        there.server.faults.clear()
    assert (found.template, found.error) == (None, "")
    assert CAPACITY + "cpu" in found.template_error
    assert group(there, name).template is not None, "the next pass finds it"


def test_capi_simulated_definitions_are_complete() -> None:
    """Both versions of the pool and one version of the template: the case in which a
    guessed version would be wrong."""
    store = ObjectStore(lambda: 0.0)
    crds.load(store, crds.OWN)
    versions = {
        each.kind: [version.name for version in each.versions]
        for name in ("v1beta1", "v1beta2")
        for each in store.resources.of(INFRA, name)
    }
    assert versions == {
        "LocalMachineTemplate": ["v1beta1"],
        "LocalMachinePool": ["v1beta2", "v1beta1"],
    }


# -- as the planner uses them


def planned(found: NodeGroup, count: int, **more: Any) -> Any:
    """Plans that many pods for a group that has no node yet; pods: their requests."""
    build = cluster()
    build.groups.append(found)
    options = more.pop("options", {})
    return build.pending(count, "1", **more).plan(**options)


def test_capi_group_at_zero_is_grown_by_its_infrastructure_capacity(there: Management) -> None:
    add(there, "grown", {}, FULL)
    plan = planned(group(there, "grown"), 15)
    assert growth(plan) == {"MachineDeployment/default/grown": (2, 15)}, "eight cores each"


def test_capi_gpu_total_takes_the_type_from_the_labels_annotation(there: Management) -> None:
    add(
        there,
        "counted",
        {
            **capacity(cpu="8", memory="64Gi", gpu_type="nvidia.com/gpu", gpu_count="2"),
            CAPACITY + "labels": "cluster-api/accelerator=nvidia-tesla-t4",
        },
    )
    found, wants = group(there, "counted"), {"nvidia.com/gpu": 1}
    assert growth(planned(found, 6, extra=wants)) == {found.id: (3, 6)}
    limited = {"gpu_total": (("nvidia-tesla-t4", 0, 4),)}
    assert growth(planned(found, 6, extra=wants, options=limited)) == {found.id: (2, 4)}


def test_capi_pod_with_a_resource_claim_reports_claims_as_not_simulated(there: Management) -> None:
    add(
        there,
        "devices",
        capacity(cpu="8", memory="64Gi", dra_driver="gpu.nvidia.com", gpu_count="2"),
    )
    plan = planned(group(there, "devices"), 1, resource_claims=("gpu",))
    assert words(plan) == {"MachineDeployment/default/devices": ["NotSimulated(resource claims)"]}
