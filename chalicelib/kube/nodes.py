"""Takes a node out of service and back: the taint, the cordon, and annotations that name their operation.

Taints are a list, and a patch replaces the whole list. Each change is therefore read, changed and written against the
version that was read; a concurrent write makes the server return 409, and the node is read again. No write is forced.

The note is two annotations in the same patch (model/operation.py): the operation that set the taint, and whether it
cordoned the node. With the operation's id, its changes can be undone exactly, without any row of a table.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.kube.client import KubeClient, path_segment
from chalicelib.kube.errors import Conflict
from chalicelib.model.node import Taint
from chalicelib.model.operation import ANNOTATION_PREFIX, CORDONED_ANNOTATION, OPERATION_ANNOTATION

_TRIES = 5
_MERGE = "application/merge-patch+json"

# Taints as received, including unknown fields: the patch must write them back unchanged.
_Taints = list[dict[str, object]]


class _NodeObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _NodeObjectSpec(msgspec.Struct, frozen=True):
    taints: _Taints | None = None
    unschedulable: bool = False


class _NodeObject(msgspec.Struct, frozen=True):
    metadata: _NodeObjectMeta
    spec: _NodeObjectSpec = _NodeObjectSpec()

    @property
    def notes(self) -> dict[str, str]:
        """Return the annotations."""
        return self.metadata.annotations or {}

    def has(self, key: str) -> bool:
        """Return whether it has a taint of that key."""
        return any(taint.get("key") == key for taint in self.spec.taints or ())


class _Change(msgspec.Struct, frozen=True):
    """Fields of a patch; None removes a field."""

    spec: dict[str, object] = {}
    annotations: dict[str, str | None] = {}


_NOTHING = _Change()


def get_node(kube: KubeClient, name: str) -> bytes:
    """Return the current Node object. Raises NotFound where there is none of that name."""
    return kube.get(_path(name))


def add_taint(
    kube: KubeClient, name: str, taint: Taint, *, cordon: bool, operation: str = "", unless: str = ""
) -> bool:
    """Taint a node, and cordon it in the same write if requested; return whether anything was written.

    An existing taint of that key keeps its value, which says since when (docs/reference/drain.md "Taints"). Upstream
    then omits the cordon as well; here the node is cordoned in both cases, so that a repeated call has the same result.
    operation: noted as the owner; a leftover taint of another operation becomes this one's. unless: a node with a taint
    of this key is left unchanged. Raises NotFound; Conflict if other writers keep changing the node.
    """

    def change(node: _NodeObject) -> _Change:
        if unless and node.has(unless):
            return _NOTHING
        spec: dict[str, object] = {}
        notes: dict[str, str | None] = {}
        if not node.has(taint.key):
            added = {"key": taint.key, "value": taint.value, "effect": taint.effect}
            spec["taints"] = [*(node.spec.taints or ()), added]
        if cordon and not node.spec.unschedulable:
            spec["unschedulable"] = True
            notes[CORDONED_ANNOTATION] = "true"
        if not operation:
            return _Change(spec)
        return _Change(
            spec,
            {
                name: value
                for name, value in {OPERATION_ANNOTATION: operation, **notes}.items()
                if node.notes.get(name) != value
            },
        )

    return _modify(kube, name, change)


def remove_taint(kube: KubeClient, name: str, key: str, *, uncordon: bool, operation: str = "") -> bool:
    """Remove every taint of that key, and the note with it; return whether anything was written. Raises NotFound,
    Conflict.

    operation: remove only what this one set; a node that another operation has noted is left unchanged. Empty: for any
    operation. A cordon is removed if the note says that it came with the taint. uncordon: also where there is a taint
    but no note at all (upstream's own taint, or one whose note was removed); a cordon without either was set by another
    party and stays.
    """

    def change(node: _NodeObject) -> _Change:
        owner = node.notes.get(OPERATION_ANNOTATION, "")
        if operation and owner not in ("", operation):
            return _NOTHING
        if not node.has(key) and not owner:
            return _NOTHING
        spec: dict[str, object] = {}
        if node.has(key):
            spec["taints"] = [taint for taint in node.spec.taints or () if taint.get("key") != key] or None
        ours = node.notes.get(CORDONED_ANNOTATION) == "true" if owner else uncordon
        if ours and node.spec.unschedulable:
            spec["unschedulable"] = None
        return _Change(spec, {note: None for note in (OPERATION_ANNOTATION, CORDONED_ANNOTATION) if note in node.notes})

    return _modify(kube, name, change)


def remove_soft_taint(kube: KubeClient, name: str, key: str, *, unless: str) -> bool:
    """Remove every taint of that key and nothing more; return whether there was one. unless: a node with a taint of
    this key is left unchanged. Raises NotFound, Conflict."""

    def change(node: _NodeObject) -> _Change:
        if node.has(unless) or not node.has(key):
            return _NOTHING
        return _Change({"taints": [taint for taint in node.spec.taints or () if taint.get("key") != key] or None})

    return _modify(kube, name, change)


def clear_node(kube: KubeClient, name: str, *, hard: str, soft: frozenset[str], foreign: bool) -> tuple[str, ...]:
    """Remove everything of Outscaler from a node, in one write; return what was removed, empty where nothing was there.

    hard: key of the taint of removals, which is ours where an operation has noted itself; without a note only with
    foreign. soft: keys of taints that are removed in any case. A cordon is removed where the note says that it came
    with the taint. Raises NotFound, Conflict.
    """
    removed: list[str] = []

    def change(node: _NodeObject) -> _Change:
        removed.clear()
        notes = sorted(note for note in node.notes if note.startswith(ANNOTATION_PREFIX))
        keys = soft | ({hard} if foreign or OPERATION_ANNOTATION in node.notes else set())
        gone = [str(taint.get("key")) for taint in node.spec.taints or () if taint.get("key") in keys]
        spec: dict[str, object] = {}
        if gone:
            spec["taints"] = [taint for taint in node.spec.taints or () if taint.get("key") not in keys] or None
        cordoned = node.notes.get(CORDONED_ANNOTATION) == "true" and node.spec.unschedulable
        if cordoned:
            spec["unschedulable"] = None
        removed.extend([*gone, *(["cordon"] if cordoned else []), *notes])
        return _Change(spec, dict.fromkeys(notes))

    _modify(kube, name, change)
    return tuple(removed)


def _modify(kube: KubeClient, name: str, change: Callable[[_NodeObject], _Change]) -> bool:
    """Read, change and write conditionally; return whether anything was written."""
    for attempt in range(1, _TRIES + 1):
        node = kube.read(_path(name), _NodeObject)
        changes = change(node)
        if not (changes.spec or changes.annotations):
            return False
        metadata: dict[str, object] = {"resourceVersion": node.metadata.resource_version}
        if changes.annotations:
            metadata["annotations"] = changes.annotations
        patch = {"metadata": metadata, **({"spec": changes.spec} if changes.spec else {})}
        try:
            kube.request("PATCH", _path(name), body=patch, content_type=_MERGE)
        except Conflict:
            if attempt == _TRIES:
                raise
        else:
            return True
        kube.pause(attempt)
    raise AssertionError("the last try returns or raises")


def _path(name: str) -> str:
    return f"/api/v1/nodes/{path_segment(name)}"
