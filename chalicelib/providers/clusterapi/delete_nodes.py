"""Removes named Machines: annotates all of them, then lowers the size once.

Upstream writes annotations and sizes alternately and keeps no record. Here every call reads the
group's state (scale_up.py) and takes the next step from there. It may be repeated, interrupted at
any point, and run concurrently with removals of other nodes of the same group:

    targets            size                                then
    none alive         any                                 done
    alive              above the living Machines           poll again: a lower size would
                                                           only cancel new Machines
    some unannotated   any                                 annotate them
    all annotated      does not cover all annotations      lower it, with the resourceVersion
                                                           read before the Machines
    all annotated      covers all annotations              poll again until their deletion has begun

The new size follows from the annotated living Machines and not from planned numbers, because
several nodes of a group are drained concurrently and finish at different times. This relies on
MachineSets deleting annotated Machines first, so it is done only if it is certain which MachineSet
is scaled down (capi_state.py).

Immediately before annotations and size are written, Machines and Nodes are compared again
(check_identity). A Machine that is no longer that of the drained Node, or a Node that two
Machines claim, is not removed.

Machines that never joined (kind "discard") are deleted in the same way, with two differences: the
minimum does not apply, because they are not Nodes, and a Machine that has its Node by now is kept
(docs/providers/clusterapi.md "Node removal").

A MachinePool's provider should delete the annotated Machine first, but some do not, and a pool
without Machines cannot be given any preference. Comparing the size with the living instances would
then lower the size repeatedly. Therefore a pool's size is lowered once per removal, however often
the step is repeated. The size and the version it was read with are recorded first, in
InProgress.data, and the write is bound to that version.

    recorded            the size now                  then
    nothing             any                           annotate the Machines, record size
                                                      and version, nothing else
    size R, version V   still R at V                  lower it over V, by the
                                                      number of remaining targets
    size R, version V   R or more, at another V       record again: another party changed it
    size R              below R                       lowered: poll again until the instances are
                                                      gone
    size R              R or more, lowered meanwhile  fail: it was raised since, and
                                                      another instance may be deleted

After the size is lowered, the pool must be about to delete as many instances as there are remaining
targets. If there are fewer, the pool has deleted others, and the removal fails without another
attempt. For the same reason, removals of one pool run one after another. A change that was undone
concurrently shows in the generation, which counts the changes of the spec.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import InProgress, Outcome, Succeeded
from chalicelib.providers.clusterapi.api import MACHINE, POOL, SET
from chalicelib.providers.clusterapi.capi_state import ON_DELETE, controller, gives_way, rolling_out
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
from chalicelib.providers.clusterapi.models import MARK_PREFIX, CapiMachine, CapiResource
from chalicelib.providers.clusterapi.scale_up import (
    NEVER_JOINED,
    TRIES,
    CapiContext,
    ScalableResourceState,
    Standing,
    Subject,
    check_identity,
    check_membership,
    check_nothing_lowers,
    has_stalled,
    machine_sets,
    machines_of,
    noted,
    release_marks,
    set_marks,
    standing,
    unmark,
    without_forgotten,
)
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    Throttled,
    Transient,
)

# Seconds: MachineSets act within one; Machines are created within a few; a pool's provider takes
# longer to choose; the record of a pool's size is stored before the size may be written.
_LOOK_AGAIN, _WAIT_FOR_MACHINES, _LOOK_AT_POOL_AGAIN, _RECORDED = 2.0, 10.0, 5.0, 1.0
_SIZE, _VERSION, _GENERATION = "pool_size", "pool_version", "pool_generation"
_RECORD = frozenset({_SIZE, _VERSION, _GENERATION})


def delete_nodes(context: CapiContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Writes nothing if a target does
    not belong to the group."""
    if operation.spec.group.startswith(f"{POOL}/"):
        return _delete_from_pool(context, operation)
    targets = _handles(operation)
    changed: ProviderError = Conflict("")
    for _ in range(TRIES):
        view = _look(context, operation, targets)
        if not view.standing.targets:
            never_joined = noted(operation, NEVER_JOINED) or 0
            return Succeeded(
                {
                    "to": view.standing.size,
                    "removed": ", ".join(targets),
                    NEVER_JOINED: never_joined,
                }
            )
        if view.standing.excess < 0:
            note = "machines of this group are still being made"
            return InProgress(_WAIT_FOR_MACHINES, "remove", dict(operation.status.data), note)
        if stalled := _stalled_machine(context, view.standing):
            # Not InProgress: nothing was started, and the caller must check the nodes
            # again before it retries.
            raise Conflict(
                f"{MACHINE} {stalled} is marked by a removal that did not go on, and which is to "
                "look at it first"
            )
        try:
            return _Attempt(context, operation, view).run()
        except ScalableResourceState:
            raise
        except (Conflict, NotFound) as error:  # changed or deleted since it was read
            changed = error
    state = _look(context, operation, targets).standing
    # give up for now, unless the size was lowered for our annotations meanwhile
    if state.goal < state.size:
        unmark(context, operation, state.targets)
    raise changed


