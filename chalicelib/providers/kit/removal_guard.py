"""What is checked before a vendor is asked to remove machines: the targets, their group, the
minimum, and the cluster's nodes as they are now.

A removal names machines, and placeholders of machines that were requested and never made. Each
vendor reads its own list of machines; what a list must say so that a machine may go is asked here,
so that no vendor lacks a question. All of them refuse before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Succeeded
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.node_identity import (
    Identity,
    Seen,
    joined_of,
    refuse_changed,
    refuse_joined,
)

# -- targets


class Targets(msgspec.Struct, frozen=True):
    """The targets of a removal by handle, each once: machines and placeholders."""

    machines: tuple[str, ...]
    placeholders: tuple[str, ...]

    def removed(self, operation: Operation) -> Succeeded:
        """Return the outcome of a removal of all of them."""
        return Succeeded(
            {"removed": len(self.machines) + len(self.placeholders), "group": operation.spec.group}
        )


def read_targets(
    operation: Operation,
    handle_of: Callable[[RemovalTarget], str],
    placeholder_group: Callable[[str], str | None],
    machine: str,
) -> Targets:
    """Return the targets; raises InvalidRequest for one without a handle, or for another group's
    placeholder. placeholder_group: the group of a placeholder's handle, None for a machine's;
    machine: the vendor's word."""
    groups: dict[str, str | None] = {}
    for target in operation.spec.targets:
        handle = handle_of(target)
        if not handle:
            raise InvalidRequest(f"{target.node or target.instance}: no {machine} is known for it")
        groups[handle] = placeholder_group(handle)
        if groups[handle] not in {None, operation.spec.group}:
            raise InvalidRequest(f"{handle} does not belong to {operation.spec.group}")
    return Targets(
        tuple(handle for handle, group in groups.items() if group is None),
        tuple(handle for handle, group in groups.items() if group is not None),
    )


# -- checks


def refuse_foreign(places: Mapping[str, str], title: str) -> None:
    """Raise InvalidRequest if a machine is elsewhere. places: machine -> where it is, of those that
    are not in the group; title: the group, for the message."""
    if places:
        texts = "; ".join(f"{name} is in {place}" for name, place in sorted(places.items()))
        raise InvalidRequest(f"{texts}, and not in {title}")


def check_minimum(title: str, size: int, minimum: int, whose: str = "") -> None:
    """Raise InvalidRequest if a removal leaves fewer than the minimum. size: after the removal.
    whose: of what it is the minimum, if not of the group: ` of its pool`."""
    if size < minimum:
        raise InvalidRequest(f"{title}: {size} would be below the minimum {minimum}{whose}")


def check_nodes(
    operation: Operation,
    joined: Callable[[], tuple[Seen, ...]] | None,
    identify: Callable[[tuple[Seen, ...]], Identity[str, Seen]],
    machines: Collection[str],
    handle_of: Callable[[RemovalTarget], str],
    name_of: Callable[[str], str] = str,
) -> None:
    """Raise PermanentConflict if one of the machines that are to be deleted now (handles) is not,
    or not for certain, the node that was planned, or, if machines that never joined are deleted, is
    a node by now. joined: lists the cluster's current nodes, raises Transient; None without a
    connection to the cluster: nothing is checked. name_of: a machine in the message."""
    if joined is None:
        return
    nodes = joined()
    identity = identify(nodes)
    if operation.spec.kind is OperationKind.DELETE_INSTANCES:
        refuse_joined(name_of(machine) for machine in joined_of(machines, identity))
        return

    def machine_of(target: RemovalTarget) -> str | None:
        return handle if (handle := handle_of(target)) in machines else None

    refuse_changed(operation.spec.targets, machine_of, identity, nodes)
