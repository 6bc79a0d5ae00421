"""The lists of a Kubernetes API without HTTP."""

from __future__ import annotations

import json

import msgspec

from chalicelib.model.node import Node


class _FakeApiPage(msgspec.Struct):
    body: bytes
    first: bool = True


class FakeApiKube:
    """A cluster whose nodes are these machines."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes

    def list_pages(self, path: str, *, query: object = None) -> list[_FakeApiPage]:
        assert (path, query) == ("/api/v1/nodes", None)
        items = [
            {"metadata": {"name": each.name, "labels": each.labels}, "spec": {"providerID": each.provider_id}}
            for each in self.nodes
        ]
        return [_FakeApiPage(json.dumps({"items": items}).encode())]
