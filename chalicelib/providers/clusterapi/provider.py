"""The Provider protocol over Cluster API: connects the modules of this package and converts errors to outcomes.

An error that rules out success is Failed. Errors after which the change may have happened or may succeed soon
(Transient, Throttled, a version Conflict) are raised: the caller waits and calls again, and every change first reads
its own progress.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from chalicelib.model.errors import BadInput
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Outcome
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.base import Connection, Observation, outcome_of
from chalicelib.providers.clusterapi.api import CapiApi, Served, discover
from chalicelib.providers.clusterapi.capi_state import read_capi_state
from chalicelib.providers.clusterapi.context import CapiContext, ScalableResourceState
from chalicelib.providers.clusterapi.delete_nodes import cancel_delete, delete_nodes
from chalicelib.providers.clusterapi.discovery import scope
from chalicelib.providers.clusterapi.infrastructure import InfrastructureReader
from chalicelib.providers.clusterapi.management_cluster import Reach, to_management
from chalicelib.providers.clusterapi.node_groups import PROVIDER, make_groups
from chalicelib.providers.clusterapi.scale_up import decrease_target, has_requested, scale_up
from chalicelib.providers.clusterapi.settings import PLACE, CapiSettings, read_names, read_settings, unnamed
from chalicelib.providers.errors import InvalidRequest, NotFound, ProviderError
from chalicelib.providers.kube_protocol import KubeApi

Step = Callable[[CapiContext, Operation], Outcome]


class ClusterApi:
    """One CAPI cluster's node groups, for one pass. reach: the management cluster and the cluster of the Nodes.

    The API versions that the management cluster serves are read once per pass. unnamed: why it is unknown which of the
    management cluster's clusters is this one. Nothing is then read or changed, except that annotations set by Outscaler
    are still removed.
    """

    def __init__(
        self,
        reach: Reach,
        settings: CapiSettings,
        policies: Sequence[GroupPolicy],
        now: Callable[[], float],
        bad_input: BadInput | None = None,
    ) -> None:
        self._reach, self._settings, self._now, self._unnamed = reach, settings, now, bad_input
        self._policies = tuple(each for each in policies if each.provider == PROVIDER)
        self._served: Served | None = None

    @property
    def name(self) -> str:
        """`clusterapi`."""
        return PROVIDER

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read all groups.

        Sends two requests for discovery, one list per kind and namespace, and at most one read for each infrastructure
        object whose capacity has no other source."""
        settings = self._settings
        if self._unnamed is not None:
            raise InvalidRequest(str(self._unnamed))
        served = self._discovered(kinds=True)
        state = read_capi_state(self._api(served), served.kinds or frozenset(), scope(settings.specs))
        infra = InfrastructureReader(self._reach.management()).of
        observed = make_groups(state, nodes, settings, self._policies, infra, self._now(), self._reach.identity())
        return Observation(observed.groups, observed.gaps)

    def scale_up(self, operation: Operation) -> Outcome:
        """Scale from from_size to to_size through the scale subresource."""
        try:
            return scale_up(self._named(), operation)
        except ProviderError as error:
            return outcome_of(error, final=ScalableResourceState)

    def has_requested(self, operation: Operation) -> bool:
        """Whether the size is the requested one."""
        return has_requested(self._named(), operation)

    def delete_nodes(self, operation: Operation) -> Outcome:
        """Annotate the targets' Machines, then lower the size by their number."""
        try:
            return delete_nodes(self._named(), operation)
        except ProviderError as error:
            return outcome_of(error, final=ScalableResourceState)

    def cancel_delete(self, operation: Operation) -> bool:
        """Remove our annotations from the targets' Machines; False if the size was lowered for them already."""
        try:
            return cancel_delete(self._context(), operation)
        except NotFound:
            return True  # the group is gone: there is nothing to undo, and no controller would choose a Machine

    def decrease_target(self, operation: Operation) -> Outcome:
        """Lower the size from from_size to to_size if every running machine stays."""
        try:
            return decrease_target(self._named(), operation)
        except ProviderError as error:
            return outcome_of(error, final=ScalableResourceState)

    def poll(self, operation: Operation) -> Outcome:
        """Repeat the change itself, which first reads its own progress."""
        try:
            return _STEPS[operation.spec.kind](self._named(), operation)
        except ProviderError as error:
            return outcome_of(error, final=ScalableResourceState)

    def _named(self) -> CapiContext:
        """Raises InvalidRequest where the settings lack the name of our cluster."""
        if self._unnamed is not None:
            raise InvalidRequest(str(self._unnamed))
        return self._context()

    def _context(self) -> CapiContext:
        return CapiContext(self._api(self._discovered(kinds=False)), self._settings, self._policies, self._now)

    def _api(self, served: Served) -> CapiApi:
        return CapiApi(self._reach.management(), self._settings.keys, served.version, self._reach.workload)

    def _discovered(self, *, kinds: bool) -> Served:
        if self._served is None or (kinds and self._served.kinds is None):
            wanted = self._settings.version or (self._served.version if self._served else "")
            self._served = discover(self._reach.management(), self._settings.keys.group, wanted, kinds=kinds)
        return self._served


_STEPS: dict[OperationKind, Step] = {
    OperationKind.SCALE_UP: scale_up,
    OperationKind.DELETE_NODES: delete_nodes,
    OperationKind.DELETE_INSTANCES: delete_nodes,
    OperationKind.DECREASE_TARGET: decrease_target,
}


def build(connection: Connection) -> ClusterApi:
    """Return a provider for one pass. Sends nothing; raises BadInput for invalid settings (management_cluster.py).

    If the settings lack the name of this cluster, the provider returns that error on its calls: a policy stored before
    the name was required must still be able to end its running operations.
    """
    settings = read_settings(connection.settings)
    if connection.kube is None:
        raise BadInput(PLACE, "there is no connection to the cluster", "set spec.kubernetes")
    way = to_management(settings.management, connection.access)
    reach = Reach(cast(KubeApi, connection.kube), way, connection.means.connect)
    return ClusterApi(reach, settings, connection.groups, connection.now, unnamed(settings, way))


def mistakes(connection: Connection) -> tuple[BadInput, ...]:
    """Return the error of a missing cluster name, even if other settings are wrong.

    Raises BadInput if the settings that determine this are wrong themselves."""
    settings = read_names(connection.settings)
    problem = unnamed(settings, to_management(settings.management, connection.access))
    return () if problem is None else (problem,)
