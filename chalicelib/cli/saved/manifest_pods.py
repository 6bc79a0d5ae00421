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
    items = document.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        return [document]
    # an item without a kind has the list's
    defaults = {"kind": kind.removesuffix("List")} if kind != "List" else {}
    return flatten_manifests(
        [{**defaults, **item} if isinstance(item, dict) else item for item in items]
    )


def pods_to_add(
    objects: Sequence[Mapping[str, Any]], place: str, known: Sequence[PodClass]
) -> tuple[tuple[AddedPods, ...], tuple[str, ...]]:
    """Return what to add, one entry per object, and the kinds that were skipped
    because they have no pods.

    place: the file, for errors. known: the cluster's classes; a priority class that one of them
    names gets its value. Raises BadInput for an invalid pod.
    """
    priorities = dict(_BUILT_IN)
    for pod_class in known:
        if pod_class.priority_class and pod_class.priority is not None:
            priorities[pod_class.priority_class] = pod_class.priority
    added: list[AddedPods] = []
    skipped: set[str] = set()
    for at, manifest in enumerate(objects):
        name = _value_at(manifest, ("metadata", "name"))
        kind = str(manifest.get("kind", ""))
        title = f"{manifest.get('kind', 'object')} {name}" if name else f"object {at}"
        where = f"{place}: {title}"
        if kind == "Pod":
            owners = _value_at(manifest, ("metadata", "ownerReferences")) or []
            added.append(_added_pods(manifest, manifest, where, priorities, owners))
            continue
        path, count_path, controller = _TEMPLATES.get(kind, _ELSE)
        template = _value_at(manifest, path)
        if not isinstance(template, dict) or not _value_at(template, ("spec", "containers")):
            skipped.add(kind or "objects without a kind")
            continue
        owner = _owner_reference(manifest, controller or kind)
        pods = _added_pods(template, manifest, where, priorities, [owner])
        count = _replicas(manifest, count_path, where)
        added.append(msgspec.structs.replace(pods, count=count, keep_name=False))
    return tuple(added), tuple(sorted(skipped))


def _replicas(manifest: Mapping[str, Any], path: Sequence[str], where: str) -> int:
    count = _value_at(manifest, path) if path else None
    if count is None:
        return 1
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise BadInput(where, f"{count!r} is no number of replicas", "write a whole number")
    return count


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
    name = _name(metadata, "added")
    namespace = metadata.get("namespace") or "default"
    return {
        "apiVersion": str(workload.get("apiVersion", "")),
        "kind": controller,
        "name": name,
        "controller": True,
        "uid": f"added-{controller}-{namespace}-{name}",
    }


def _name(metadata: Mapping[str, Any], otherwise: str) -> str:
    name = metadata.get("name") or metadata.get("generateName") or otherwise
    return str(name).rstrip("-")


def _added_pods(
    template: Mapping[str, Any],
    named: Mapping[str, Any],
    where: str,
    priorities: Mapping[str, int],
    owners: Any,
) -> AddedPods:
    """Return one entry: the spec of `template`, the name and namespace of `named`."""
    metadata = _mapping(template.get("metadata"))
    names = _mapping(named.get("metadata"))
    spec = template.get("spec")
    if not isinstance(spec, dict) or not spec.get("containers"):
        raise BadInput(where, "has no spec.containers", _REMEDY)
    spec = _without_nulls(spec)
    spec.pop("nodeName", None)
    priority_class = str(spec.get("priorityClassName", ""))
    spec.setdefault("priority", priorities.get(priority_class))
    pod_metadata = {
        "name": _name(names, "pod"),
        "namespace": str(names.get("namespace") or "default"),
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "ownerReferences": owners,
    }
    manifest = {
        "kind": "Pod",
        "spec": spec,
        "status": {},
        "metadata": _without_nulls(pod_metadata),
    }
    try:
        raw = msgspec.json.encode(manifest)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(where, f"is not a Kubernetes object ({error})", _REMEDY) from None
    builder = SnapshotBuilder()
    builder.add_page(raw, where)
    snapshot = builder.snapshot("", 0.0)
    if not snapshot.pods:
        problem = snapshot.gaps[0].detail if snapshot.gaps else "is no pod"
        raise BadInput(where, problem, _REMEDY)
    (pod,) = snapshot.pods
    has_name = bool(names.get("name"))
    return AddedPods(pod.namespace, pod.name, snapshot.cls(pod), keep_name=has_name)


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
