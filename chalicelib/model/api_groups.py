"""The API group of every built-in kind that is read.

A kind alone does not identify a type: OpenKruise has its own StatefulSet, Volcano its own Job
and Longhorn its own Node. Cluster Autoscaler compares the group of some controllers only;
this table covers all kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

CORE = ""
APPS = "apps"
STORAGE = "storage.k8s.io"
# The controllers whose existence and replicas the drain rules check.
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


METADATA = "meta.k8s.io/v1"
"""The version of objects of which the API was asked for the metadata alone; their path
says of which kind they are."""


def is_foreign(kind: str, api_version: str) -> bool:
    """Return whether an object of a built-in kind belongs to another API group
    than the built-in resource.

    api_version: `group/version`, or `version` for the core group. An object with an empty
    one, as in items of the API's own lists, is not foreign, and neither is an object of a
    kind that is not in the table.
    """
    if not api_version or api_version == METADATA:
        return False
    return kind in _GROUPS and api_version.rpartition("/")[0] != _GROUPS[kind]
