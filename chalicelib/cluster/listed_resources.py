"""The lists that are read of a cluster, in one ordered table, and what depends on each of them.

Nodes and pods are required: without them no plan is possible. Everything else makes verdicts more
certain. The read rules in infra/kubernetes/rbac-workload.yaml come from the same table.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.cluster.storage import PRIORITIES
from chalicelib.policy.horizontal_node_autoscaler import GROUP, KIND, NAMESPACE, PLURAL, VERSION

_STORAGE = "storage.k8s.io"
_CONTROLLERS = ("BlockedByPod ControllerNotFound", "BlockedByPod MinReplicasReached")
_CLAIMS = "scale-up: pods with claims on volumes"


class ListedResource(msgspec.Struct, frozen=True):
    """One list to read. weakens: the verdicts that are less certain without it;
    required: there is no plan without it; metadata: only the metadata of its objects is
    read, so only that is asked for."""

    kind: str
    group: str
    plural: str
    path: str
    weakens: tuple[str, ...] = ()
    query: Mapping[str, str] = {}
    required: bool = False
    metadata: bool = False


def _listed(
    kind: str, group: str, plural: str, *weakens: str, metadata: bool = False
) -> ListedResource:
    """Return the list of all objects of a kind that is not required."""
    path = f"/apis/{group}/v1/{plural}" if group else f"/api/v1/{plural}"
    return ListedResource(kind, group, plural, path, weakens, metadata=metadata)


_UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
# In the order of reading. All lists come from the store and not from the server's watch cache
# (resourceVersion 0), because the cache ignores `limit`: recorded from v1.36.
RESOURCES: tuple[ListedResource, ...] = (
    ListedResource("Node", "", "nodes", "/api/v1/nodes", required=True),
    ListedResource("Pod", "", "pods", "/api/v1/pods", query=_UNFINISHED, required=True),
    _listed(
        "DaemonSet", "apps", "daemonsets", "scale-up: DaemonSet pods on new nodes", *_CONTROLLERS
    ),
    _listed("ReplicaSet", "apps", "replicasets", *_CONTROLLERS),
    _listed("StatefulSet", "apps", "statefulsets", *_CONTROLLERS),
    _listed("Job", "batch", "jobs", *_CONTROLLERS, metadata=True),
    _listed("ReplicationController", "", "replicationcontrollers", *_CONTROLLERS),
    _listed("PodDisruptionBudget", "policy", "poddisruptionbudgets", "BlockedByPod NotEnoughPdb"),
    _listed(
        "Namespace", "", "namespaces", "inter-pod affinity by namespaceSelector", metadata=True
    ),
    _listed("PersistentVolumeClaim", "", "persistentvolumeclaims", _CLAIMS),
    _listed("PersistentVolume", "", "persistentvolumes", _CLAIMS),
    _listed(
        "StorageClass",
        _STORAGE,
        "storageclasses",
        "scale-up: pods with claims that are not bound yet",
    ),
    _listed("CSINode", _STORAGE, "csinodes", "MaxVolumeCount"),
    _listed("CSIDriver", _STORAGE, "csidrivers", "NotEnoughStorage"),
    _listed("CSIStorageCapacity", _STORAGE, "csistoragecapacities", "NotEnoughStorage"),
)
# Read if the policy says so (policy/horizontal_node_autoscaler.obeyed), only
# in the relevant namespace.
RULE_OBJECTS = ListedResource(
    KIND,
    GROUP,
    PLURAL,
    f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}",
    ("rules of HorizontalNodeAutoscalers: the last good ones are in force",),
)
# The only object that is read by name: the priority expander's configuration, if any.
PRIORITY_CONFIG = f"/api/v1/namespaces/{{}}/configmaps/{PRIORITIES}"
