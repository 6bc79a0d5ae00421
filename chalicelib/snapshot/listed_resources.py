"""The lists that are read of a cluster, in one ordered table, and what depends on each of them.

Nodes and pods are required: without them no plan is possible. Everything else makes verdicts more certain. The read
rules in infra/kubernetes/rbac-workload.yaml come from the same table.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.policy.horizontal_node_autoscaler import GROUP, KIND, PLURAL
from chalicelib.snapshot import horizontal_node_autoscalers
from chalicelib.snapshot.storage import PRIORITIES

_STORAGE = "storage.k8s.io"
_CONTROLLERS = ("BlockedByPod ControllerNotFound", "BlockedByPod MinReplicasReached")


class ListedResource(msgspec.Struct, frozen=True):
    """One list to read. weakens: the verdicts that are less certain without it; required: there is no plan without
    it; metadata: only the metadata of its objects is read, so only that is asked for."""

    kind: str
    group: str
    plural: str
    path: str
    query: Mapping[str, str] = {}
    required: bool = False
    weakens: tuple[str, ...] = ()
    metadata: bool = False


# In the order of reading. All lists come from the store and not from the server's watch cache (resourceVersion 0),
# because the cache ignores `limit`: recorded from v1.36.
RESOURCES: tuple[ListedResource, ...] = (
    ListedResource("Node", "", "nodes", "/api/v1/nodes", required=True),
    ListedResource(
        "Pod",
        "",
        "pods",
        "/api/v1/pods",
        {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
        required=True,
    ),
    ListedResource(
        "DaemonSet",
        "apps",
        "daemonsets",
        "/apis/apps/v1/daemonsets",
        weakens=("scale-up: DaemonSet pods on new nodes", *_CONTROLLERS),
    ),
    ListedResource("ReplicaSet", "apps", "replicasets", "/apis/apps/v1/replicasets", weakens=_CONTROLLERS),
    ListedResource("StatefulSet", "apps", "statefulsets", "/apis/apps/v1/statefulsets", weakens=_CONTROLLERS),
    ListedResource("Job", "batch", "jobs", "/apis/batch/v1/jobs", weakens=_CONTROLLERS, metadata=True),
    ListedResource(
        "ReplicationController", "", "replicationcontrollers", "/api/v1/replicationcontrollers", weakens=_CONTROLLERS
    ),
    ListedResource(
        "PodDisruptionBudget",
        "policy",
        "poddisruptionbudgets",
        "/apis/policy/v1/poddisruptionbudgets",
        weakens=("BlockedByPod NotEnoughPdb",),
    ),
    ListedResource(
        "Namespace",
        "",
        "namespaces",
        "/api/v1/namespaces",
        weakens=("inter-pod affinity by namespaceSelector",),
        metadata=True,
    ),
    ListedResource(
        "PersistentVolumeClaim",
        "",
        "persistentvolumeclaims",
        "/api/v1/persistentvolumeclaims",
        weakens=("scale-up: pods with claims on volumes",),
    ),
    ListedResource(
        "PersistentVolume",
        "",
        "persistentvolumes",
        "/api/v1/persistentvolumes",
        weakens=("scale-up: pods with claims on volumes",),
    ),
    ListedResource(
        "StorageClass",
        _STORAGE,
        "storageclasses",
        f"/apis/{_STORAGE}/v1/storageclasses",
        weakens=("scale-up: pods with claims that are not bound yet",),
    ),
    ListedResource("CSINode", _STORAGE, "csinodes", f"/apis/{_STORAGE}/v1/csinodes", weakens=("MaxVolumeCount",)),
    ListedResource(
        "CSIDriver", _STORAGE, "csidrivers", f"/apis/{_STORAGE}/v1/csidrivers", weakens=("NotEnoughStorage",)
    ),
    ListedResource(
        "CSIStorageCapacity",
        _STORAGE,
        "csistoragecapacities",
        f"/apis/{_STORAGE}/v1/csistoragecapacities",
        weakens=("NotEnoughStorage",),
    ),
)
# Read if the policy says so (policy/horizontal_node_autoscaler.obeyed), only in the relevant namespace.
RULE_OBJECTS = ListedResource(
    KIND, GROUP, PLURAL, horizontal_node_autoscalers.PATH, weakens=horizontal_node_autoscalers.WEAKENS
)
# The only object that is read by name: the priority expander's configuration, if any.
PRIORITY_CONFIG = f"/api/v1/namespaces/{{}}/configmaps/{PRIORITIES}"
