"""How a MachinePool and the targets of a removal stand, read in one order (clusterapi.md §4.3, D11).

Some of a pool's instances have a Machine and some are only an entry of a list of provider ids; a removal may name both,
by the handles that they had when it was planned.
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
    """bare: the targets that are listed and have no Machine. there: how many instances the pool has, not counting
    Machines that are leaving."""

    subject: Subject
    version: str
    standing: Standing
    bare: tuple[str, ...]
    there: int
    machines: tuple[CapiMachine, ...] = ()  # all of the namespace

    @property
    def left(self) -> int:
        """How many targets are still there."""
        return len(self.standing.targets) + len(self.bare)

    @property
    def excess(self) -> int:
        """How many instances the pool is about to lose; negative while some are still to come."""
        return self.there - self.standing.size

    @property
    def names(self) -> str:
        """The targets still there."""
        return ", ".join((*(each.handle for each in self.standing.targets), *self.bare))


def look_at_pool(context: CapiContext, operation: Operation, *, asked: bool = True) -> PoolView:
    """The pool, its size with the version, and which targets are still there; asked: whether it may be changed. Raises
    ProviderError: InvalidRequest for a target that is not the pool's."""
    # The size with its version before the list that is in the pool itself: a list that is newer costs a Conflict only.
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
    """(Machine handle -> instance id, provider ids that are listed without a Machine) of the targets still listed."""
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
    """The entry of the list that is this instance: as it is, else by its last segment where only one has that."""
    if provider_id in listed:
        return [provider_id]
    near = [each for each in listed if normalise(each) == normalise(provider_id)]
    return near if len(near) == 1 else []
