"""The Provider protocol over the Instance Pools of one zone: wires the parts. A pool that is being changed is no failed
scale-up (exoscale.md §3; settled.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from chalicelib.model.node import Node
from chalicelib.model.operation import Kind, Operation
from chalicelib.model.outcome import Outcome
from chalicelib.providers.base import Connection, Observation
from chalicelib.providers.exoscale import groups
from chalicelib.providers.exoscale.account import open_api
from chalicelib.providers.exoscale.api import Api
from chalicelib.providers.exoscale.context import Context
from chalicelib.providers.exoscale.joined import Joined
from chalicelib.providers.exoscale.lower import shrink
from chalicelib.providers.exoscale.remove import release, remove
from chalicelib.providers.exoscale.resize import grow, poll_growth
from chalicelib.providers.exoscale.settings import PROVIDER, Settings, read_settings
from chalicelib.providers.kube_api import KubeLists
from chalicelib.providers.settled import settled
from chalicelib.providers.workload import provider_ids

Step = Callable[[Context, Operation], Outcome]


class Exoscale:
    """The Nodepools and Instance Pools of one zone that belong to the cluster, for one pass."""

    def __init__(self, api: Api, settings: Settings, kube: KubeLists | None = None) -> None:
        joined = None if kube is None else lambda: provider_ids(kube)
        self._context = Context(api, settings, joined)

    @property
    def name(self) -> str:
        """`exoscale`."""
        return PROVIDER

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """All groups: at most four calls, and one per instance type that the shelf does not have."""
        return groups.observe(self._context.api, self._context.settings, nodes)

    def grow(self, operation: Operation) -> Outcome:
        """from_size -> to_size by one request with the absolute size."""
        return self._outcome(grow, operation)

    def remove(self, operation: Operation) -> Outcome:
        """Evict by instance id; the size goes down with them."""
        return self._outcome(remove, operation)

    def release(self, operation: Operation) -> bool:
        """False where every target is gone or going; raises Conflict while that cannot be said."""
        return release(self._context, operation)

    def shrink_target(self, operation: Operation) -> Outcome:
        """Lower the size as long as every member stays."""
        return self._outcome(shrink, operation)

    def poll(self, operation: Operation) -> Outcome:
        """Follow the vendor's operation, or take the next step of a removal."""
        return self._outcome(_STEPS[operation.kind], operation)

    def _outcome(self, step: Step, operation: Operation) -> Outcome:
        return settled(step, self._context, operation, final=Joined)


_STEPS: dict[Kind, Step] = {
    Kind.GROW: poll_growth,
    Kind.REMOVE: remove,
    Kind.DISCARD: remove,
    Kind.SHRINK: shrink,
}


def build(connection: Connection) -> Exoscale:
    """A provider for one pass; raises BadInput for settings that cannot be. Nothing is asked of the vendor yet."""
    settings = read_settings(connection.settings, connection.groups)
    kube = None if connection.kube is None else cast(KubeLists, connection.kube)
    return Exoscale(open_api(connection, settings), settings, kube)
