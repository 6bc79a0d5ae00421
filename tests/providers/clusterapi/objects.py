"""Cluster API objects as plain JSON, with the owners, labels and annotations
that its controllers set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource

GROUP = "cluster.x-k8s.io"
MIN = f"{GROUP}/cluster-api-autoscaler-node-group-min-size"
MAX = f"{GROUP}/cluster-api-autoscaler-node-group-max-size"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
MARK = f"{GROUP}/delete-machine"

Json = dict[str, Any]
T = TypeVar("T")


def bounds(
    low: int | str | None = 0, high: int | str | None = 10, group: str = GROUP
) -> dict[str, str]:
    """Returns the two bound annotations; None omits one."""
    keys = {"min": low, "max": high}
    return {
        f"{group}/cluster-api-autoscaler-node-group-{side}-size": str(value)
        for side, value in keys.items()
        if value is not None
    }


def capacity(**amounts: str) -> dict[str, str]:
    """capacity(cpu="4", memory="8Gi", ephemeral_disk="100Gi")."""
    return {CAPACITY + name.replace("_", "-"): text for name, text in amounts.items()}


def owner(kind: str, name: str, *, namespace: str = "default", controller: bool = True) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": kind,
        "name": name,
        "uid": f"uid-{kind}-{namespace}-{name}",
        "controller": controller,
        "blockOwnerDeletion": True,
    }


def resource(
    kind: str,
    name: str,
    *,
    namespace: str = "default",
    cluster: str = "c1",
    replicas: int | None = 1,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    owners: tuple[Json, ...] = (),
    template: Json | None = None,
    status: Json | None = None,
) -> Json:
    """A MachineDeployment, MachineSet or MachinePool, bounded by 0 and 10
    unless annotations are given."""
    of = owners[0]["name"] if owners else name
    labelled = {"of": of, **((template or {}).get("labels") or {})}
    spec: Json = {
        "clusterName": cluster,
        "selector": {"matchLabels": {"of": name}},
        "template": {
            "metadata": {"labels": labelled},
            "spec": {
                "clusterName": cluster,
                "bootstrap": {"dataSecretName": "b"},
                "infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io",
                    "kind": "T",
                    "name": "t",
                },
                **({"taints": template["taints"]} if template and "taints" in template else {}),
            },
        },
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{kind}-{namespace}-{name}",
            "labels": {f"{GROUP}/cluster-name": cluster, **(labels or {})},
            "annotations": dict(bounds() if annotations is None else annotations),
            "ownerReferences": list(owners),
        },
        "spec": spec,
        "status": status or {},
    }


def deployment(name: str, **more: Any) -> Json:
    return resource("MachineDeployment", name, **more)


def machine_set(name: str, of: str = "", *, revision: str | None = "1", **more: Any) -> Json:
    """of: the MachineDeployment that controls it, "" for a stand-alone set."""
    annotations = dict(more.pop("annotations", bounds()))
    if of:
        more["owners"] = (
            owner("MachineDeployment", of, namespace=more.get("namespace", "default")),
        )
        if revision is not None:
            annotations["machinedeployment.clusters.x-k8s.io/revision"] = revision
    return resource("MachineSet", name, annotations=annotations, **more)


def pool(name: str, ids: Sequence[str] = (), *, managed_by: str | None = None, **more: Any) -> Json:
    """A MachinePool that lists these provider ids; managed_by: the external controller of its
    size."""
    annotations = dict(more.pop("annotations", bounds()))
    if managed_by is not None:
        annotations[f"{GROUP}/replicas-managed-by"] = managed_by
    made = resource("MachinePool", name, annotations=annotations, **more)
    del made["spec"]["selector"]
    if ids:
        made["spec"]["providerIDList"] = list(ids)
    return made


def pool_machine(name: str, of: str, **more: Any) -> Json:
    """A Machine that the MachinePool of that name controls."""
    made = machine(name, "", owners=(owner("MachinePool", of),), **more)
    made["metadata"]["labels"][f"{GROUP}/pool-name"] = of
    return made


def pool_node(name: str, provider_id: str, *, of: str) -> Node:
    """A Node of a MachinePool without Machines, as Cluster API annotates it."""
    made = node(name, provider_id)
    owned = {f"{GROUP}/owner-kind": "MachinePool", f"{GROUP}/owner-name": of}
    return msgspec.structs.replace(made, annotations={**made.annotations, **owned})


def cluster(
    name: str = "c1", *, paused: bool = False, topology: Mapping[str, int | None] | None = None
) -> Json:
    """A Cluster; topology: name of a worker entry -> the replicas that it sets."""
    workers = [
        {"class": "w", "name": entry, **({} if size is None else {"replicas": size})}
        for entry, size in (topology or {}).items()
    ]
    classed = {
        "classRef": {"name": "k"},
        "version": "v1.36.3",
        "workers": {"machineDeployments": workers},
    }
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-Cluster-{name}"},
        "spec": {
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io",
                "kind": "C",
                "name": name,
            },
            **({"paused": True} if paused else {}),
            **({"topology": classed} if topology else {}),
        },
    }


def health_check(
    name: str,
    selector: Json | None = None,
    *,
    cluster: str = "c1",
    namespace: str = "default",
    **spec: Any,
) -> Json:
    """A MachineHealthCheck, by default of all Machines of the cluster;
    spec: further fields of it."""
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "MachineHealthCheck",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-MachineHealthCheck-{namespace}-{name}",
        },
        "spec": {
            "clusterName": cluster,
            "selector": {"matchLabels": {f"{GROUP}/cluster-name": cluster}}
            if selector is None
            else selector,
            **spec,
        },
    }


def in_v1beta1(obj: Json) -> Json:
    """Returns the same object in the older version: references that name a version,
    conditions at another path."""
    old: Json = json.loads(json.dumps(obj).replace(f"{GROUP}/v1beta2", f"{GROUP}/v1beta1"))
    spec = old["spec"]
    for holder in (spec, (spec.get("template") or {}).get("spec") or {}):
        if reference := holder.get("infrastructureRef"):
            reference["apiVersion"] = f"{reference.pop('apiGroup')}/v1beta1"
    status = old.get("status") or {}
    if "conditions" in status:
        status["v1beta2"] = {"conditions": status.pop("conditions")}
    if failed := (status.pop("deprecated", None) or {}).get("v1beta1"):
        status.update(failed)
    return old


def machine(
    name: str,
    of: str,
    *,
    namespace: str = "default",
    cluster: str = "c1",
    provider_id: str = "",
    node: str = "",
    mark: str = "",
    owners: tuple[Json, ...] | None = None,
    **status: Any,
) -> Json:
    """A Machine. of: the MachineSet that controls it; node: the Node its nodeRef names;
    status: any other status field."""
    status = dict(status)
    if node:
        status["nodeRef"] = {"name": node}
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-Machine-{namespace}-{name}",
            "labels": {f"{GROUP}/cluster-name": cluster},
            "annotations": {MARK: mark} if mark else {},
            "ownerReferences": list(
                (owner("MachineSet", of, namespace=namespace),) if owners is None else owners
            ),
        },
        "spec": {
            "clusterName": cluster,
            "bootstrap": {"dataSecretName": "b"},
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io",
                "kind": "M",
                "name": name,
            },
            **({"providerID": provider_id} if provider_id else {}),
        },
        "status": status,
    }


def leaving(obj: Json, since: str = "2026-11-21T07:20:54Z") -> Json:
    """The same object after the start of its deletion."""
    changed = {"deletionTimestamp": since, "finalizers": ["machine.cluster.x-k8s.io"]}
    return {**obj, "metadata": {**obj["metadata"], **changed}}


def node(
    name: str,
    provider_id: str = "",
    *,
    of: str = "",
    namespace: str = "default",
    cluster: str = "c1",
) -> Node:
    """A Node; of: its Machine, which Cluster API then records on it."""
    annotations = {f"{GROUP}/cluster-name": cluster, f"{GROUP}/cluster-namespace": namespace}
    if of:
        annotations[f"{GROUP}/machine"] = of
    return Node(
        name, {"kubernetes.io/hostname": name}, {}, provider_id=provider_id, annotations=annotations
    )


def as_resource(obj: Json) -> CapiResource:
    return msgspec.convert(obj, CapiResource)


def as_machine(obj: Json) -> CapiMachine:
    return msgspec.convert(obj, CapiMachine)