def cancel_delete(context: CapiContext, operation: Operation) -> bool:
    """Remove our annotations from targets that are not to be deleted any more. Raises
    ProviderError, among them Transient while the size may still be lowered for them. False if it
    was lowered already, or if none of them is alive. True if the group is gone: there is nothing to
    undo, and no controller would choose a Machine."""
    try:
        if operation.spec.group.startswith(f"{POOL}/"):
            view = _look_at_pool(context, operation, checked=False)
            state, pending = (
                view.standing,
                view.excess >= view.left and view.standing.targets_marked,
            )
        else:
            state = _look(context, operation, _handles(operation), checked=False).standing
            pending = state.targets_marked and state.goal >= state.size
            if not pending:
                check_nothing_lowers(context, operation, state.targets)
        if not pending:
            release_marks(context, operation, state.targets)
    except NotFound:
        return True
    return not pending


# -- Machines of MachineSets


class _View(msgspec.Struct, frozen=True):
    """The state on which one attempt decides. machines: all Machines of the namespace."""

    subject: Subject
    sets: tuple[CapiResource, ...]
    version: str
    standing: Standing
    machines: tuple[CapiMachine, ...]


def _handles(operation: Operation) -> dict[str, str]:
    """Return Machine handle -> instance id, for all targets."""
    handles = {}
    for target in operation.spec.targets:
        handle = target.handle or handle_of(target.instance)
        if handle.count("/") != 1:
            raise InvalidRequest(f"{target.node or target.instance}: no Machine is known for it")
        handles[handle] = target.instance
    return handles


def _look(
    context: CapiContext, operation: Operation, targets: dict[str, str], *, checked: bool = True
) -> _View:
    subject = context.subject(operation.spec.group, checked=checked)
    sets = machine_sets(context.api, subject)
    # The size is read before the Machines: a change after this read fails the
    # precondition of the write.
    scale = context.api.scale(subject.kind, subject.namespace, subject.name)
    own, foreign = machines_of(context.api, subject, sets)
    check_membership(subject, targets, own, foreign)
    state = standing(scale.spec.replicas, own, targets, context.settings.keys)
    return _View(subject, sets, scale.metadata.resource_version, state, (*own, *foreign))


def _stalled_machine(context: CapiContext, state: Standing) -> str:
    """Return a Machine that a lower size would delete although the function that
    annotated it has stopped; empty if none. A pod may have been scheduled to its node
    since that function checked it."""
    if state.others_settled:
        return ""
    now, keys = context.now(), context.settings.keys
    return next(
        (machine.handle for machine in state.others if has_stalled(machine.mark(keys) or "", now)),
        "",
    )


