"""Names of Cluster API's fields, and the differences between its two versions.

The apiVersion of every object selects the version. Nothing here converts between versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from infra.emulators.kube.objects import KubeObject, dig

GROUP = "cluster.x-k8s.io"
CLUSTER_NAME = f"{GROUP}/cluster-name"
CLUSTER_NAMESPACE = f"{GROUP}/cluster-namespace"
DEPLOYMENT_NAME = f"{GROUP}/deployment-name"
SET_NAME = f"{GROUP}/set-name"
POOL_NAME = f"{GROUP}/pool-name"
MACHINE = f"{GROUP}/machine"
OWNER_KIND = f"{GROUP}/owner-kind"
OWNER_NAME = f"{GROUP}/owner-name"
DELETE_MACHINE = f"{GROUP}/delete-machine"
PAUSED = f"{GROUP}/paused"
MIN_SIZE = f"{GROUP}/cluster-api-autoscaler-node-group-min-size"
MAX_SIZE = f"{GROUP}/cluster-api-autoscaler-node-group-max-size"
TEMPLATE_HASH = "machine-template-hash"
REVISION = "machinedeployment.clusters.x-k8s.io/revision"
FINALIZER = f"machine.{GROUP}"
INTERRUPTIBLE = f"{GROUP}/interruptible"
SKIP_REMEDIATION = f"{GROUP}/skip-remediation"
OUTDATED = {"key": f"node.{GROUP}/outdated-revision", "effect": "PreferNoSchedule"}
UNINITIALIZED = {"key": f"node.{GROUP}/uninitialized", "effect": "NoSchedule"}
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
FAULT = "local.outscaler/fault"  # annotation on a Machine: the injected fault
# Fault -> reason and message of a server that is never created. Faults without an entry affect
# servers that are created.
FAILURES = {
    "provisioning-failure": (
        "InstanceProvisionFailed",
        "the infrastructure provider could not create the server",
    ),
    "out-of-stock": (
        "InsufficientInstanceCapacity",
        "there is no capacity left for this machine type in the zone",
    ),
    "quota": ("InstanceProvisionFailed", "the account's quota of 64 vCPUs would be exceeded"),
}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def old_version(obj: KubeObject) -> bool:
    """Return whether the object is v1beta1. Anything else is read as v1beta2."""
    return str(obj.get("apiVersion", "")).endswith("/v1beta1")


def marks(obj: KubeObject) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def inherited(obj: KubeObject) -> dict[str, str]:
    """Return the annotations that a MachineDeployment passes to its MachineSets,
    including the size bounds."""
    return {key: value for key, value in marks(obj).items() if key not in {_LAST_APPLIED, REVISION}}


def paused_clusters(clusters: Iterable[KubeObject]) -> frozenset[tuple[str, str]]:
    """Return (namespace, name) of the Clusters whose spec pauses their objects."""
    return frozenset(
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in clusters
        if dig(each, "spec", "paused")
    )


def is_paused(obj: KubeObject, clusters: frozenset[tuple[str, str]] = frozenset()) -> bool:
    """Return whether reconciliation is paused by an annotation or by one of these paused
    clusters."""
    return (
        PAUSED in marks(obj)
        or (obj["metadata"]["namespace"], dig(obj, "spec", "clusterName")) in clusters
    )


def delete_order(machine_set: KubeObject) -> str:
    where = ("deletePolicy",) if old_version(machine_set) else ("deletion", "order")
    return str(dig(machine_set, "spec", *where) or "Random")


def on_delete(deployment: KubeObject) -> bool:
    """Return whether outdated Machines stay until they are deleted (strategy OnDelete)."""
    where = ("strategy",) if old_version(deployment) else ("rollout", "strategy")
    return bool(dig(deployment, "spec", *where, "type") == "OnDelete")


def max_surge(deployment: KubeObject) -> int | str:
    """Return how many additional Machines a rollout may create, by default 1."""
    where = ("strategy",) if old_version(deployment) else ("rollout", "strategy")
    said: int | str | None = dig(deployment, "spec", *where, "rollingUpdate", "maxSurge")
    return 1 if said is None else said


def selector_text(selector: KubeObject) -> str:
    """Return matchLabels as the text of a label selector, for the scale subresource."""
    return ",".join(
        f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())
    )


def node_name(machine: KubeObject) -> str:
    """Return the name in status.nodeRef, "" without one."""
    return str(dig(machine, "status", "nodeRef", "name") or "")


def node_ref(machine: KubeObject, node: KubeObject) -> KubeObject:
    name = node["metadata"]["name"]
    if old_version(machine):
        return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    return {"name": name}


def provisioned(machine: KubeObject) -> KubeObject:
    if old_version(machine):
        return {"bootstrapReady": True, "infrastructureReady": True}
    return {
        "initialization": {"bootstrapDataSecretCreated": True, "infrastructureProvisioned": True}
    }


def failure(machine: KubeObject, reason: str, message: str) -> KubeObject:
    """Return the status fields of a Machine that could not be created. v1beta2 no
    longer has the phase Failed."""
    failed = {"failureReason": reason, "failureMessage": message}
    return (
        {"phase": "Failed", **failed}
        if old_version(machine)
        else {"deprecated": {"v1beta1": failed}}
    )


def counts(obj: KubeObject, *, total: int, ready: int, current: int) -> KubeObject:
    """Return the status counters of a MachineSet or MachineDeployment.
    current: of the newest template."""
    made: KubeObject = {
        "replicas": total,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": obj["metadata"].get("generation", 1),
        "selector": selector_text(obj["spec"]["selector"]),
    }
    if not old_version(obj):
        return {**made, "upToDateReplicas": current}
    if obj["kind"] == "MachineSet":
        return {**made, "fullyLabeledReplicas": total}
    return {
        **made,
        "updatedReplicas": current,
        "unavailableReplicas": max(0, obj["spec"]["replicas"] - ready),
    }


def pool_counts(pool: KubeObject, *, total: int, ready: int) -> KubeObject:
    """Return the status counters of a MachinePool, which has no selector."""
    made: KubeObject = {
        "replicas": total,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": pool["metadata"].get("generation", 1),
        **provisioned(pool),
    }
    if not old_version(pool):
        return {**made, "upToDateReplicas": total}
    return {**made, "unavailableReplicas": max(0, pool["spec"]["replicas"] - ready)}


def condition(
    obj: KubeObject, type_: str, *, value: bool, message: str = "", reason: str = ""
) -> KubeObject:
    """Return a status condition. v1beta2 requires a message, even an empty one; v1beta1
    allows no empty message."""
    why = reason or (type_ if value else f"Not{type_}")
    made: KubeObject = {"type": type_, "status": str(value), "reason": why}
    return made if old_version(obj) and not message else {**made, "message": message}


def availability(obj: KubeObject, ready: int, type_: str) -> KubeObject:
    """Return a condition that reports whether the requested number of Machines is ready."""
    asked = obj["spec"].get("replicas", 1)
    enough = ready >= asked
    return condition(
        obj, type_, value=enough, message="" if enough else f"{ready} of {asked} machines are ready"
    )
