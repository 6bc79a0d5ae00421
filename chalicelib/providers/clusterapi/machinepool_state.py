"""The state of a MachinePool and of the targets of a removal, read in a fixed order.

Some of a pool's instances have a Machine and some are only an entry in a list of provider ids. A removal may contain
both, identified by their handles at planning time.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.providers.clusterapi.context import CapiContext, machines_of
from chalicelib.providers.clusterapi.delete_marks import Standing, standing
from chalicelib.providers.clusterapi.machinepools import listed_handle, listed_id, without_machine
from chalicelib.providers.clusterapi.models import CapiMachine
from chalicelib.providers.clusterapi.provider_ids import handle_of, normalise
from chalicelib.providers.clusterapi.scalable_resource import Subject
from chalicelib.providers.clusterapi.targets import check_membership
from chalicelib.providers.errors import InvalidRequest


class PoolView(msgspec.Struct, frozen=True):
    """bare: the targets that are listed without a Machine. there: the number of the pool's instances, without leaving
    Machines."""

    subject: Subject
    version: str
    standing: Standing
    bare: tuple[str, ...]
    there: int
    machines: tuple[CapiMachine, ...] = ()  # all Machines of the namespace

    @property
    def left(self) -> int:
        """The number of targets that still exist."""
        return len(self.standing.targets) + len(self.bare)

    @property
    def excess(self) -> int:
        """The number of instances that the pool is about to delete; negative while some are still to be created."""
        return self.there - self.standing.size

    @property
    def names(self) -> str:
        """The targets that still exist."""
        return ", ".join((*(each.handle for each in self.standing.targets), *self.bare))


def look_at_pool(context: CapiContext, operation: Operation, *, asked: bool = True) -> PoolView:
    """Return the pool, its size with the version, and the targets that still exist. asked: raise if it must not be
    changed.

    Raises ProviderError: InvalidRequest for a target that does not belong to the pool."""
    # The size and its version are read before the list in the pool itself: a newer list then only causes a Conflict.
    kind, _, rest = operation.spec.group.partition("/")
    namespace, _, name = rest.partition("/")
    scale = context.api.scale(kind, namespace, name) if namespace and name and "/" not in name else None
    subject = context.subject(operation.spec.group, asked=asked)
    if scale is None:
        raise InvalidRequest(f"{operation.spec.group} is not a node group of Cluster API")
    mine, foreign = machines_of(context.api, subject, ())
    handles, bare = _targets(operation, subject, mine)
    check_membership(subject, handles, mine, foreign)
    stands = standing(scale.spec.replicas, mine, handles, context.settings.keys)
    unclaimed = without_machine(subject.resource, mine)
    return PoolView(
        subject, scale.metadata.resource_version, stands, bare, len(stands.living) + len(unclaimed), (*mine, *foreign)
    )


def _targets(
    operation: Operation, subject: Subject, mine: Sequence[CapiMachine]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return (Machine handle -> instance id, provider ids listed without a Machine) of the targets that are still
    listed."""
    by_id = {normalise(each.spec.provider_id): each.handle for each in mine if each.spec.provider_id}
    unclaimed = without_machine(subject.resource, mine)
    handles: dict[str, str] = {}
    bare: list[str] = []
    for target in operation.spec.targets:
        handle = target.handle or handle_of(target.instance) or listed_handle(target.instance)
        provider_id = listed_id(handle)
        if provider_id and (machine := by_id.get(normalise(provider_id))):
            handles[machine] = target.instance
        elif provider_id:
            bare.extend(_listed(provider_id, unclaimed))
        elif handle.count("/") == 1:
            handles[handle] = target.instance
        else:
            raise InvalidRequest(f"{target.node or target.instance}: no instance is known for it")
    return handles, tuple(dict.fromkeys(bare))


def _listed(provider_id: str, listed: Sequence[str]) -> list[str]:
    """Return the list's entry for this instance: the exact id, otherwise by its last segment if that is unique."""
    if provider_id in listed:
        return [provider_id]
    near = [each for each in listed if normalise(each) == normalise(provider_id)]
    return near if len(near) == 1 else []
