"""Node groups as the emulated Cluster Autoscaler sees and changes them (other_autoscaler.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from chalicelib.model.quantity import parse_amount
from infra.emulators.controllers.capi import fields
from infra.emulators.kube.objects import clone
from infra.emulators.kube.store import ObjectStore

Room = tuple[int, int]  # millicores, bytes


class GroupView(msgspec.Struct, frozen=True):
    """A node group. room: allocatable of an empty node. nodes: names of its registered Nodes."""

    id: str
    least: int
    most: int
    target: int
    room: Room
    nodes: tuple[str, ...] = ()


class GroupControl(Protocol):
    """Reads and changes the node groups of one vendor."""

    def groups(self) -> Sequence[GroupView]:
        """Return all groups, sorted by id."""

    def grow(self, group: str, count: int) -> None:
        """Raise the target."""

    def remove(self, group: str, node: str) -> None:
        """Remove the instance of a Node and lower the target."""


class MachineDeploymentGroups:
    """The groups are MachineDeployments with size annotations."""

    def __init__(self, kube: ObjectStore) -> None:
        self._kube = kube

    def groups(self) -> Sequence[GroupView]:
        """See GroupControl."""
        nodes: dict[str, list[str]] = {}
        for machine in self._kube.list("machines", group=fields.GROUP):
            meta = machine["metadata"]
            owner = f"{meta['namespace']}/{meta['labels'].get(fields.DEPLOYMENT_NAME, '')}"
            name = str(machine.get("status", {}).get("nodeRef", {}).get("name", ""))
            if name and self._kube.peek("nodes", name) is not None:
                nodes.setdefault(owner, []).append(name)
        found = []
        for each in self._kube.list("machinedeployments", group=fields.GROUP):
            meta, marks = each["metadata"], fields.marks(each)
            if fields.MAX_SIZE in marks:
                key = f"{meta['namespace']}/{meta['name']}"
                size = tuple(parse_amount(name, marks[fields.CAPACITY + name]) for name in ("cpu", "memory"))
                found.append(
                    GroupView(
                        f"MachineDeployment/{key}",
                        int(marks[fields.MIN_SIZE]),
                        int(marks[fields.MAX_SIZE]),
                        each["spec"]["replicas"],
                        (size[0], size[1]),
                        tuple(sorted(nodes.get(key, ()))),
                    )
                )
        return sorted(found, key=lambda group: group.id)

    def grow(self, group: str, count: int) -> None:
        """See GroupControl."""
        self._resize(group, count)

    def remove(self, group: str, node: str) -> None:
        """See GroupControl."""
        for machine in self._kube.list("machines", group=fields.GROUP):
            if machine.get("status", {}).get("nodeRef", {}).get("name") == node:
                marked = clone(machine)
                marked["metadata"].setdefault("annotations", {})[fields.DELETE_MACHINE] = "yes"
                self._kube.update("machines", marked, fields.GROUP)
                self._resize(group, -1)
                return

    def _resize(self, group: str, by: int) -> None:
        _, namespace, name = group.split("/")
        found = self._kube.get("machinedeployments", name, namespace, fields.GROUP)
        assert found is not None, group
        changed = clone(found)
        changed["spec"]["replicas"] += by
        self._kube.update("machinedeployments", changed, fields.GROUP)
