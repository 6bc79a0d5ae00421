"""Converts user-written manifests to pods that are added to a cluster (plan/what_if.py): a Pod, or
any workload with a pod template.

They are processed like a cluster's own pods, so that a pod added from a file and the same
pod read from a cluster have the same class. Defaults of the API server are filled in as far
as a snapshot knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.errors import BadInput
from chalicelib.model.pod import PodClass
from chalicelib.plan.what_if import AddedPods

_BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_REMEDY = "give Pods, or workloads with a pod template, as JSON or YAML"
#: For each kind: the path of its pod template and of the number of its pods, and the
#: controller that the pods name.
_TEMPLATES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "Deployment": (("spec", "template"), ("spec", "replicas"), "ReplicaSet"),
    "ReplicaSet": (("spec", "template"), ("spec", "replicas"), "ReplicaSet"),
    "ReplicationController": (("spec", "template"), ("spec", "replicas"), "ReplicationController"),
    "StatefulSet": (("spec", "template"), ("spec", "replicas"), "StatefulSet"),
    "DaemonSet": (("spec", "template"), (), "DaemonSet"),
    "Job": (("spec", "template"), ("spec", "parallelism"), "Job"),
    "CronJob": (
        ("spec", "jobTemplate", "spec", "template"),
        ("spec", "jobTemplate", "spec", "parallelism"),
        "Job",
    ),
}
_ELSE = (("spec", "template"), ("spec", "replicas"), "")


def flatten_manifests(document: Any) -> list[dict[str, Any]]:
    """Return the objects of a decoded document: the items of a List, or the single object."""
    if isinstance(document, list):
        return [manifest for part in document for manifest in flatten_manifests(part)]
    if not isinstance(document, dict):
        return []
    kind = str(document.get("kind", ""))
    if not kind.endswith("List") or not isinstance(document.get("items"), list):
        return [document]
    # an item without a kind has the list's
    named = {"kind": kind.removesuffix("List")} if kind != "List" else {}
    items = [{**named, **item} if isinstance(item, dict) else item for item in document["items"]]
    return flatten_manifests(items)


def pods_to_add(
    objects: Sequence[Mapping[str, Any]], place: str, known: Sequence[PodClass]
) -> tuple[tuple[AddedPods, ...], tuple[str, ...]]:
    """Return what to add, one entry per object, and the kinds that were skipped
    because they have no pods.

    place: the file, for errors. known: the cluster's classes; a priority class that one of them
    names gets its value. Raises BadInput for an invalid pod.
    """
    priorities = _BUILT_IN | {
        pod_class.priority_class: pod_class.priority
        for pod_class in known
        if pod_class.priority_class and pod_class.priority is not None
    }
    added: list[AddedPods] = []
    skipped: set[str] = set()
    for at, manifest in enumerate(objects):
        name, kind = _value_at(manifest, ("metadata", "name")), str(manifest.get("kind", ""))
        where = (
            f"{place}: {manifest.get('kind', 'object')} {name}" if name else f"{place}: object {at}"
        )
        if kind == "Pod":
            owners = _value_at(manifest, ("metadata", "ownerReferences")) or []
            added.append(_added_pods(manifest, manifest, where, priorities, owners))
            continue
        path, count_path, controller = _TEMPLATES.get(kind, _ELSE)
        template = _value_at(manifest, path)
        if not isinstance(template, dict) or not _value_at(template, ("spec", "containers")):
            skipped.add(kind or "objects without a kind")
            continue
        count = _value_at(manifest, count_path) if count_path else None
        count = 1 if count is None else count
        pods = _added_pods(
            template, manifest, where, priorities, [_owner_reference(manifest, controller or kind)]
        )
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise BadInput(where, f"{count!r} is no number of replicas", "write a whole number")
        added.append(msgspec.structs.replace(pods, count=count, keep_name=False))
    return tuple(added), tuple(sorted(skipped))


def _value_at(manifest: Any, path: Sequence[str]) -> Any:
    for key in path:
        manifest = manifest.get(key) if isinstance(manifest, Mapping) else None
    return manifest


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a value that should be a mapping, if it is one."""
    return value if isinstance(value, Mapping) else {}


def _owner_reference(workload: Mapping[str, Any], controller: str) -> dict[str, Any]:
    """Return the owner reference with which the pods of a workload that does not exist yet
    would name their controller."""
    metadata = _mapping(workload.get("metadata"))
    name = str(metadata.get("name") or metadata.get("generateName") or "added").rstrip("-")
    return {
        "apiVersion": str(workload.get("apiVersion", "")),
        "kind": controller,
        "name": name,
        "controller": True,
        "uid": f"added-{controller}-{metadata.get('namespace') or 'default'}-{name}",
    }


def _added_pods(
    template: Mapping[str, Any],
    named: Mapping[str, Any],
    where: str,
    priorities: Mapping[str, int],
    owners: Any,
) -> AddedPods:
    """Return one entry: the spec of `template`, the name and namespace of `named`."""
    metadata, names = _mapping(template.get("metadata")), _mapping(named.get("metadata"))
    spec = template.get("spec")
    if not isinstance(spec, dict) or not spec.get("containers"):
        raise BadInput(where, "has no spec.containers", _REMEDY)
    spec = {key: value for key, value in spec.items() if key != "nodeName" and value is not None}
    spec.setdefault("priority", priorities.get(str(spec.get("priorityClassName", ""))))
    pod_metadata = {
        "name": str(names.get("name") or names.get("generateName") or "pod").rstrip("-"),
        "namespace": str(names.get("namespace") or "default"),
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "ownerReferences": owners,
    }
    pod_metadata = {key: value for key, value in pod_metadata.items() if value is not None}
    try:
        raw = msgspec.json.encode(
            {"kind": "Pod", "spec": spec, "status": {}, "metadata": pod_metadata}
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(where, f"is not a Kubernetes object ({error})", _REMEDY) from None
    builder = SnapshotBuilder()
    builder.add_page(raw, where)
    snapshot = builder.snapshot("", 0.0)
    if not snapshot.pods:
        raise BadInput(where, snapshot.gaps[0].detail if snapshot.gaps else "is no pod", _REMEDY)
    (pod,) = snapshot.pods
    return AddedPods(pod.namespace, pod.name, snapshot.cls(pod), keep_name=bool(names.get("name")))
