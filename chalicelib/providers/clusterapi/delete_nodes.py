"""Removes named Machines: annotates all of them, then lowers the size once.

Upstream writes annotations and sizes alternately and keeps no record. Here every call reads the group's state
(delete_marks.py) and takes the next step from there. It may be repeated, interrupted at any point, and run concurrently
with removals of other nodes of the same group:

    targets            size                                then
    none alive         any                                 done
    alive              above the living Machines           poll again: a lower size would only cancel new Machines
    some unannotated   any                                 annotate them
    all annotated      does not cover all annotations      lower it, with the resourceVersion read before the Machines
    all annotated      covers all annotations              poll again until their deletion has begun

The new size follows from the annotated living Machines and not from planned numbers, because several nodes of a group
are drained concurrently and finish at different times. This relies on MachineSets deleting annotated Machines first, so
it is done only if it is certain which MachineSet is scaled down (rollout.py). MachinePools give no such guarantee
(machinepool_delete.py).

Immediately before annotations and size are written, Machines and Nodes are compared again (targets.py). A Machine that
is no longer that of the drained Node, or a Node that two Machines claim, is not removed.

Machines that never joined (kind "discard") are deleted in the same way, with two differences: the minimum does not
apply, because they are not Nodes, and a Machine that has its Node by now is kept (docs/providers/clusterapi.md "Node
removal").
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import InProgress, Outcome, Succeeded
from chalicelib.providers.clusterapi.api import MACHINE, POOL, SET
from chalicelib.providers.clusterapi.capi_state import ON_DELETE, controller, gives_way, rolling_out
from chalicelib.providers.clusterapi.context import (
    NEVER_JOINED,
    TRIES,
    CapiContext,
    ScalableResourceState,
    Standing,
    Subject,
    check_identity,
    check_membership,
    check_minimum,
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
from chalicelib.providers.clusterapi.instances import handle_of
from chalicelib.providers.clusterapi.machinepool_delete import release_from_pool, remove_from_pool
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError, Throttled, Transient

# Seconds: MachineSets act within one; Machines are created within a few.
_LOOK_AGAIN, _WAIT_FOR_MACHINES = 2.0, 10.0


class _View(msgspec.Struct, frozen=True):
    """The state on which one attempt decides."""

    subject: Subject
    sets: tuple[CapiResource, ...]
    version: str
    standing: Standing
    machines: tuple[CapiMachine, ...]  # all Machines of the namespace


def delete_nodes(context: CapiContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Writes nothing if a target does not belong to the group."""
    if operation.spec.group.startswith(f"{POOL}/"):
        return remove_from_pool(context, operation)
    targets = _handles(operation)
    changed: ProviderError = Conflict("")
    for attempt in range(1, TRIES + 1):
        view = _look(context, operation, targets)
        if not view.standing.targets:
            never_joined = noted(operation, NEVER_JOINED) or 0
            return Succeeded({"to": view.standing.size, "removed": ", ".join(targets), NEVER_JOINED: never_joined})
        if view.standing.excess < 0:
            note = "machines of this group are still being made"
            return InProgress(_WAIT_FOR_MACHINES, "remove", dict(operation.status.data), note)
        if stalled := _stalled(context, view.standing):
            # Not Pending: nothing was started, and the caller must check the nodes again before it retries.
            raise Conflict(
                f"{MACHINE} {stalled} is marked by a removal that did not go on, and which is to look at it first"
            )
        try:
            return _Attempt(context, operation, view).run()
        except ScalableResourceState:
            raise
        except (Conflict, NotFound) as error:  # changed or deleted since it was read
            changed = error
            if attempt == TRIES:
                _unmark_unless_settled(context, operation, targets)
    raise changed


def _stalled(context: CapiContext, stands: Standing) -> str:
    """Return a Machine that a lower size would delete although the function that annotated it has stopped; empty if
    none.

    A pod may have been scheduled to its node since that function checked it."""
    if stands.others_settled:
        return ""
    now, keys = context.now(), context.settings.keys
    return next((each.handle for each in stands.others if has_stalled(each.mark(keys) or "", now)), "")


def cancel_delete(context: CapiContext, operation: Operation) -> bool:
    """Remove our annotations from targets that are not to be deleted any more. Raises ProviderError.

    False if the size was lowered for them already, or if none of them is alive."""
    if operation.spec.group.startswith(f"{POOL}/"):
        return release_from_pool(context, operation)
    stands = _look(context, operation, _handles(operation), asked=False).standing
    marked = all(each.mark(context.settings.keys) is not None for each in stands.targets)
    if marked and stands.goal >= stands.size:
        return False
    release_marks(context, operation, stands.targets)
    return True


def _handles(operation: Operation) -> dict[str, str]:
    """Return Machine handle -> instance id, for all targets."""
    handles = {}
    for target in operation.spec.targets:
        handle = target.handle or handle_of(target.instance)
        if handle.count("/") != 1:
            raise InvalidRequest(f"{target.node or target.instance}: no Machine is known for it")
        handles[handle] = target.instance
    return handles


