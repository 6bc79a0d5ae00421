"""The Provider protocol over the Instance Pools of one zone: connects the modules of this package.

A pool that is being changed does not count as a failed scale-up (outcomes.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from chalicelib.model.node import Node
from chalicelib.policy.vendors.exoscale import PROVIDER, ExoscaleSettings, read_settings
from chalicelib.providers.base import Connection, Observation
from chalicelib.providers.base_provider import BaseProvider, ProviderActions
from chalicelib.providers.cluster_nodes import nodes as cluster_nodes
from chalicelib.providers.exoscale import node_groups
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.client_factory import open_api
from chalicelib.providers.exoscale.context import ExoscaleContext
from chalicelib.providers.exoscale.decrease_target import decrease_target
from chalicelib.providers.exoscale.delete_nodes import cancel_delete, delete_nodes
from chalicelib.providers.exoscale.scale_up import has_requested, poll_growth, scale_up
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


class Exoscale(BaseProvider[ExoscaleContext]):
    """The Nodepools and Instance Pools of one zone that belong to the cluster, for one pass."""

    def __init__(self, api: ExoscaleApi, settings: ExoscaleSettings, kube: KubeLists | None = None) -> None:
        joined = None if kube is None else lambda: cluster_nodes(kube)
        super().__init__(PROVIDER, ExoscaleContext(api, settings, joined), _STEPS)

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read all groups, with at most four calls, and one per instance type that is not cached."""
        return node_groups.observe(self._context.api, self._context.settings, nodes)

    def remaining(self) -> int | None:
        """Return how many instances the organisation's quota leaves; None without a limit."""
        quota = self._context.api.quota_now()
        return None if quota.limit < 0 else max(0, quota.limit - quota.usage)


def build(connection: Connection) -> Exoscale:
    """Return a provider for one pass. Sends nothing; raises BadInput for invalid settings."""
    settings = read_settings(connection.settings, connection.groups)
    kube = None if connection.kube is None else cast(KubeLists, connection.kube)
    return Exoscale(open_api(connection, settings), settings, kube)
