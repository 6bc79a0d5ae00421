"""What the cluster's nodes say right before a machine is deleted: one that has joined meanwhile is not discarded
(providers/base.py, remove), and one that is not the planned node any more is not removed.
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
        """To everybody else a Conflict."""
        return Conflict.__name__


def spare_the_joined(context: ExoscaleContext, instances: Iterable[str]) -> None:
    """Raises Joined if one of the machines is a node by now; where there is no way to the cluster nobody can say, and
    the caller has looked by name (execute/discard.py)."""
    if context.joined is None:
        return
    identity = identify(context.joined())
    if joined := sorted(each for each in instances if identity.node_of(each) or identity.claimants(each)):
        raise ExoscaleInstanceJoinedError(f"{', '.join(joined)} has joined the cluster meanwhile")


def check_nodes(context: ExoscaleContext, operation: Operation, instances: Collection[str]) -> None:
    """Raises Joined if one of the machines is not, or not for certain, the node that was planned any more. Where there
    is no way to the cluster nobody can say."""
    if context.joined is None:
        return
    nodes = context.joined()
    identity = identify(nodes)
    for target in operation.spec.targets:
        if (name := handle_of(target)) in instances and (why := changed(target, name, identity, nodes)):
            raise ExoscaleInstanceJoinedError(why)
