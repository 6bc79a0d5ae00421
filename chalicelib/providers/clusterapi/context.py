"""The shared context of all changes of a group: the calls, the settings, and the group's Machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.clusterapi.api import MACHINE, POOL, SET, CapiApi, decode
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, Metadata
from chalicelib.providers.clusterapi.owner_references import controller
from chalicelib.providers.clusterapi.scalable_resource import Subject, as_it_is, read_subject
from chalicelib.providers.clusterapi.settings import CapiSettings
from chalicelib.providers.errors import InvalidRequest

# Attempts of a write whose resourceVersion was outdated, each after a new decision.
TRIES = 3
# The key under which a removal records, and finally reports, how many of its machines were not Nodes.
NEVER_JOINED = "never_joined"
_DIGITS = 18


class CapiContext(msgspec.Struct, frozen=True):
    """now: epoch seconds."""

    api: CapiApi
    settings: CapiSettings
    policies: tuple[GroupPolicy, ...]
    now: Callable[[], float]

    def subject(self, group: str, *, asked: bool = True) -> Subject:
        """Return the group, read again. asked: raise if it must not be changed (scalable_resource.py)."""
        return read_subject(self.api, self.settings, self.policies, group) if asked else as_it_is(self.api, group)


def noted(operation: Operation, key: str) -> int | None:
    """Return the number that an earlier step of the operation recorded; None if it is missing or not a number."""
    text = operation.status.data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def check_minimum(subject: Subject, size: int) -> None:
    """Raise InvalidRequest if the size is below the group's minimum; called only for a lower size."""
    if size < subject.bounds.min:
        raise InvalidRequest(f"{subject.group}: the size {size} is below the minimum {subject.bounds.min}")


def check_maximum(subject: Subject, size: int) -> None:
    """Raise InvalidRequest if the size is above the group's maximum; called only for a scale-up."""
    if size > subject.bounds.max:
        raise InvalidRequest(f"{subject.group}: the size {size} is above the maximum {subject.bounds.max}")


def machines_of(
    api: CapiApi, subject: Subject, sets: Sequence[CapiResource]
) -> tuple[list[CapiMachine], list[CapiMachine]]:
    """Return (the group's Machines, all others of its namespace), the former sorted by name.

    Raises Transient if a Machine cannot be decoded, because it might belong to the group and the count would be wrong.
    """
    owned_by = POOL if subject.kind == POOL else SET
    owners = {subject.resource.metadata.uid} if subject.kind == POOL else {each.metadata.uid for each in sets}
    mine: list[CapiMachine] = []
    others: list[CapiMachine] = []
    for item in api.objects(MACHINE, subject.namespace):
        machine = decode(item, CapiMachine)
        (mine if controller(machine.metadata, owned_by) in owners else others).append(machine)
    mine.sort(key=lambda each: each.metadata.name)
    return mine, others


class _NodeSpec(msgspec.Struct, frozen=True):
    provider_id: str | None = msgspec.field(default=None, name="providerID")


class _CapiNode(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _NodeSpec = _NodeSpec()


def nodes_of(api: CapiApi) -> list[Node]:
    """Return the cluster's current Nodes, with only the fields that connect them to Machines."""
    nodes = []
    for item in api.nodes():
        node = decode(item, _CapiNode)
        annotations = node.metadata.annotations or {}
        nodes.append(Node(node.metadata.name, {}, {}, provider_id=node.spec.provider_id or "", annotations=annotations))
    return nodes
