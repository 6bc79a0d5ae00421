"""What every change of a group starts from: the calls, the settings, and which Machines are the group's."""

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

# How often a write that met a newer version is decided anew (D13).
TRIES = 3
# What a removal writes into its data, and tells in the end: how many of its machines were no Nodes (D31).
NEVER_JOINED = "never_joined"
_DIGITS = 18


class CapiContext(msgspec.Struct, frozen=True):
    """now: epoch seconds."""

    api: CapiApi
    settings: CapiSettings
    policies: tuple[GroupPolicy, ...]
    now: Callable[[], float]

    def subject(self, group: str, *, asked: bool = True) -> Subject:
        """The group, read afresh; asked: whether it may be changed, else it raises (subject.py)."""
        return read_subject(self.api, self.settings, self.policies, group) if asked else as_it_is(self.api, group)


def noted(operation: Operation, key: str) -> int | None:
    """The number that an earlier step of the operation wrote down; None where there is none, or what is there is no
    number any more."""
    text = operation.status.data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def check_minimum(subject: Subject, size: int) -> None:
    """Raises InvalidRequest if the size is below the group's minimum; asked only when shrinking (D14)."""
    if size < subject.bounds.min:
        raise InvalidRequest(f"{subject.group}: the size {size} is below the minimum {subject.bounds.min}")


def check_maximum(subject: Subject, size: int) -> None:
    """Raises InvalidRequest if the size is above the group's maximum; asked only when growing (D14)."""
    if size > subject.bounds.max:
        raise InvalidRequest(f"{subject.group}: the size {size} is above the maximum {subject.bounds.max}")


def machines_of(
    api: CapiApi, subject: Subject, sets: Sequence[CapiResource]
) -> tuple[list[CapiMachine], list[CapiMachine]]:
    """(the group's Machines, all others of its namespace), the former sorted by name. Raises Transient if one of them
    cannot be read, for it might be the group's, and the count would be wrong."""
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
    """The cluster's Nodes as of now, with what connects them to Machines and nothing else."""
    nodes = []
    for item in api.nodes():
        node = decode(item, _CapiNode)
        annotations = node.metadata.annotations or {}
        nodes.append(Node(node.metadata.name, {}, {}, provider_id=node.spec.provider_id or "", annotations=annotations))
    return nodes
