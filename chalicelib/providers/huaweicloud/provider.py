"""The Provider protocol over the node pools of one CCE cluster: wires the parts. A cluster that is busy with another
change is no failed scale-up (settled.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from chalicelib.model.node import Node
from chalicelib.model.operation import Kind, Operation
from chalicelib.model.outcome import Outcome
from chalicelib.providers.base import Connection, Observation
from chalicelib.providers.huaweicloud import groups
from chalicelib.providers.huaweicloud.account import open_api
from chalicelib.providers.huaweicloud.addons import Switches
from chalicelib.providers.huaweicloud.api import Api
from chalicelib.providers.huaweicloud.context import Context
from chalicelib.providers.huaweicloud.grow import grow, poll_growth
from chalicelib.providers.huaweicloud.joined import Joined
from chalicelib.providers.huaweicloud.remove import release, remove
from chalicelib.providers.huaweicloud.settings import PROVIDER, Settings, read_settings
from chalicelib.providers.huaweicloud.shrink import shrink
from chalicelib.providers.kept import Kept
from chalicelib.providers.kube_api import KubeLists
from chalicelib.providers.settled import settled
from chalicelib.providers.workload import nodes as cluster_nodes

Step = Callable[[Context, Operation], Outcome]


class HuaweiCloud:
    """The scale groups of one CCE cluster's node pools, for one pass."""

    def __init__(
        self, api: Api, settings: Settings, kube: KubeLists | None = None, kept: Kept[Switches] | None = None,
    ) -> None:
        self._kept = kept
        joined = None if kube is None else lambda: cluster_nodes(kube)
        self._context = Context(api, settings, joined)

    @property
    def name(self) -> str:
        """`huaweicloud`."""
        return PROVIDER

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """All groups: one list of pools, one of nodes, and what the shelf does not have."""
        return groups.observe(self._context.api, self._context.settings, nodes, self._kept)

    def grow(self, operation: Operation) -> Outcome:
        """from_size -> to_size by one request with the pool's total, announced before it is sent."""
        return self._outcome(grow, operation)

    def remove(self, operation: Operation) -> Outcome:
        """Delete by node id; the sizes of the group and its pool go down with them."""
        return self._outcome(remove, operation)

    def release(self, operation: Operation) -> bool:
        """False where every target is gone or going; nothing is prepared before it is asked for."""
        return release(self._context, operation)

    def shrink_target(self, operation: Operation) -> Outcome:
        """Lower the pool's total through this group as long as every node stays."""
        return self._outcome(shrink, operation)

    def poll(self, operation: Operation) -> Outcome:
        """Look how far the group has come, or take the next step of a removal."""
        return self._outcome(_STEPS[operation.kind], operation)

    def _outcome(self, step: Step, operation: Operation) -> Outcome:
        return settled(step, self._context, operation, final=Joined)


_STEPS: dict[Kind, Step] = {
    Kind.GROW: poll_growth,
    Kind.REMOVE: remove,
    Kind.DISCARD: remove,
    Kind.SHRINK: shrink,
}


def build(connection: Connection) -> HuaweiCloud:
    """A provider for one pass; raises BadInput for settings that cannot be. Nothing is asked of the vendor yet."""
    settings = read_settings(connection.settings, connection.groups)
    kube = None if connection.kube is None else cast(KubeLists, connection.kube)
    row = f"{PROVIDER}/addons/{settings.region}/{settings.cluster}"
    kept = Kept(connection.means.shelf, lambda: row, Switches, connection.now)
    return HuaweiCloud(open_api(connection, settings), settings, kube, kept)
