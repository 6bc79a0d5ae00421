"""The API group of every built-in kind that is read.

A kind alone does not say what an object is: OpenKruise has a StatefulSet, Volcano a Job and Longhorn a Node of their
own. Upstream compares the group of some controllers only; here one table answers for all kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

CORE = ""
APPS = "apps"
STORAGE = "storage.k8s.io"
# The controllers whose existence and replicas the drain rules ask about.
CONTROLLER_GROUPS: Mapping[str, str] = {
    "DaemonSet": APPS,
    "Job": "batch",
    "ReplicaSet": APPS,
    "ReplicationController": CORE,
    "StatefulSet": APPS,
}
_GROUPS: Mapping[str, str] = {
    **CONTROLLER_GROUPS,
    "Node": CORE,
    "Pod": CORE,
    "Namespace": CORE,
    "ConfigMap": CORE,
    "PersistentVolume": CORE,
    "PersistentVolumeClaim": CORE,
    "PodDisruptionBudget": "policy",
    "StorageClass": STORAGE,
    "CSINode": STORAGE,
    "CSIDriver": STORAGE,
    "CSIStorageCapacity": STORAGE,
}


def is_foreign(kind: str, api_version: str) -> bool:
    """Whether an object of a built-in kind is of another API group than the built-in resource.

    api_version: `group/version`, or `version` for the core group. An empty one, as in items of the API's own lists,
    says nothing and is not foreign; nor is any object of a kind that is not in the table.
    """
    return bool(api_version) and kind in _GROUPS and api_version.rpartition("/")[0] != _GROUPS[kind]
