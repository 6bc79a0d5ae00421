"""Checks against the cluster's nodes immediately before a machine is deleted (providers/base.py, remove).

A machine that has joined meanwhile is not deleted as unregistered, and one that is no longer the planned node is not
removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chalicelib.model.operation import Operation
from chalicelib.providers.errors import Conflict
from chalicelib.providers.huaweicloud.context import CceContext
from chalicelib.providers.huaweicloud.models import CceNode
from chalicelib.providers.huaweicloud.provider_ids import CceGroupNames, handle_of
from chalicelib.providers.node_identity import changed


class CceInstanceJoinedError(Conflict):
    """A target has become a node, or is another node than was planned: it stays, and so do the others of the
    operation."""

    @property
    def cls(self) -> str:
        """The class reported to callers: Conflict."""
        return Conflict.__name__


def spare_the_joined(context: CceContext, machines: Iterable[CceNode]) -> None:
    """Raise Joined if one of the machines is a node by now, by any of the criteria of a pass (provider_ids.py).

    Without access to the cluster this cannot be checked; the caller has already checked by name
    (operations/steps/delete_instances.py)."""
    if context.joined is None:
        return
    machines = tuple(machines)
    names = CceGroupNames(context.joined(), machines)
    if joined := sorted(
        each.name or each.id for each in machines if names.node_of(each.id) is not None or names.claimants(each.id)
    ):
        raise CceInstanceJoinedError(f"{', '.join(joined)} has joined the cluster meanwhile")


def check_nodes(context: CceContext, operation: Operation, machines: Mapping[str, CceNode]) -> None:
    """Raise Joined unless every machine is still, without doubt, the node that was planned.

    machines: those to be deleted, by uid. Without access to the cluster this cannot be checked."""
    if context.joined is None:
        return
    nodes = context.joined()
    names = CceGroupNames(nodes, machines.values())
    for target in operation.spec.targets:
        if (name := handle_of(target)) in machines and (why := changed(target, name, names.identity, nodes)):
            raise CceInstanceJoinedError(why)