class _Attempt:
    """The lower part of the first table, for one view."""

    def __init__(self, context: CapiContext, operation: Operation, view: _View) -> None:
        self._context, self._operation, self._view = context, operation, view

    def run(self) -> Outcome:
        """Return InProgress until the targets are deleted. Raises Conflict if the group changed
        meanwhile; the annotations then stay."""
        context, operation, state = self._context, self._operation, self._view.standing
        if state.goal < state.size or not state.targets_marked:
            check_identity(context, operation, state.targets, self._view.machines)
        if not state.others_settled:
            # Annotated Machines that the size does not account for could be deleted instead of the
            # targets. Recent ones of Outscaler belong to a concurrent removal: the goal counts
            # them, whichever removal lowers it first.
            state = msgspec.structs.replace(state, others=without_forgotten(context, state.others))
        try:
            # A rollout temporarily has more Machines than the size, so a removal that looks
            # accounted for may not have begun.
            if state.goal < state.size or not state.targets_marked:
                self._check(state)
            set_marks(context, operation, state.targets, renewed=state.goal < state.size)
        except (Transient, Throttled):
            raise  # annotations already set stay: the next call continues from them
        except ProviderError:
            unmark(context, operation, state.targets)
            raise
        if state.goal < state.size:
            self._lower(state)
        names = ", ".join(machine.handle for machine in state.targets)
        # These Machines were counted as upcoming nodes, so pods that wait for them must
        # be planned again at once.
        never_joined = sum(1 for machine in state.targets if machine.status.node_ref is None)
        data = {NEVER_JOINED: str(never_joined)}
        return InProgress(_LOOK_AGAIN, "remove", data, f"the deletion of {names} has not begun")

    def _check(self, state: Standing) -> None:
        """Raise below the minimum, and unless it is certain that only annotated
        Machines are deleted. state: of all marks, those of other operations included,
        also where they have expired."""
        subject, sets = self._view.subject, self._view.sets
        if (
            self._operation.spec.kind is not OperationKind.DELETE_INSTANCES
            and state.goal < state.size
        ):
            subject.check_minimum(state.goal)
        only = gives_way(subject.kind, subject.resource, sets)
        if only is None or subject.resource.strategy != ON_DELETE:
            chooses = (
                "several of its MachineSets have machines, and it would choose which of them "
                "becomes smaller"
            )
            if reason := rolling_out(subject.resource, sets) or (chooses if only is None else ""):
                raise ScalableResourceState(f"{subject.group}: {reason}")
        if only is not None and subject.kind != SET:
            self._check_machine_set(only, state)

    def _check_machine_set(self, resource: CapiResource, state: Standing) -> None:
        """Raise unless all annotations are on Machines of the one set that is scaled down. If it is
        one of several sets, it must also have no deletion pending, because the deployment's size
        does not show the size of each."""
        uid, name = resource.metadata.uid, resource.metadata.name
        for machine in (*state.targets, *state.others):
            if controller(machine.metadata, SET) != uid:
                raise ScalableResourceState(
                    f"{MACHINE} {machine.handle} stays: {self._operation.spec.group} has "
                    "MachineSet "
                    f"{name} to make smaller first"
                )
        if sum(1 for machine_set in self._view.sets if machine_set.spec.replicas) < 2:
            return
        count = sum(1 for machine in state.living if controller(machine.metadata, SET) == uid)
        if count != (resource.spec.replicas or 0):
            raise Conflict(
                f"MachineSet {name} has {count} machines and asks for {resource.spec.replicas or 0}"
            )

    def _lower(self, state: Standing) -> None:
        subject = self._view.subject
        try:
            self._context.api.set_scale(
                subject.kind, subject.namespace, subject.name, state.goal, self._view.version
            )
        except (Transient, Throttled, Conflict):
            raise  # the write may have happened, or will: the annotations stay for the next call
        except ProviderError:
            unmark(self._context, self._operation, state.targets)
            raise


# -- instances of MachinePools


class _PoolView(msgspec.Struct, frozen=True):
    """The state of a pool and of the targets. Some of its instances have a Machine and some are
    only an entry in a list of provider ids; a removal may contain both, identified by their handles
    at planning time. bare: the targets that are listed without a Machine. size: the number of the
    pool's instances, without leaving Machines. machines: all Machines of the namespace."""

    subject: Subject
    version: str
    standing: Standing
    bare: tuple[str, ...]
    size: int
    machines: tuple[CapiMachine, ...]

    @property
    def left(self) -> int:
        """The number of targets that still exist."""
        return len(self.standing.targets) + len(self.bare)

    @property
    def excess(self) -> int:
        """The number of instances that the pool is about to delete; negative while some
        are still to be created."""
        return self.size - self.standing.size

    @property
    def names(self) -> str:
        """The targets that still exist."""
        return ", ".join((*(machine.handle for machine in self.standing.targets), *self.bare))


