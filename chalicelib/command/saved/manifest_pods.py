"""Converts user-written manifests to pods that are added to a cluster (plan/what_if.py): a Pod, or any workload with a
pod template.

They are processed like a cluster's own pods, so that a pod added from a file and the same pod read from a cluster have
the same class. Defaults of the API server are filled in as far as a snapshot knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.pod import PodClass
from chalicelib.plan.what_if import AddedPods
from chalicelib.snapshot.snapshot_builder import SnapshotBuilder

_BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_REMEDY = "give Pods, or workloads with a pod template, as JSON or YAML"
#: For each kind: the path of its pod template and of the number of its pods, and the controller that the pods name.
_TEMPLATES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "Deployment": (("spec", "template"), ("spec", "replicas"), "ReplicaSet"),
    "ReplicaSet": (("spec", "template"), ("spec", "replicas"), "ReplicaSet"),
    "ReplicationController": (("spec", "template"), ("spec", "replicas"), "ReplicationController"),
    "StatefulSet": (("spec", "template"), ("spec", "replicas"), "StatefulSet"),
    "DaemonSet": (("spec", "template"), (), "DaemonSet"),
    "Job": (("spec", "template"), ("spec", "parallelism"), "Job"),
    "CronJob": (("spec", "jobTemplate", "spec", "template"), ("spec", "jobTemplate", "spec", "parallelism"), "Job"),
}
_ELSE = (("spec", "template"), ("spec", "replicas"), "")


def flatten_manifests(document: Any) -> list[dict[str, Any]]:
    """Return the objects of a decoded document: the items of a List, or the single object."""
    if isinstance(document, list):
        return [each for part in document for each in flatten_manifests(part)]
    if not isinstance(document, dict):
        return []
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        kind = str(document["kind"]).removesuffix("List")
        return [each for part in document["items"] for each in flatten_manifests(_named(part, kind))]
    return [document]


def _named(item: Any, kind: str) -> Any:
    return {"kind": kind, **item} if isinstance(item, dict) and kind else item


def pods_to_add(
    objects: Sequence[Mapping[str, Any]], place: str, known: Sequence[PodClass]
) -> tuple[tuple[AddedPods, ...], tuple[str, ...]]:
    """Return what to add, one entry per object, and the kinds that were skipped because they have no pods.

    place: the file, for errors. known: the cluster's classes; a priority class that one of them names gets its value.
    Raises BadInput for an invalid pod.
    """
    priorities = {cls.priority_class: cls.priority for cls in known if cls.priority_class and cls.priority is not None}
    found: list[AddedPods] = []
    skipped: set[str] = set()
    for at, thing in enumerate(objects):
        where = f"{place}: {_title(thing, at)}"
        kind = str(thing.get("kind", ""))
        if kind == "Pod":
            found.append(_made(thing, thing, where, {**_BUILT_IN, **priorities}, _owners(thing)))
            continue
        path, counted, controller = _TEMPLATES.get(kind, _ELSE)
        template = _at(thing, path)
        if not isinstance(template, dict) or not _at(template, ("spec", "containers")):
            skipped.add(kind or "objects without a kind")
            continue
        made = _made(template, thing, where, {**_BUILT_IN, **priorities}, _owned(thing, controller or kind))
        found.append(msgspec.structs.replace(made, count=_count(_at(thing, counted), where), keep_name=False))
    return tuple(found), tuple(sorted(skipped))


def _title(thing: Mapping[str, Any], at: int) -> str:
    name = _at(thing, ("metadata", "name"))
    return f"{thing.get('kind', 'object')} {name}" if name else f"object {at}"


def _at(thing: Any, path: Sequence[str]) -> Any:
    for key in path:
        thing = thing.get(key) if isinstance(thing, Mapping) else None
    return thing if path else None


def _map(value: Any) -> Mapping[str, Any]:
    """Return a value that should be a mapping, if it is one."""
    return value if isinstance(value, Mapping) else {}


def _count(value: Any, where: str) -> int:
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(where, f"{value!r} is no number of replicas", "write a whole number")
    return value


def _owners(pod: Mapping[str, Any]) -> Any:
    return _at(pod, ("metadata", "ownerReferences")) or []


def _owned(workload: Mapping[str, Any], controller: str) -> list[dict[str, Any]]:
    """Return the owner reference with which the pods of a workload that does not exist yet would name their
    controller."""
    meta = _map(workload.get("metadata"))
    name = str(meta.get("name") or meta.get("generateName") or "added").rstrip("-")
    return [
        {
            "apiVersion": str(workload.get("apiVersion", "")),
            "kind": controller,
            "name": name,
            "controller": True,
            "uid": f"added-{controller}-{meta.get('namespace') or 'default'}-{name}",
        }
    ]


def _made(
    template: Mapping[str, Any], named: Mapping[str, Any], where: str, priorities: Mapping[str, int], owners: Any
) -> AddedPods:
    """Return one entry: the spec of `template`, the name and namespace of `named`."""
    meta, names = _map(template.get("metadata")), _map(named.get("metadata"))
    spec = template.get("spec")
    if not isinstance(spec, dict) or not spec.get("containers"):
        raise BadInput(where, "has no spec.containers", _REMEDY)
    spec = {key: value for key, value in spec.items() if key != "nodeName" and value is not None}
    spec.setdefault("priority", priorities.get(str(spec.get("priorityClassName", ""))))
    name = str(names.get("name") or names.get("generateName") or "pod").rstrip("-")
    pod = {
        "kind": "Pod",
        "spec": spec,
        "status": {},
        "metadata": {
            key: value
            for key, value in {
                "name": name,
                "namespace": str(names.get("namespace") or "default"),
                "labels": meta.get("labels"),
                "annotations": meta.get("annotations"),
                "ownerReferences": owners,
            }.items()
            if value is not None
        },
    }
    folder = SnapshotBuilder()
    folder.add_page(_encoded(pod, where), where)
    folded = folder.snapshot("", 0.0)
    if not folded.pods:
        problem = folded.gaps[0].detail if folded.gaps else "is no pod"
        raise BadInput(where, problem, _REMEDY)
    (one,) = folded.pods
    return AddedPods(one.namespace, one.name, folded.cls(one), keep_name=bool(names.get("name")))


def _encoded(pod: Mapping[str, Any], where: str) -> bytes:
    try:
        return msgspec.json.encode(pod)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(where, f"is not a Kubernetes object ({error})", _REMEDY) from None
