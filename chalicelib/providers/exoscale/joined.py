"""A machine that has become a node meanwhile is not discarded (providers/base.py, remove)."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.providers.errors import Conflict
from chalicelib.providers.exoscale.context import Context
from chalicelib.providers.exoscale.naming import parse


class Joined(Conflict):
    """A target has become a node: it stays, and so do the others of the operation."""

    @property
    def cls(self) -> str:
        """To everybody else a Conflict."""
        return Conflict.__name__


def spare_the_joined(context: Context, instances: Iterable[str]) -> None:
    """Raises Joined if one of the machines is a node by now; where there is no way to the cluster nobody can say, and
    the caller has looked by name (execute/discard.py)."""
    if context.joined is None:
        return
    nodes = {parse(each) for each in context.joined()}
    if joined := sorted(nodes.intersection(instances)):
        raise Joined(f"{', '.join(joined)} has joined the cluster meanwhile")