def _look_at_pool(context: CapiContext, operation: Operation, *, checked: bool = True) -> _PoolView:
    """Return the pool, its size with the version, and the targets that still exist. checked:
    raise if it must not be changed. Raises ProviderError: InvalidRequest for a target that
    does not belong to the pool."""
    if checked:
        context.check_named()
    # The size and its version are read before the list in the pool itself: a newer list
    # then only causes a Conflict.
    kind, _, rest = operation.spec.group.partition("/")
    namespace, _, name = rest.partition("/")
    scale = (
        context.api.scale(kind, namespace, name) if namespace and name and "/" not in name else None
    )
    subject = context.subject(operation.spec.group, checked=checked)
    if scale is None:
        raise InvalidRequest(f"{operation.spec.group} is not a node group of Cluster API")
    own, foreign = machines_of(context.api, subject, ())
    unclaimed = without_machine(subject.resource, own)
    handles, bare = _pool_targets(operation, unclaimed, own)
    check_membership(subject, handles, own, foreign)
    state = standing(scale.spec.replicas, own, handles, context.settings.keys)
    size = len(state.living) + len(unclaimed)
    return _PoolView(subject, scale.metadata.resource_version, state, bare, size, (*own, *foreign))


def _pool_targets(
    operation: Operation, unclaimed: Sequence[str], own: Sequence[CapiMachine]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return (Machine handle -> instance id, provider ids listed without a Machine) of the targets
    that are still listed. unclaimed: all of the pool's provider ids that no Machine has."""
    by_id = {
        normalise(machine.spec.provider_id): machine.handle
        for machine in own
        if machine.spec.provider_id
    }
    handles: dict[str, str] = {}
    bare: list[str] = []
    for target in operation.spec.targets:
        handle = target.handle or handle_of(target.instance) or listed_handle(target.instance)
        provider_id = listed_id(handle)
        if provider_id and (machine := by_id.get(normalise(provider_id))):
            handles[machine] = target.instance
        elif provider_id in unclaimed:
            bare.append(provider_id)
        elif provider_id:  # not the exact id: its last segment, if that is unique
            similar = [
                listed for listed in unclaimed if normalise(listed) == normalise(provider_id)
            ]
            bare.extend(similar if len(similar) == 1 else ())
        elif handle.count("/") == 1:
            handles[handle] = target.instance
        else:
            raise InvalidRequest(f"{target.node or target.instance}: no instance is known for it")
    return handles, tuple(dict.fromkeys(bare))


def _delete_from_pool(context: CapiContext, operation: Operation) -> Outcome:
    """Remove the targets; raises ProviderError. An instance that is no longer listed is gone."""
    view = _look_at_pool(context, operation)
    state = view.standing
    if not view.left:
        names = ", ".join(target.node or target.instance for target in operation.spec.targets)
        return Succeeded(
            {"to": state.size, "removed": names, NEVER_JOINED: noted(operation, NEVER_JOINED) or 0}
        )
    if outcome := _lowered(context, operation, view):
        return outcome
    # Another party has lowered the size sufficiently, or raised it above the existing instances.
    if view.excess >= view.left and state.targets_marked:
        return _wait(operation, f"{view.names}: the pool is about to become smaller")
    if view.excess < 0:
        return _wait(operation, "instances of this pool are still being made")
    if others := without_forgotten(context, state.others):
        # If the Machines of two removals were annotated, the pool could delete the wrong one first.
        # If two have annotated at once, the operation with the larger id removes its annotations.
        marks = (machine.mark(context.settings.keys) or "" for machine in others)
        if (
            min(mark.removeprefix(MARK_PREFIX).rpartition("/")[0] for mark in marks)
            < operation.spec.id
        ):
            release_marks(context, operation, state.targets)
        return _wait(
            operation, f"{', '.join(machine.handle for machine in others)} of this pool goes first"
        )
    try:
        return _lower_once(context, operation, view)
    except (Transient, Throttled, Conflict):
        raise  # the write may have happened, or will: the annotations stay for the next call
    except ProviderError:
        unmark(context, operation, state.targets)
        raise


def _lowered(context: CapiContext, operation: Operation, view: _PoolView) -> Outcome | None:
    """Return InProgress after the size was lowered. Removes the annotations and
    raises ScalableResourceState once instances other than the targets were deleted
    for it, or may have been."""
    recorded, generation = noted(operation, _SIZE), noted(operation, _GENERATION)
    if recorded is None:
        return None
    # The size may have been below the recorded one in between; that takes two changes of the spec.
    undone = generation is not None and view.subject.resource.metadata.generation > generation + 1
    smaller = view.standing.size < recorded
    if not smaller and not undone:
        return None
    if smaller and view.excess >= view.left:
        return InProgress(
            _LOOK_AT_POOL_AGAIN,
            "remove",
            dict(operation.status.data),
            f"{view.names}: not gone yet",
        )
    unmark(context, operation, view.standing.targets)
    raise ScalableResourceState(
        (
            f"{operation.spec.group} became smaller without {view.names}: its provider took other "
            "instances"
        )
        if smaller
        else (
            f"{operation.spec.group} was made smaller for {view.names} and larger again before "
            "they were gone"
        )
    )


def _wait(operation: Operation, note: str) -> Outcome:
    """Return InProgress without the record. It has not been acted on, as _lowered has verified, and
    is useless once the pool has changed."""
    data = {key: value for key, value in operation.status.data.items() if key not in _RECORD}
    return InProgress(_WAIT_FOR_MACHINES, "remove", data, note)


def _lower_once(context: CapiContext, operation: Operation, view: _PoolView) -> Outcome:
    subject, state, size = view.subject, view.standing, view.standing.size
    goal = size - view.left
    nodes = check_identity(context, operation, state.targets, view.machines)
    _check_pool(context, operation, view, goal, nodes)
    set_marks(context, operation, state.targets)
    if operation.status.data.get(_VERSION) != view.version or operation.status.data.get(
        _SIZE
    ) != str(size):
        # These instances were counted as upcoming nodes, so pods that wait for them must
        # be planned again at once.
        unjoined = sum(1 for machine in state.targets if machine.status.node_ref is None)
        unjoined += len(view.bare) if operation.spec.kind is OperationKind.DELETE_INSTANCES else 0
        record = {
            _SIZE: str(size),
            _VERSION: view.version,
            _GENERATION: str(subject.resource.metadata.generation),
            NEVER_JOINED: str(unjoined),
        }
        return InProgress(_RECORDED, "remove", record, f"the size {size} is to become {goal}")
    data = dict(operation.status.data)
    try:
        context.api.set_scale(subject.kind, subject.namespace, subject.name, goal, view.version)
    except Conflict:
        return InProgress(_RECORDED, "remove", data, "the pool has changed meanwhile")
    return InProgress(
        _LOOK_AT_POOL_AGAIN, "remove", data, f"{view.names}: the deletion has not begun"
    )


def _check_pool(
    context: CapiContext, operation: Operation, view: _PoolView, goal: int, nodes: Nodes
) -> None:
    """Raise below the minimum, and for a target without a Machine that might not be the deleted
    one, or that is not the planned Node."""
    subject, discards = view.subject, operation.spec.kind is OperationKind.DELETE_INSTANCES
    if not discards:
        subject.check_minimum(goal)
    if not view.bare:
        return
    if view.size > len(view.bare):
        if view.standing.living:
            raise ScalableResourceState(
                f"{subject.group} has Machines, but none yet for {', '.join(view.bare)}"
            )
        if not context.settings.allow_pool_shrink:
            raise InvalidRequest(cannot_choose(subject.resource))
    drained = {target.node for target in operation.spec.targets}
    elsewhere = joined_elsewhere(subject.resource, nodes) if discards else ""
    for provider_id in view.bare:
        match = nodes.listed(provider_id, subject.name)
        if doubt := match.doubt or elsewhere:
            raise ScalableResourceState(f"instance {provider_id} stays: {doubt}")
        if match.node is not None and discards:
            raise ScalableResourceState(
                f"instance {provider_id} has joined as node {match.node.name} meanwhile"
            )
        if match.node is not None and match.node.name not in drained:
            raise ScalableResourceState(
                f"instance {provider_id} is node {match.node.name} by now, which was not drained"
            )
