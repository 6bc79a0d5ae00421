"""Removing named Machines: mark them all, then lower the size once (clusterapi.md §4.3, D13, D28, D30, D31).

Upstream writes marks and sizes in turns and forgets what it did. Here every call reads how the group stands (marks.py)
and takes the next step from there, so it may be repeated, cut off anywhere, and run beside removals of other nodes of
the same group:

    targets            size                                then
    none living        any                                 done
    living             above the living Machines           come back: a lower size would only cancel new Machines
    some not marked    any                                 mark them
    all marked         does not account for all marks      lower it, with the resourceVersion read before the Machines
    all marked         accounts for all marks              come back until their deletion has begun

Lowering is by what is marked and alive, not from one planned number to another: several nodes of a group are drained
side by side, and each finishes in its own time. It relies on MachineSets taking marked Machines first, so it is only
done where it is known which MachineSet becomes smaller (rollout.py); MachinePools promise nothing (pool_remove.py).

Right before marks and size are written, Machines and Nodes are compared once more (victims.py): a Machine that is not
the one of the drained Node any more, or two of which claim the same, stay.

Machines that never joined are discarded in the same way (Kind.DISCARD), with two differences. The minimum is not asked:
it is about Nodes, and they are none. And one that has its Node by now stays.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import InProgress, Outcome, Succeeded
from chalicelib.providers.clusterapi.api import MACHINE, POOL, SET
from chalicelib.providers.clusterapi.context import NEVER_JOINED, TRIES, CapiContext, check_minimum, machines_of, noted
from chalicelib.providers.clusterapi.delete_marks import Standing, has_stalled, standing
from chalicelib.providers.clusterapi.machinepool_delete import release_from_pool, remove_from_pool
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource
from chalicelib.providers.clusterapi.owner_references import controller
from chalicelib.providers.clusterapi.provider_ids import handle_of
from chalicelib.providers.clusterapi.rollout import ON_DELETE, gives_way, rolling_out
from chalicelib.providers.clusterapi.scalable_resource import ScalableResourceState, Subject, machine_sets
from chalicelib.providers.clusterapi.targets import (
    check_identity,
    check_membership,
    release_marks,
    set_marks,
    unmark,
    without_forgotten,
)
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError, Throttled, Transient

# Seconds: MachineSets act within one; Machines are made within a few.
_LOOK_AGAIN, _WAIT_FOR_MACHINES = 2.0, 10.0


class _View(msgspec.Struct, frozen=True):
    """What one attempt decides on."""

    subject: Subject
    sets: tuple[CapiResource, ...]
    version: str
    standing: Standing
    machines: tuple[CapiMachine, ...]  # all of the namespace


def remove(context: CapiContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Nothing was written if a target is not the group's."""
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
            # No Pending: nothing was begun, and whoever comes back is to look at the nodes again.
            raise Conflict(
                f"{MACHINE} {stalled} is marked by a removal that did not go on, and which is to look at it first"
            )
        try:
            return _Attempt(context, operation, view).run()
        except ScalableResourceState:
            raise
        except (Conflict, NotFound) as error:  # changed, or gone, since the look
            changed = error
            if attempt == TRIES:
                _unmark_unless_settled(context, operation, targets)
    raise changed


def _stalled(context: CapiContext, stands: Standing) -> str:
    """A Machine that a lower size would cost its life although the function that marked it stopped there: a pod may
    have come to its node since anybody looked. Empty where there is none."""
    if stands.others_settled:
        return ""
    now, keys = context.now(), context.settings.keys
    return next((each.handle for each in stands.others if has_stalled(each.mark(keys) or "", now)), "")


def release(context: CapiContext, operation: Operation) -> bool:
    """Take our marks off targets that are not to go any more; False where the size was lowered for them already, or
    where none of them lives any more. Raises ProviderError."""
    if operation.spec.group.startswith(f"{POOL}/"):
        return release_from_pool(context, operation)
    stands = _look(context, operation, _handles(operation), asked=False).standing
    marked = all(each.mark(context.settings.keys) is not None for each in stands.targets)
    if marked and stands.goal >= stands.size:
        return False
    release_marks(context, operation, stands.targets)
    return True


