"""Checks against the cluster's Nodes right before a vendor is asked to delete instances.

An instance that has become a Node since the plan was made is not discarded. One that is not, or not for certain, the
Node that was planned is not removed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.cluster_nodes import Seen
from chalicelib.providers.errors import Conflict
from chalicelib.providers.node_identity import Identity, changed

M = TypeVar("M", bound=Hashable)


class PermanentConflict(Conflict):
    """A Conflict that waiting does not resolve: the cluster is not the one that the operation was planned for. The
    operation ends, and the next pass decides again."""

    @property
    def error_class(self) -> str:
        """The class that is recorded: Conflict."""
        return Conflict.__name__


def refuse_joined(names: Iterable[str]) -> None:
    """names: instances of a discard that are Nodes by now. Raises PermanentConflict if there is any."""
    if joined := sorted(names):
        raise PermanentConflict(f"{', '.join(joined)} has joined the cluster meanwhile")


def joined_of(instances: Iterable[M], identity: Identity[M, Seen]) -> list[M]:
    """The instances that are Nodes by now, or that a Node claims."""
    return [each for each in instances if identity.node_of(each) is not None or identity.claimants(each)]


def refuse_changed(
    targets: Iterable[RemovalTarget],
    instance_of: Callable[[RemovalTarget], M | None],
    identity: Identity[M, Seen],
    nodes: tuple[Seen, ...],
) -> None:
    """Raises PermanentConflict if a target is not, or not for certain, the Node that was planned.

    instance_of: the instance of a target that is to be deleted now, None for other targets.
    """
    for target in targets:
        instance = instance_of(target)
        if instance is not None and (why := changed(target, instance, identity, nodes)):
            raise PermanentConflict(why)
