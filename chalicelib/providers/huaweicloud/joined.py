"""What the cluster's nodes say right before a machine is deleted: one that has joined meanwhile is not discarded
(providers/base.py, remove), and one that is not the planned node any more is not removed.
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
        """To everybody else a Conflict."""
        return Conflict.__name__


def spare_the_joined(context: CceContext, machines: Iterable[CceNode]) -> None:
    """Raises Joined if one of the machines is a node by now, by any of the ways that a pass tells it (naming.py); where
    there is no way to the cluster nobody can say, and the caller has looked by name (execute/discard.py)."""
    if context.joined is None:
        return
    machines = tuple(machines)
    names = CceGroupNames(context.joined(), machines)
    if joined := sorted(
        each.name or each.id for each in machines if names.node_of(each.id) is not None or names.claimants(each.id)
    ):
        raise CceInstanceJoinedError(f"{', '.join(joined)} has joined the cluster meanwhile")


def check_nodes(context: CceContext, operation: Operation, machines: Mapping[str, CceNode]) -> None:
    """Raises Joined if one of the machines is not, or not for certain, the node that was planned any more. machines:
    those that are to be deleted, by uid. Where there is no way to the cluster nobody can say."""
    if context.joined is None:
        return
    nodes = context.joined()
    names = CceGroupNames(nodes, machines.values())
    for target in operation.spec.targets:
        if (name := handle_of(target)) in machines and (why := changed(target, name, names.identity, nodes)):
            raise CceInstanceJoinedError(why)
