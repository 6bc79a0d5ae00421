"""The Provider protocol over ESS scaling groups: connects the modules of this package.

A running scaling activity does not count as a failed scale-up (outcomes.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from chalicelib.model.node import Node
from chalicelib.providers.alicloud import node_groups
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.client_factory import open_api
from chalicelib.providers.alicloud.context import AlicloudContext
from chalicelib.providers.alicloud.decrease_target import decrease_target
from chalicelib.providers.alicloud.delete_nodes import cancel_delete, delete_nodes
from chalicelib.providers.alicloud.scale_up import has_requested, poll_growth, scale_up
from chalicelib.providers.alicloud.settings import PROVIDER, AlicloudSettings, read_settings
from chalicelib.providers.base import BaseProvider, Connection, Observation, ProviderActions
from chalicelib.providers.kube_protocol import KubeLists
from chalicelib.providers.node_identity import PermanentConflict
from chalicelib.providers.node_identity import nodes as cluster_nodes

_STEPS = ProviderActions(
    scale_up=scale_up,
    has_requested=has_requested,
    poll=poll_growth,
    delete_nodes=delete_nodes,
    decrease_target=decrease_target,
    cancel_delete=cancel_delete,
    permanent_conflict=PermanentConflict,
)


class AliCloud(BaseProvider[AlicloudContext]):
    """The scaling groups of one region that a policy names, for one pass."""

    def __init__(self, api: AlicloudApi, settings: AlicloudSettings, kube: KubeLists | None = None) -> None:
        self._settings = settings
        joined = None if kube is None else lambda: cluster_nodes(kube)
        super().__init__(PROVIDER, AlicloudContext(api, settings, joined), _STEPS)

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read all groups, with one call per twenty groups and one per fifty instances of each group."""
        return node_groups.observe(self._context.api, self._settings, nodes)


def build(connection: Connection) -> AliCloud:
    """Return a provider for one pass. Sends nothing; raises BadInput for invalid settings."""
    settings = read_settings(connection.settings, connection.groups)
    kube = None if connection.kube is None else cast(KubeLists, connection.kube)
    return AliCloud(open_api(connection, settings), settings, kube)
