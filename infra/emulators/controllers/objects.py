"""Objects with which a simulated cluster starts, as a person would apply them, and
a function to apply them.

They contain only what a user writes. Defaults, owners and status are added by the API
server and the controllers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra.emulators.controllers.capi import fields
from infra.emulators.kube.crds import HEALTH_CHECKS, OWN, load
from infra.emulators.kube.objects import KubeObject, clone
from infra.emulators.kube.store import ObjectStore

_WORKLOAD = Path(__file__).resolve().parents[2] / "kubernetes" / "rbac-workload.yaml"

# Kind -> (plural, group), of all kinds that the controllers support.
WHERE = {
    "Namespace": ("namespaces", ""),
    "Node": ("nodes", ""),
    "Pod": ("pods", ""),
    "PersistentVolumeClaim": ("persistentvolumeclaims", ""),
    "PersistentVolume": ("persistentvolumes", ""),
    "StorageClass": ("storageclasses", "storage.k8s.io"),
    "CSINode": ("csinodes", "storage.k8s.io"),
    "PriorityClass": ("priorityclasses", "scheduling.k8s.io"),
    "Deployment": ("deployments", "apps"),
    "ReplicaSet": ("replicasets", "apps"),
    "DaemonSet": ("daemonsets", "apps"),
    "Job": ("jobs", "batch"),
    "PodDisruptionBudget": ("poddisruptionbudgets", "policy"),
    "MachineDeployment": ("machinedeployments", fields.GROUP),
    "MachineSet": ("machinesets", fields.GROUP),
    "Machine": ("machines", fields.GROUP),
    "MachinePool": ("machinepools", fields.GROUP),
    "Cluster": ("clusters", fields.GROUP),
    "MachineHealthCheck": ("machinehealthchecks", fields.GROUP),
}


def apply(store: ObjectStore, *objects: KubeObject) -> list[KubeObject]:
    """Create objects in order and return them as stored. Missing namespaces are created, and CRDs
    when they are first needed.

    Raises KeyError for a kind that the controllers do not support.
    """
    made = []
    for obj in objects:
        plural, group = WHERE[obj["kind"]]
        if group == fields.GROUP and store.resources.find(plural, group) is None:
            load(store, HEALTH_CHECKS if obj["kind"] == "MachineHealthCheck" else OWN)
        space = obj["metadata"].get("namespace")
        if space and store.peek("namespaces", space) is None:
            store.create("namespaces", {"metadata": {"name": space}})
        made.append(store.create(plural, obj, group))
    return made


def apply_shipped(store: ObjectStore) -> None:
    """Apply the ConfigMaps of infra/kubernetes/rbac-workload.yaml, which a person
    applies before anything else."""
    for document in _shipped():
        name = document["metadata"]["name"]
        metadata = {**document["metadata"], "uid": f"uid-of-{name}"}
        store.load("configmaps", [clone({**document, "metadata": metadata})])


@cache
def _shipped() -> list[KubeObject]:
    documents = yaml.safe_load_all(_WORKLOAD.read_text("utf-8"))
    return [document for document in documents if document["kind"] == "ConfigMap"]


def _pod_template(name: str, cpu: str, memory: str, spec: Mapping[str, Any]) -> KubeObject:
    requests = {"cpu": cpu, "memory": memory}
    container = {
        "name": "main",
        "image": f"registry.example/{name}:1.0",
        "resources": {"requests": requests},
    }
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [container], **clone(dict(spec))},
    }


def deployment(
    name: str,
    namespace: str = "default",
    replicas: int = 1,
    cpu: str = "100m",
    memory: str = "128Mi",
    **spec: Any,
) -> KubeObject:
    """Return an apps/v1 Deployment labelled app=name. spec: further fields of the pod's spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": _pod_template(name, cpu, memory, spec),
        },
    }


def daemonset(
    name: str, namespace: str = "kube-system", cpu: str = "50m", memory: str = "64Mi", **spec: Any
) -> KubeObject:
    """Return an apps/v1 DaemonSet labelled app=name. spec: further fields of the pod's spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": _pod_template(name, cpu, memory, spec),
        },
    }


def pdb(
    name: str,
    namespace: str = "default",
    *,
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
) -> KubeObject:
    """Return a policy/v1 PodDisruptionBudget for app=name. Pass one of the two bounds."""
    bound = (
        {"minAvailable": min_available}
        if min_available is not None
        else {"maxUnavailable": max_unavailable}
    )
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**bound, "selector": {"matchLabels": {"app": name}}},
    }


def node(
    name: str,
    cpu: str = "4",
    memory: str = "16Gi",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[KubeObject] = (),
    ready: bool = True,
    **allocatable: str,
) -> KubeObject:
    """Return a core/v1 Node outside any group, ready by default."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", **allocatable}
    status: KubeObject = {"capacity": amounts, "allocatable": dict(amounts)}
    if ready:
        status["conditions"] = [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
            }
        ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "status": status,
        "spec": {"taints": [dict(t) for t in taints]} if taints else {},
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **(labels or {}),
            },
        },
    }


