"""Decodes Node objects: the live reader, saved clusters and templates read the same fields.

Of a malformed object of any kind it recovers what is readable: its name, a pod's node, and a
placeholder for a Node. A Node that is registered but unreadable is kept as a node without capacity:
its instance has joined, so it must not be treated as one that never did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from chalicelib.cluster import api_types
from chalicelib.cluster.api_types import amounts
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.node import SCALE_DOWN_DISABLED, Condition, Node, Taint
from chalicelib.model.operation import CORDONED_ANNOTATION, OPERATION_ANNOTATION
from chalicelib.model.timestamps import parse_time

OWNER_KIND = "cluster.x-k8s.io/owner-kind"
OWNER_NAME = "cluster.x-k8s.io/owner-name"
OWNER_NAMESPACE = "cluster.x-k8s.io/cluster-namespace"
NODE_ANNOTATIONS = (
    SCALE_DOWN_DISABLED,
    OPERATION_ANNOTATION,
    CORDONED_ANNOTATION,
    OWNER_KIND,
    OWNER_NAME,
    OWNER_NAMESPACE,
)
"""Annotations of a node that a plan of a saved cluster, or a draft of its node groups, reads.
Providers of a live cluster read more."""
_NODE_NAME = re.compile(rb'"nodeName"\s*:\s*"([^"\\]{1,253})"')
_LONGEST = 253  # maximum characters of a name in Kubernetes


def _amounts(place: str, raw: Mapping[str, api_types.Quantity] | None) -> dict[str, int]:
    try:
        return amounts(raw)
    except BadInput as error:
        raise BadInput(f"{place}.{error.place}", error.problem, error.remedy) from None


def _sizes(item: api_types.ApiNode) -> Iterator[tuple[str, int, int]]:
    """Limits of a Node, far above real ones, and its actual sizes: its kubelet writes it."""
    status = item.status or api_types.NodeStatus()
    yield "labels", 2_000, len(item.metadata.labels or ())
    yield "taints", 500, len(item.spec.taints or ())
    yield "resources", 500, max(len(status.capacity or ()), len(status.allocatable or ()))
    yield "conditions", 500, len(status.conditions or ())
    yield "addresses", 500, len(status.addresses or ())


def node_from_wire(item: api_types.ApiNode) -> Node:
    """Return a Node; raises BadInput if it lacks a status field that planning needs."""
    status, meta, spec = item.status, item.metadata, item.spec
    if large := next(
        (f"{count} {what}, at most {most}" for what, most, count in _sizes(item) if count > most),
        "",
    ):
        raise BadInput("node", f"has {large}", "")
    if status is None or not (status.allocatable or status.capacity):
        raise BadInput(
            "status", "node has no status.allocatable", "a node the kubelet has reported has both"
        )
    capacity = _amounts("status.capacity", status.capacity)
    allocatable = _amounts("status.allocatable", status.allocatable)
    return Node(
        name=meta.name,
        labels=meta.labels or {},
        allocatable=allocatable or capacity,
        capacity=capacity or allocatable,
        uid=meta.uid,
        provider_id=spec.provider_id,
        annotations=meta.annotations or {},
        taints=tuple(Taint(t.key, t.effect, t.value) for t in spec.taints or ()),
        unschedulable=spec.unschedulable,
        conditions=tuple(
            Condition(
                c.type,
                c.status,
                c.reason,
                parse_time(c.last_transition_time) if c.last_transition_time else 0.0,
                _SHUTTING_DOWN if c.type == "Ready" and _SHUTTING_DOWN in c.message else "",
            )
            for c in status.conditions or ()
        ),
        created=parse_time(meta.creation_timestamp) if meta.creation_timestamp else 0.0,
        resource_version=meta.resource_version,
        identities=_identities(status, meta.labels or {}),
    )


def _identities(status: api_types.NodeStatus, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses, the machine id and the system UUID of a node, as far as
    a label has such a value."""
    info = status.node_info
    known = {address.address for address in status.addresses or ()}
    if info is not None:
        known |= {info.machine_id, info.system_uuid}
    values = {value.casefold() for value in labels.values()}
    return tuple(sorted(word for word in known if word and word.casefold() in values))


_SHUTTING_DOWN = "node is shutting down"
"""What the kubelet says while the machine shuts down; other messages are not kept,
because they change often."""


class UnreadableObject(msgspec.Struct, frozen=True):
    """body: the decoded JSON, {} if it is not a JSON object. node: the node of a
    pod, empty if it has none."""

    body: dict[str, Any]
    name: str
    namespace: str
    node: str

    @property
    def key(self) -> str:
        """Return namespace/name, or the name alone."""
        return "/".join(part for part in (self.namespace, self.name) if part)


def unreadable_object(raw: bytes) -> UnreadableObject:
    """Return what is readable in the bytes of one object. Never raises."""
    try:
        body = _mapping(msgspec.json.decode(raw.decode("utf-8", "replace")))
    except MALFORMED:
        body = {}
    meta = _mapping(body.get("metadata"))
    node = _text(_mapping(body.get("spec")).get("nodeName"))
    if not body and (match := _NODE_NAME.search(raw)):
        node = match.group(1).decode("utf-8", "replace")
    return UnreadableObject(body, _text(meta.get("name")), _text(meta.get("namespace")), node)


def unreadable_node(unreadable: UnreadableObject) -> Node | None:
    """Return a Node that has no capacity, is not ready and keeps its
    identity; None if it has no name."""
    if not unreadable.name:
        return None
    meta, spec = _mapping(unreadable.body.get("metadata")), _mapping(unreadable.body.get("spec"))
    provider_id = spec.get("providerID")
    return Node(
        name=unreadable.name,
        labels={},
        allocatable={},
        uid=_text(meta.get("uid")),
        provider_id=provider_id if isinstance(provider_id, str) else "",
        created=_instant(meta.get("creationTimestamp")),
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """Return a name as text; "" if it is not one."""
    if (
        isinstance(value, bool)
        or not isinstance(value, str | int)
        or (isinstance(value, int) and abs(value) > 2**63)
    ):
        return ""
    return str(value)[:_LONGEST]


def _instant(value: Any) -> float:
    try:
        return parse_time(value) if isinstance(value, str) else 0.0
    except MALFORMED:
        return 0.0