def _look(context: CapiContext, operation: Operation, targets: dict[str, str], *, asked: bool = True) -> _View:
    subject = context.subject(operation.spec.group, asked=asked)
    sets = machine_sets(context.api, subject)
    # The size is read before the Machines: a change after this read fails the precondition of the write.
    scale = context.api.scale(subject.kind, subject.namespace, subject.name)
    mine, foreign = machines_of(context.api, subject, sets)
    check_membership(subject, targets, mine, foreign)
    stands = standing(scale.spec.replicas, mine, targets, context.settings.keys)
    return _View(subject, sets, scale.metadata.resource_version, stands, (*mine, *foreign))


class _Attempt:
    """The lower part of the table, for one view."""

    def __init__(self, context: CapiContext, operation: Operation, view: _View) -> None:
        self._context, self._api = context, context.api
        self._operation, self._view = operation, view

    def run(self) -> Outcome:
        """Pending until the targets are deleted. Raises Conflict if the group changed meanwhile; the annotations then
        stay."""
        stands = self._view.standing
        if stands.goal < stands.size or not self._all_marked(stands):
            check_identity(self._context, self._operation, stands.targets, self._view.machines)
        stands = self._clear_the_way()
        try:
            # A rollout temporarily has more Machines than the size, so a removal that looks accounted for may not
            # have begun.
            if stands.goal < stands.size or not self._all_marked(stands):
                self._permitted(stands)
            set_marks(self._context, self._operation, stands.targets)
        except (Transient, Throttled):
            raise  # annotations already set stay: the next call continues from them
        except ProviderError:
            unmark(self._context, self._operation, stands.targets)
            raise
        if stands.goal < stands.size:
            self._lower(stands)
        names = ", ".join(each.handle for each in stands.targets)
        # These Machines were counted as upcoming nodes, so pods that wait for them must be planned again at once.
        never_joined = sum(1 for each in stands.targets if each.status.node_ref is None)
        data = {NEVER_JOINED: str(never_joined)}
        return InProgress(_LOOK_AGAIN, "remove", data, f"the deletion of {names} has not begun")

    def _all_marked(self, stands: Standing) -> bool:
        return all(each.mark(self._context.settings.keys) is not None for each in stands.targets)

    def _clear_the_way(self) -> Standing:
        """Handle annotations on other Machines that the size does not account for: they could be deleted instead of the
        targets.

        Recent ones set by Outscaler belong to a concurrent removal: the target size counts them, whichever removal
        lowers it first.
        """
        stands = self._view.standing
        if stands.others_settled:
            return stands
        return msgspec.structs.replace(stands, others=without_forgotten(self._context, stands.others))

    def _permitted(self, stands: Standing) -> None:
        view = self._view
        if self._operation.spec.kind is not OperationKind.DELETE_INSTANCES and stands.goal < stands.size:
            check_minimum(view.subject, stands.goal)
        only = gives_way(view.subject.kind, view.subject.resource, view.sets)
        chooses = "several of its MachineSets have machines, and it would choose which of them becomes smaller"
        if only is None or view.subject.resource.strategy != ON_DELETE:
            reason = rolling_out(view.subject.resource, view.sets) or (chooses if only is None else "")
            if reason:
                raise ScalableResourceState(f"{self._operation.spec.group}: {reason}")
        if only is not None and view.subject.kind != SET:
            self._of_one_set(only, stands)

    def _of_one_set(self, resource: CapiResource, stands: Standing) -> None:
        """Raise unless all annotations are on Machines of the one set that is scaled down.

        If it is one of several sets, it must also have no deletion pending, because the deployment's size does not show
        the size of each set."""
        for machine in (*stands.targets, *stands.others):
            if controller(machine.metadata, SET) != resource.metadata.uid:
                raise ScalableResourceState(
                    f"{MACHINE} {machine.handle} stays: {self._operation.spec.group} has MachineSet "
                    f"{resource.metadata.name} to make smaller first"
                )
        if sum(1 for each in self._view.sets if each.spec.replicas) < 2:
            return
        there = sum(1 for each in stands.living if controller(each.metadata, SET) == resource.metadata.uid)
        asked = resource.spec.replicas or 0
        if there != asked:
            raise Conflict(f"MachineSet {resource.metadata.name} has {there} machines and asks for {asked}")

    def _lower(self, stands: Standing) -> None:
        subject = self._view.subject
        try:
            self._api.set_scale(subject.kind, subject.namespace, subject.name, stands.goal, self._view.version)
        except (Transient, Throttled, Conflict):
            raise  # the write may have happened, or will: the annotations stay for the next call
        except ProviderError:
            unmark(self._context, self._operation, stands.targets)
            raise


def _unmark_unless_settled(context: CapiContext, operation: Operation, targets: dict[str, str]) -> None:
    """Give up for now: remove our annotations, unless the size was lowered for them meanwhile."""
    stands = _look(context, operation, targets).standing
    if stands.goal < stands.size:
        unmark(context, operation, stands.targets)
