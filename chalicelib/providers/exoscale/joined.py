"""Checks against the cluster's nodes immediately before a machine is deleted (providers/base.py, remove).

A machine that has joined meanwhile is not deleted as unregistered, and one that is no longer the planned node is not
removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chalicelib.model.operation import Operation
from chalicelib.providers.errors import Conflict
from chalicelib.providers.exoscale.context import ExoscaleContext
from chalicelib.providers.exoscale.provider_ids import handle_of, identify
from chalicelib.providers.node_identity import changed


class ExoscaleInstanceJoinedError(Conflict):
    """A target has become a node, or is another node than was planned: it stays, and so do the others of the
    operation."""

    @property
    def cls(self) -> str:
        """The class reported to callers: Conflict."""
        return Conflict.__name__


def spare_the_joined(context: ExoscaleContext, instances: Iterable[str]) -> None:
    """Raise Joined if one of the machines is a node by now.

    Without access to the cluster this cannot be checked; the caller has already checked by name
    (operations/steps/delete_instances.py)."""
    if context.joined is None:
        return
    identity = identify(context.joined())
    if joined := sorted(each for each in instances if identity.node_of(each) or identity.claimants(each)):
        raise ExoscaleInstanceJoinedError(f"{', '.join(joined)} has joined the cluster meanwhile")


def check_nodes(context: ExoscaleContext, operation: Operation, instances: Collection[str]) -> None:
    """Raise Joined unless every machine is still, without doubt, the node that was planned.

    Without access to the cluster this cannot be checked."""
    if context.joined is None:
        return
    nodes = context.joined()
    identity = identify(nodes)
    for target in operation.spec.targets:
        if (name := handle_of(target)) in instances and (why := changed(target, name, identity, nodes)):
            raise ExoscaleInstanceJoinedError(why)
