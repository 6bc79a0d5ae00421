"""Taking a node out of service and giving it back: the taint, and with it the cordon.

Taints are a list, and a patch replaces the whole list. So each change is read, changed and written against the version
that was read; whoever wrote in between makes the server say 409, and we read again. Nothing here is ever forced.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.kube.client import Cluster, path_segment
from chalicelib.kube.errors import Conflict
from chalicelib.model.node import Taint

_TRIES = 5
_MERGE = "application/merge-patch+json"

# Taints as they came, fields we do not know included: the patch must give them back unharmed.
_Taints = list[dict[str, object]]


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Spec(msgspec.Struct, frozen=True):
    taints: _Taints | None = None
    unschedulable: bool = False


class _Node(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()


def get_node(cluster: Cluster, name: str) -> bytes:
    """The Node object as it is now. Raises Missing where there is none of that name."""
    return cluster.get(_path(name))


def add_taint(cluster: Cluster, name: str, taint: Taint, *, cordon: bool) -> None:
    """Taint a node, and cordon it in the same write if asked.

    A taint of that key that is there already keeps its value (scale-down.md §9: the value says since when). Upstream
    then leaves the cordon out as well; here the node is cordoned either way, so that a repeated call has one result.
    Raises Missing; Conflict if others keep changing the node.
    """

    def change(spec: _Spec) -> dict[str, object]:
        taints = spec.taints or []
        changes: dict[str, object] = {}
        if not _has(taints, taint.key):
            changes["taints"] = [*taints, {"key": taint.key, "value": taint.value, "effect": taint.effect}]
        if cordon and not spec.unschedulable:
            changes["unschedulable"] = True
        return changes

    _modify(cluster, name, change)


def remove_taint(cluster: Cluster, name: str, key: str, *, uncordon: bool) -> bool:
    """Remove every taint of that key; whether there was one. Raises Missing, Conflict.

    uncordon lifts the cordon with it, but only if the taint was there: a cordon without it is somebody else's.
    """

    def change(spec: _Spec) -> dict[str, object]:
        taints = spec.taints or []
        if not _has(taints, key):
            return {}
        changes: dict[str, object] = {"taints": [taint for taint in taints if taint.get("key") != key] or None}
        if uncordon and spec.unschedulable:
            changes["unschedulable"] = None
        return changes

    return _modify(cluster, name, change)


def _modify(cluster: Cluster, name: str, change: Callable[[_Spec], dict[str, object]]) -> bool:
    """Read, change, write on condition; whether anything was written. change returns the fields of spec that differ."""
    for attempt in range(1, _TRIES + 1):
        node = cluster.read(_path(name), _Node)
        changes = change(node.spec)
        if not changes:
            return False
        patch = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": changes}
        try:
            cluster.request("PATCH", _path(name), body=patch, content_type=_MERGE)
        except Conflict:
            if attempt == _TRIES:
                raise
        else:
            return True
        cluster.pause(attempt)
    raise AssertionError("the last try returns or raises")


def _has(taints: _Taints, key: str) -> bool:
    return any(taint.get("key") == key for taint in taints)


def _path(name: str) -> str:
    return f"/api/v1/nodes/{path_segment(name)}"
