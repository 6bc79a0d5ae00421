"""The resource of an operation, read again and checked before anything is written to it.

An operation was planned from an earlier state. A resource that would not be a node group now must not be changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.clusterapi.api import DEPLOYMENT, POOL, SET, CapiApi, decode
from chalicelib.providers.clusterapi.bounds import CapiBounds, read_bounds
from chalicelib.providers.clusterapi.machinepools import managed_by
from chalicelib.providers.clusterapi.models import CapiResource
from chalicelib.providers.clusterapi.node_groups import is_meant, is_paused
from chalicelib.providers.clusterapi.owner_references import has_deployment, sets_of
from chalicelib.providers.clusterapi.policy_entries import speaks_of
from chalicelib.providers.clusterapi.settings import CapiSettings
from chalicelib.providers.errors import Conflict, InvalidRequest, Transient


class ScalableResourceState(Conflict):
    """A rollout or a pause must end first. The change is refused now, and an immediate retry would not help."""

    @property
    def error_class(self) -> str:
        """The class for backoff and journal: Conflict."""
        return Conflict.__name__


class Subject(msgspec.Struct, frozen=True):
    """A node group in its current state."""

    group: str
    kind: str
    resource: CapiResource
    bounds: CapiBounds

    @property
    def namespace(self) -> str:
        """Its namespace, and that of its Machines."""
        return self.resource.metadata.namespace

    @property
    def name(self) -> str:
        """Its name."""
        return self.resource.metadata.name


def read_subject(api: CapiApi, settings: CapiSettings, policies: Sequence[GroupPolicy], group: str) -> Subject:
    """Return the group of that id. Raises NotFound, InvalidRequest if it is not a group of this cluster, Held if
    paused."""
    there = as_it_is(api, group)
    kind, namespace, resource = there.kind, there.namespace, there.resource
    if not is_meant(resource, settings):
        raise InvalidRequest(f"{group} is outside what providers.clusterapi discovers")
    if kind == SET and has_deployment(resource):
        raise InvalidRequest(f"{group} belongs to a MachineDeployment, which sets its size")
    if kind == POOL and (other := managed_by(resource)):
        raise InvalidRequest(f"{group} has its size managed by {other} (replicas-managed-by)")
    if is_paused(resource):
        raise ScalableResourceState(f"{group} is paused")
    cluster = resource.cluster(settings.keys)
    if cluster and api.cluster_paused(namespace, cluster):
        raise ScalableResourceState(f"{group} is paused with its Cluster {namespace}/{cluster}")
    entry = next((each for each in policies if speaks_of(each, group)), None)
    try:
        bounds = read_bounds(resource.annotations, settings.keys, entry, group)
    except BadInput as bad:
        raise InvalidRequest(str(bad)) from None
    if bounds is None or resource.spec.replicas is None:
        raise InvalidRequest(f"{group} has no bounds or no size, so it is not a node group")
    return Subject(group, kind, resource, bounds)


def as_it_is(api: CapiApi, group: str) -> Subject:
    """Return the group without these checks, only for the removal of our own annotations.

    A pause or deleted bounds must not prevent that. Its bounds are meaningless. Raises NotFound, InvalidRequest for an
    id that is not a group's."""
    kind, _, rest = group.partition("/")
    namespace, _, name = rest.partition("/")
    if kind not in {DEPLOYMENT, SET, POOL} or not namespace or not name or "/" in name:
        raise InvalidRequest(f"{group!r} is not a node group of Cluster API: MachineDeployment/namespace/name")
    return Subject(group, kind, api.resource(kind, namespace, name), CapiBounds(0, 0))


def machine_sets(api: CapiApi, subject: Subject) -> tuple[CapiResource, ...]:
    """Return the MachineSets of the group's Machines: the group itself, or those that the MachineDeployment controls.

    A MachinePool has none, because it controls its Machines itself."""
    if subject.kind != DEPLOYMENT:
        return (subject.resource,) if subject.kind == SET else ()
    return sets_of(subject.resource.metadata.uid, _readable(api.objects(SET, subject.namespace)))


def _readable(items: Iterable[msgspec.Raw]) -> Iterable[CapiResource]:
    for item in items:
        try:
            yield decode(item, CapiResource)
        except Transient:
            continue  # a malformed set owns no Machine that would be changed; observe() reports it
