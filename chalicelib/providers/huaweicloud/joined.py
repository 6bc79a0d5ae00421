"""A machine that has become a node meanwhile is not discarded (providers/base.py, remove)."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.providers.errors import Conflict
from chalicelib.providers.huaweicloud.context import Context
from chalicelib.providers.huaweicloud.naming import Names
from chalicelib.providers.huaweicloud.wire import CceNode


class Joined(Conflict):
    """A target has become a node: it stays, and so do the others of the operation."""

    @property
    def cls(self) -> str:
        """To everybody else a Conflict."""
        return Conflict.__name__


def spare_the_joined(context: Context, machines: Iterable[CceNode]) -> None:
    """Raises Joined if one of the machines is a node by now, by any of the ways that a pass tells it (naming.py); where
    there is no way to the cluster nobody can say, and the caller has looked by name (execute/discard.py)."""
    if context.joined is None:
        return
    machines = tuple(machines)
    names = Names(context.joined(), machines)
    if joined := sorted(each.name or each.id for each in machines if names.node_of(each.id) is not None):
        raise Joined(f"{', '.join(joined)} has joined the cluster meanwhile")
