"""The Provider protocol over Cluster API: connects the modules of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from chalicelib.model.errors import BadInput
from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.capi_state import read_capi_state
from chalicelib.providers.clusterapi.delete_nodes import cancel_delete, delete_nodes
from chalicelib.providers.clusterapi.node_groups import PROVIDER, make_groups
from chalicelib.providers.clusterapi.node_template import InfrastructureReader
from chalicelib.providers.clusterapi.scale_up import (
    CapiContext,
    ScalableResourceState,
    has_requested,
    resize,
)
from chalicelib.providers.clusterapi.settings import (
    PLACE,
    Reach,
    read_names,
    read_settings,
    scope,
    to_management,
    unnamed,
)
from chalicelib.providers.kit.base import BaseProvider, Connection, Observation, change, question
from chalicelib.providers.kit.services import KubeApi


class ClusterApi(BaseProvider[CapiContext]):
    """One CAPI cluster's node groups, for one pass."""

    name = PROVIDER
    permanent_conflict = ScalableResourceState
    scale_up = change(resize)
    poll_scale_up = scale_up
    delete_nodes = change(delete_nodes)
    decrease_target = scale_up
    has_requested = question(has_requested)
    cancel_delete = question(cancel_delete)

    def __init__(self, context: CapiContext) -> None:
        super().__init__(context)

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read all groups. Sends two requests for discovery, one list per kind and namespace, and
        at most one read for each infrastructure object whose capacity has no other source."""
        context, settings = self.context, self.context.settings
        context.check_named()
        kinds = context.served(kinds=True).kinds or frozenset()
        state = read_capi_state(context.api, kinds, scope(settings.specs))
        infra = InfrastructureReader(context.reach.management()).of
        identity = context.reach.identity()
        return make_groups(state, nodes, settings, context.policies, infra, context.now(), identity)


def build(connection: Connection) -> ClusterApi:
    """Return a provider for one pass. Sends nothing; raises BadInput for invalid settings
    (settings.py). If the settings lack the name of this cluster, the provider returns that error on
    its calls: a policy stored before the name was required must still be able to end its running
    operations."""
    settings = read_settings(connection.settings)
    if connection.kube is None:
        raise BadInput(PLACE, "there is no connection to the cluster", "set spec.kubernetes")
    access = to_management(settings.management, connection.access)
    reach = Reach(cast(KubeApi, connection.kube), access, connection.means.connect)
    policies = [entry for entry in connection.groups if entry.provider == PROVIDER]
    return ClusterApi(
        CapiContext(reach, settings, policies, connection.now, unnamed(settings, access))
    )


def mistakes(connection: Connection) -> tuple[BadInput, ...]:
    """Return the error of a missing cluster name, even if other settings are wrong. Raises BadInput
    if the settings that determine this are wrong themselves."""
    settings = read_names(connection.settings)
    problem = unnamed(settings, to_management(settings.management, connection.access))
    return () if problem is None else (problem,)
