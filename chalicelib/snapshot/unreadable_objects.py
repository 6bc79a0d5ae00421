"""Recovers what is readable of a malformed object: its name, a pod's node, and a placeholder for a Node.

This is separate from snapshot_builder.py because nothing here may fail, whatever the bytes are. A Node that is
registered but unreadable is kept as a node without capacity: its instance has joined, so it must not be treated as one
that never did.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.model.errors import MALFORMED
from chalicelib.model.node import Node
from chalicelib.model.timestamps import parse_time

_NODE_NAME = re.compile(rb'"nodeName"\s*:\s*"([^"\\]{1,253})"')
_LONGEST = 253  # maximum characters of a name in Kubernetes


class Wreck(msgspec.Struct, frozen=True):
    """body: the decoded JSON, {} if it is not a JSON object. node: the node of a pod, empty if it has none."""

    body: dict[str, Any]
    name: str
    namespace: str
    node: str

    @property
    def key(self) -> str:
        """Return namespace/name, or the name alone."""
        return "/".join(part for part in (self.namespace, self.name) if part)


def of(raw: bytes) -> Wreck:
    """Return what is readable in the bytes of one object. Never raises."""
    try:
        found = msgspec.json.decode(raw.decode("utf-8", "replace"))
    except MALFORMED:
        found = None
    body = _part(found)
    meta = _part(body.get("metadata"))
    node = _text(_part(body.get("spec")).get("nodeName"))
    if not body and (match := _NODE_NAME.search(raw)):
        node = match.group(1).decode("utf-8", "replace")
    return Wreck(body, _text(meta.get("name")), _text(meta.get("namespace")), node)


def node(wreck: Wreck) -> Node | None:
    """Return a Node that has no capacity, is not ready and keeps its identity; None if it has no name."""
    if not wreck.name:
        return None
    meta, spec = _part(wreck.body.get("metadata")), _part(wreck.body.get("spec"))
    provider_id = spec.get("providerID")
    return Node(
        name=wreck.name,
        labels={},
        allocatable={},
        uid=_text(meta.get("uid")),
        provider_id=provider_id if isinstance(provider_id, str) else "",
        created=_instant(meta.get("creationTimestamp")),
    )


def _part(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """Return a name as text; "" if it is not one."""
    if isinstance(value, bool) or not isinstance(value, str | int) or (isinstance(value, int) and abs(value) > 2**63):
        return ""
    return str(value)[:_LONGEST]


def _instant(value: Any) -> float:
    try:
        return parse_time(value) if isinstance(value, str) else 0.0
    except MALFORMED:
        return 0.0