def machine_deployment(
    name: str,
    replicas: int,
    min_size: int,
    max_size: int,
    cpu: str = "4",
    memory: str = "16Gi",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    zone: str = "",
    namespace: str = "default",
    cluster: str = "local",
    version: str = "v1beta2",
    capacity: Mapping[str, str] | None = None,
    interruptible: bool = False,
    strategy: str = "",
) -> KubeObject:
    """Return a node group: a MachineDeployment with size bounds and the capacity of its Nodes.

    labels, taints: of its Nodes; a taint is `key=value:Effect`. capacity: further capacity
    annotations by their last part: `gpu-type`, `gpu-count`, `maxPods`, `ephemeral-disk`.
    interruptible: its Machines are spot instances. strategy: of its rollouts, RollingUpdate if
    empty.
    """
    zones = (
        {"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": zone.rstrip("abc")}
        if zone
        else {}
    )
    carried = {**zones, **(labels or {})}
    said = {"cpu": cpu, "memory": memory, **(capacity or {})}
    if carried:
        said["labels"] = ",".join(f"{key}={value}" for key, value in carried.items())
    if taints:
        said["taints"] = ",".join(taints)
    infra = "infrastructure.cluster.x-k8s.io"
    ref = {"kind": "LocalMachineTemplate", "name": name}
    ref |= (
        {"apiVersion": f"{infra}/v1beta1", "namespace": namespace}
        if version == "v1beta1"
        else {"apiGroup": infra}
    )
    told = {"strategy": {"type": strategy}} if strategy else {}
    return {
        "apiVersion": f"{fields.GROUP}/{version}",
        "kind": "MachineDeployment",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {fields.CLUSTER_NAME: cluster},
            "annotations": {
                fields.MIN_SIZE: str(min_size),
                fields.MAX_SIZE: str(max_size),
                **{fields.CAPACITY + key: value for key, value in said.items()},
            },
        },
        "spec": {
            "clusterName": cluster,
            "replicas": replicas,
            "selector": {"matchLabels": {}},
            **(told if version == "v1beta1" or not told else {"rollout": told}),
            "template": {
                **({"metadata": {"labels": {fields.INTERRUPTIBLE: ""}}} if interruptible else {}),
                "spec": {
                    "clusterName": cluster,
                    "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
                    "infrastructureRef": ref,
                    "version": "v1.36.3",
                },
            },
        },
    }


def machine_health_check(
    name: str,
    condition: str,
    seconds: int,
    *,
    status: str = "True",
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    cluster: str = "local",
    version: str = "v1beta2",
) -> KubeObject:
    """Return a MachineHealthCheck that deletes Machines whose Node has the condition in that status
    for so long. labels: of the Machines, by default all of the cluster."""
    unhealthy: KubeObject = {"type": condition, "status": status}
    checks: KubeObject = {
        "checks": {"unhealthyNodeConditions": [{**unhealthy, "timeoutSeconds": seconds}]}
    }
    if version == "v1beta1":
        checks = {"unhealthyConditions": [{**unhealthy, "timeout": f"{seconds}s"}]}
    return {
        "apiVersion": f"{fields.GROUP}/{version}",
        "kind": "MachineHealthCheck",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "clusterName": cluster,
            "selector": {"matchLabels": dict(labels or {fields.CLUSTER_NAME: cluster})},
            **checks,
        },
    }


def machine_pool(
    name: str, replicas: int, min_size: int, max_size: int, *, machines: bool = False, **more: Any
) -> KubeObject:
    """Return a node group: a MachinePool, with a Machine for every instance or without Machines.
    more: as for machine_deployment."""
    made = machine_deployment(name, replicas, min_size, max_size, **more)
    del made["spec"]["selector"]
    made["spec"]["template"]["spec"]["infrastructureRef"]["kind"] = "LocalMachinePool"
    made["metadata"]["annotations"]["local.outscaler/pool"] = (
        "machines" if machines else "instances"
    )
    return {**made, "kind": "MachinePool"}


def cluster(
    name: str = "local",
    namespace: str = "default",
    *,
    paused: bool = False,
    version: str = "v1beta2",
) -> KubeObject:
    """Return the Cluster that the groups belong to. paused: none of them is reconciled."""
    infra = "infrastructure.cluster.x-k8s.io"
    ref = {"kind": "LocalCluster", "name": name}
    ref |= (
        {"apiVersion": f"{infra}/v1beta1", "namespace": namespace}
        if version == "v1beta1"
        else {"apiGroup": infra}
    )
    return {
        "apiVersion": f"{fields.GROUP}/{version}",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"infrastructureRef": ref, **({"paused": True} if paused else {})},
    }
