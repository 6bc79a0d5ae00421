"""Removes instances of a MachinePool, whose infrastructure provider guarantees no order of deletion.

A pool's provider should delete the annotated Machine first, but some do not, and a pool without Machines cannot be
given any preference. Comparing the size with the living instances (delete_marks.py) would then lower the size
repeatedly. Therefore a pool's size is lowered once per removal, however often the step is repeated. The size and the
version it was read with are recorded first, in Pending.data, and the write is bound to that version.

    recorded            the size now                  then
    nothing             any                           annotate the Machines, record size and version, nothing else
    size R, version V   still R at V                  lower it over V, by the number of remaining targets
    size R, version V   R or more, at another V       record again: another party changed it
    size R              below R                       lowered: poll again until the instances are gone
    size R              R or more, lowered meanwhile  fail: it was raised since, and another instance may be deleted

After the size is lowered, the pool must be about to delete as many instances as there are remaining targets. If there
are fewer, the pool has deleted others, and the removal fails without another attempt. For the same reason, removals of
one pool run one after another. A change that was undone concurrently shows in the generation, which counts the changes
of the spec.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import InProgress, Outcome, Succeeded
from chalicelib.providers.clusterapi.annotations import MARK_PREFIX
from chalicelib.providers.clusterapi.context import (
    NEVER_JOINED,
    CapiContext,
    ScalableResourceState,
    Standing,
    Subject,
    check_identity,
    check_membership,
    check_minimum,
    machines_of,
    noted,
    release_marks,
    set_marks,
    standing,
    unmark,
    without_forgotten,
)
from chalicelib.providers.clusterapi.instances import (
    Nodes,
    cannot_choose,
    handle_of,
    joined_elsewhere,
    listed_handle,
    listed_id,
    normalise,
    without_machine,
)
from chalicelib.providers.clusterapi.models import CapiMachine
from chalicelib.providers.errors import Conflict, InvalidRequest, ProviderError, Throttled, Transient

# Seconds: until the record is stored and the size may be written; for a provider to choose; for instances to be
# created.
_RECORDED, _LOOK_AT_POOL_AGAIN, _WAIT_FOR_OTHERS = 1.0, 5.0, 10.0
_SIZE, _VERSION, _GENERATION = "pool_size", "pool_version", "pool_generation"
_RECORD = frozenset({_SIZE, _VERSION, _GENERATION})


def remove_from_pool(context: CapiContext, operation: Operation) -> Outcome:
    """Remove the targets; raises ProviderError. An instance that is no longer listed is gone."""
    view = look_at_pool(context, operation)
    for question in _QUESTIONS:
        if outcome := question(context, operation, view):
            return outcome
    try:
        return _lower_once(context, operation, view)
    except (Transient, Throttled, Conflict):
        raise  # the write may have happened, or will: the annotations stay for the next call
    except ProviderError:
        unmark(context, operation, view.standing.targets)
        raise


def _gone(context: CapiContext, operation: Operation, view: PoolView) -> Outcome | None:
    del context
    if view.left:
        return None
    never_joined = noted(operation, NEVER_JOINED) or 0
    gone = ", ".join(target.node or target.instance for target in operation.spec.targets)
    return Succeeded({"to": view.standing.size, "removed": gone, NEVER_JOINED: never_joined})


def _lowered(context: CapiContext, operation: Operation, view: PoolView) -> Outcome | None:
    """Return Pending after the size was lowered.

    Removes the annotations and raises Held once instances other than the targets were deleted for it, or may have been.
    """
    recorded = noted(operation, _SIZE)
    if recorded is None or (view.standing.size >= recorded and not _undone(operation, view)):
        return None
    if view.standing.size < recorded and view.excess >= view.left:
        return InProgress(_LOOK_AT_POOL_AGAIN, "remove", dict(operation.status.data), f"{view.names}: not gone yet")
    unmark(context, operation, view.standing.targets)
    if view.standing.size < recorded:
        raise ScalableResourceState(
            f"{operation.spec.group} became smaller without {view.names}: its provider took other instances"
        )
    raise ScalableResourceState(
        f"{operation.spec.group} was made smaller for {view.names} and larger again before they were gone"
    )


def _undone(operation: Operation, view: PoolView) -> bool:
    """Whether the size, which is not below the recorded one, may have been below it in between.

    That takes two changes of the spec."""
    generation = noted(operation, _GENERATION)
    return generation is not None and view.subject.resource.metadata.generation > generation + 1


def _unsteady(context: CapiContext, operation: Operation, view: PoolView) -> Outcome | None:
    """Return Pending if another party has lowered the size sufficiently, or raised it above the existing instances."""
    note = ""
    if view.excess >= view.left and _all_marked(context, view):
        note = f"{view.names}: the pool is about to become smaller"
    elif view.excess < 0:
        note = "instances of this pool are still being made"
    return _wait(operation, note) if note else None


def _another_first(context: CapiContext, operation: Operation, view: PoolView) -> Outcome | None:
    """Return Pending while another removal is running.

    If the Machines of two removals were annotated, the pool could delete the wrong one first. If two have annotated at
    once, the operation with the larger id removes its annotations."""
    others = without_forgotten(context, view.standing.others)
    if not others:
        return None
    ids = {(each.mark(context.settings.keys) or "").removeprefix(MARK_PREFIX).rpartition("/")[0] for each in others}
    if min(ids) < operation.spec.id:
        release_marks(context, operation, view.standing.targets)
    return _wait(operation, f"{', '.join(each.handle for each in others)} of this pool goes first")


def _wait(operation: Operation, note: str) -> Outcome:
    """Return Pending without the record.

    It has not been acted on, as _lowered has verified, and is useless once the pool has changed."""
    data = {key: value for key, value in operation.status.data.items() if key not in _RECORD}
    return InProgress(_WAIT_FOR_OTHERS, "remove", data, note)


_QUESTIONS = (_gone, _lowered, _unsteady, _another_first)


def _lower_once(context: CapiContext, operation: Operation, view: PoolView) -> Outcome:
    subject, size = view.subject, view.standing.size
    goal = size - view.left
    nodes = check_identity(context, operation, view.standing.targets, view.machines)
    _check_pool(context, operation, view, goal, nodes)
    set_marks(context, operation, view.standing.targets)
    if operation.status.data.get(_VERSION) != view.version or operation.status.data.get(_SIZE) != str(size):
        return InProgress(_RECORDED, "remove", _record(operation, view), f"the size {size} is to become {goal}")
    try:
        context.api.set_scale(subject.kind, subject.namespace, subject.name, goal, view.version)
    except Conflict:
        return InProgress(_RECORDED, "remove", dict(operation.status.data), "the pool has changed meanwhile")
    return InProgress(
        _LOOK_AT_POOL_AGAIN, "remove", dict(operation.status.data), f"{view.names}: the deletion has not begun"
    )


def release_from_pool(context: CapiContext, operation: Operation) -> bool:
    """Remove our annotations.

    False if the pool is about to delete as many instances as there are remaining targets, or if no target remains."""
    view = look_at_pool(context, operation, asked=False)
    if view.excess >= view.left and _all_marked(context, view):
        return False
    release_marks(context, operation, view.standing.targets)
    return True


def _all_marked(context: CapiContext, view: PoolView) -> bool:
    return all(each.mark(context.settings.keys) is not None for each in view.standing.targets)


def _check_pool(context: CapiContext, operation: Operation, view: PoolView, goal: int, nodes: Nodes) -> None:
    subject = view.subject
    if operation.spec.kind is not OperationKind.DELETE_INSTANCES:
        check_minimum(subject, goal)
    if not view.bare:
        return
    if view.there > len(view.bare):
        if view.standing.living:
            raise ScalableResourceState(f"{operation.spec.group} has Machines, but none yet for {', '.join(view.bare)}")
        if not context.settings.allow_pool_shrink:
            raise InvalidRequest(cannot_choose(subject.resource))
    drained = {target.node for target in operation.spec.targets}
    for each in view.bare:
        match = nodes.listed(each, subject.name)
        elsewhere = (
            joined_elsewhere(subject.resource, nodes) if operation.spec.kind is OperationKind.DELETE_INSTANCES else ""
        )
        if doubt := match.doubt or elsewhere:
            raise ScalableResourceState(f"instance {each} stays: {doubt}")
        if match.node is not None and operation.spec.kind is OperationKind.DELETE_INSTANCES:
            raise ScalableResourceState(f"instance {each} has joined as node {match.node.name} meanwhile")
        if match.node is not None and match.node.name not in drained:
            raise ScalableResourceState(f"instance {each} is node {match.node.name} by now, which was not drained")


def _record(operation: Operation, view: PoolView) -> dict[str, str]:
    # These instances were counted as upcoming nodes, so pods that wait for them must be planned again at once.
    unjoined = sum(1 for each in view.standing.targets if each.status.node_ref is None)
    unjoined += len(view.bare) if operation.spec.kind is OperationKind.DELETE_INSTANCES else 0
    generation = str(view.subject.resource.metadata.generation)
    return {
        _SIZE: str(view.standing.size),
        _VERSION: view.version,
        _GENERATION: generation,
        NEVER_JOINED: str(unjoined),
    }


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
