"""The Provider protocol over the node pools of one CCE cluster: connects the modules of this package.

A cluster that is busy with another change does not count as a failed scale-up (outcomes.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from chalicelib.model.node import Node
from chalicelib.policy.vendors.huaweicloud import PROVIDER, CceSettings, read_settings
from chalicelib.providers.base import Connection, Observation
from chalicelib.providers.base_provider import BaseProvider, ProviderActions
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.cluster_nodes import nodes as cluster_nodes
from chalicelib.providers.huaweicloud import node_groups
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.autoscaler_addon import Switches
from chalicelib.providers.huaweicloud.client_factory import open_api
from chalicelib.providers.huaweicloud.context import CceContext
from chalicelib.providers.huaweicloud.decrease_target import decrease_target
from chalicelib.providers.huaweicloud.delete_nodes import cancel_delete, delete_nodes
from chalicelib.providers.huaweicloud.scale_up import has_requested, poll_growth, scale_up
from chalicelib.providers.joined_nodes import PermanentConflict
from chalicelib.providers.kube_protocol import KubeLists

_STEPS = ProviderActions(
    scale_up=scale_up,
    has_requested=has_requested,
    poll=poll_growth,
    delete_nodes=delete_nodes,
    decrease_target=decrease_target,
    cancel_delete=cancel_delete,
    permanent_conflict=PermanentConflict,
)


class HuaweiCloud(BaseProvider[CceContext]):
    """The scale groups of one CCE cluster's node pools, for one pass."""

    def __init__(
        self,
        api: CceApi,
        settings: CceSettings,
        kube: KubeLists | None = None,
        kept: TtlCache[Switches] | None = None,
    ) -> None:
        self._kept = kept
        joined = None if kube is None else lambda: cluster_nodes(kube)
        super().__init__(PROVIDER, CceContext(api, settings, joined), _STEPS)

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read all groups, with one list of pools, one of nodes, and whatever is not cached."""
        return node_groups.observe(self._context.api, self._context.settings, nodes, self._kept)


def build(connection: Connection) -> HuaweiCloud:
    """Return a provider for one pass. Sends nothing; raises BadInput for invalid settings."""
    settings = read_settings(connection.settings, connection.groups)
    kube = None if connection.kube is None else cast(KubeLists, connection.kube)
    row = f"{PROVIDER}/addons/{settings.region}/{settings.cluster_id}"
    kept = TtlCache(connection.means.cache, lambda: row, Switches, connection.now)
    return HuaweiCloud(open_api(connection, settings), settings, kube, kept)
