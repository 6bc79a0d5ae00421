"""The cluster that a bench's providers see: the list of Nodes that its emulator has created."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

import msgspec

from chalicelib.cluster import api_types
from chalicelib.cluster.node_decoding import node_from_wire
from chalicelib.model.node import Node
from chalicelib.model.timestamps import format_time
from infra.emulators.controllers.kubelet import NOT_READY
from infra.emulators.kube.objects import KubeObject


class NodesPage(msgspec.Struct, frozen=True):
    """A page of a list, as the cluster's client returns it."""

    body: bytes
    first: bool = True


class Workload:
    """Stands in for the cluster's client; implements only the list of Nodes
    that cloud providers use."""

    def __init__(self, nodes: Callable[[], tuple[Node, ...]]) -> None:
        self._nodes = nodes

    def list_pages(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> Iterable[NodesPage]:
        """Yields one page with all Nodes."""
        assert (path, query) == ("/api/v1/nodes", None)
        items = [
            {
                "metadata": {"name": node.name, "uid": node.uid, "labels": node.labels},
                "spec": {"providerID": node.provider_id},
            }
            for node in self._nodes()
        ]
        return [NodesPage(json.dumps({"kind": "NodeList", "items": items}).encode())]


def ready_node(raw: KubeObject, created: float) -> Node:
    """Returns a Node as a reconcile pass reads it after its registration (a joining's node object),
    ready and without startup
    taints. created: epoch seconds."""
    at, meta = format_time(created), raw["metadata"]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": at}
    made = {
        "metadata": {**meta, "uid": f"uid-{meta['name']}", "creationTimestamp": at},
        "spec": {
            "providerID": raw["spec"]["providerID"],
            "taints": [taint for taint in raw["spec"].get("taints", ()) if taint != NOT_READY],
        },
        "status": {**raw["status"], "conditions": [ready]},
    }
    return node_from_wire(msgspec.convert(made, api_types.ApiNode))
