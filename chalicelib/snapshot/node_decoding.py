"""Decodes Node objects: the live reader, saved clusters and templates read the same fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chalicelib.model.errors import BadInput
from chalicelib.model.node import SCALE_DOWN_DISABLED, Condition, Node, Taint
from chalicelib.model.operation import CORDONED_ANNOTATION, OPERATION_ANNOTATION
from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.model.timestamps import parse_time
from chalicelib.snapshot import api_types

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
"""Annotations of a node that a plan of a saved cluster, or a draft of its node groups, reads. Providers of a live
cluster read more."""


def _amounts(place: str, raw: Mapping[str, api_types.Quantity] | None) -> dict[str, int]:
    try:
        return {name: parse_amount(name, quantity_text(value)) for name, value in (raw or {}).items()}
    except BadInput as error:
        raise BadInput(f"{place}.{error.place}", error.problem, error.remedy) from None


def _sizes(item: api_types.ApiNode) -> Iterator[tuple[str, int, int]]:
    """Limits of a Node, far above real ones, and its actual sizes: its kubelet writes it."""
    status = item.status or api_types.NodeStatus()
    yield "labels", 2_000, len(item.metadata.labels or ())
    yield "taints", 500, len(item.spec.taints or ())
    yield "resources", 500, max(len(status.capacity or ()), len(status.allocatable or ()))
    yield "conditions", 500, len(status.conditions or ())


def node_from_wire(item: api_types.ApiNode) -> Node:
    """Return a Node; raises BadInput if it lacks a status field that planning needs."""
    status, meta, spec = item.status, item.metadata, item.spec
    if large := next((f"{count} {what}, at most {most}" for what, most, count in _sizes(item) if count > most), ""):
        raise BadInput("node", f"has {large}", "")
    if status is None or not (status.allocatable or status.capacity):
        raise BadInput("status", "node has no status.allocatable", "a node the kubelet has reported has both")
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
            Condition(c.type, c.status, c.reason, parse_time(c.last_transition_time) if c.last_transition_time else 0.0)
            for c in status.conditions or ()
        ),
        created=parse_time(meta.creation_timestamp) if meta.creation_timestamp else 0.0,
        resource_version=meta.resource_version,
    )