def _handles(operation: Operation) -> dict[str, str]:
    """Machine handle -> instance id, of all targets."""
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
    # The size before the Machines: one that changes after this read fails the precondition of the write.
    scale = context.api.scale(subject.kind, subject.namespace, subject.name)
    mine, foreign = machines_of(context.api, subject, sets)
    check_membership(subject, targets, mine, foreign)
    stands = standing(scale.spec.replicas, mine, targets, context.settings.keys)
    return _View(subject, sets, scale.metadata.resource_version, stands, (*mine, *foreign))


class _Attempt:
    """The lower half of the table, over one view."""

    def __init__(self, context: CapiContext, operation: Operation, view: _View) -> None:
        self._context, self._api = context, context.api
        self._operation, self._view = operation, view

    def run(self) -> Outcome:
        """Pending until the targets go. Raises Conflict where the group changed meanwhile; marks stay on for that."""
        stands = self._view.standing
        if stands.goal < stands.size or not self._all_marked(stands):
            check_identity(self._context, self._operation, stands.targets, self._view.machines)
        stands = self._clear_the_way()
        try:
            # A rollout has more Machines than the size for a while; what looks settled then has not begun.
            if stands.goal < stands.size or not self._all_marked(stands):
                self._permitted(stands)
            set_marks(self._context, self._operation, stands.targets)
        except (Transient, Throttled):
            raise  # marks that were set stay: the next call goes on from them
        except ProviderError:
            unmark(self._context, self._operation, stands.targets)
            raise
        if stands.goal < stands.size:
            self._lower(stands)
        names = ", ".join(each.handle for each in stands.targets)
        # D31: these were counted as coming nodes, so what waits for them must be planned again at once.
        never_joined = sum(1 for each in stands.targets if each.status.node_ref is None)
        data = {NEVER_JOINED: str(never_joined)}
        return InProgress(_LOOK_AGAIN, "remove", data, f"the deletion of {names} has not begun")

    def _all_marked(self, stands: Standing) -> bool:
        return all(each.mark(self._context.settings.keys) is not None for each in stands.targets)

    def _clear_the_way(self) -> Standing:
        """Deal with marks on other Machines that no size accounts for: they could be taken in the targets' place.

        Fresh ones of ours belong to a removal that runs beside this one: the goal counts them, whoever lowers first.
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

    def _of_one_set(self, only: CapiResource, stands: Standing) -> None:
        """Raises unless all marks are on Machines of the one set that becomes smaller, and, where it is one of several,
        that set is about to lose none already: the deployment's size does not tell that of each of them."""
        for machine in (*stands.targets, *stands.others):
            if controller(machine.metadata, SET) != only.metadata.uid:
                raise ScalableResourceState(
                    f"{MACHINE} {machine.handle} stays: {self._operation.spec.group} has MachineSet "
                    f"{only.metadata.name} to make smaller first"
                )
        if sum(1 for each in self._view.sets if each.spec.replicas) < 2:
            return
        there = sum(1 for each in stands.living if controller(each.metadata, SET) == only.metadata.uid)
        asked = only.spec.replicas or 0
        if there != asked:
            raise Conflict(f"MachineSet {only.metadata.name} has {there} machines and asks for {asked}")

    def _lower(self, stands: Standing) -> None:
        subject = self._view.subject
        try:
            self._api.set_scale(subject.kind, subject.namespace, subject.name, stands.goal, self._view.version)
        except (Transient, Throttled, Conflict):
            raise  # it may have happened, or will: the marks stay for the next look
        except ProviderError:
            unmark(self._context, self._operation, stands.targets)
            raise


def _unmark_unless_settled(context: CapiContext, operation: Operation, targets: dict[str, str]) -> None:
    """Give up for now: our marks come off, except where the size was lowered for them meanwhile."""
    stands = _look(context, operation, targets).standing
    if stands.goal < stands.size:
        unmark(context, operation, stands.targets)
