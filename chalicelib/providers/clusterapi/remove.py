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
side by side, and each finishes in its own time.

Machines that never joined are discarded in the same way (Kind.DISCARD), with two differences. The minimum is not asked:
it is about Nodes, and they are none. And they are looked at once more: one that has its Node by now stays.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from chalicelib.model.operation import Kind, Operation
from chalicelib.model.outcome import Done, Outcome, Pending
from chalicelib.providers.clusterapi.api import MACHINE
from chalicelib.providers.clusterapi.change import TRIES, Context, check_minimum, machines_of, nodes_of
from chalicelib.providers.clusterapi.identity import Nodes, handle_of, normalise
from chalicelib.providers.clusterapi.keys import MARK_PREFIX
from chalicelib.providers.clusterapi.marks import Standing, is_forgotten, mark_value, standing
from chalicelib.providers.clusterapi.rollout import rolling_out
from chalicelib.providers.clusterapi.subject import Held, Subject, machine_sets
from chalicelib.providers.clusterapi.wire import Machine, Resource
from chalicelib.providers.errors import Conflict, InvalidRequest, ProviderError, Throttled, Transient

# Seconds: MachineSets act within one; Machines are made within a few.
_LOOK_AGAIN, _WAIT_FOR_MACHINES = 2.0, 10.0
_NEVER_JOINED = "never_joined"


class _View(msgspec.Struct, frozen=True):
    """What one attempt decides on."""

    subject: Subject
    sets: tuple[Resource, ...]
    version: str
    standing: Standing


def remove(context: Context, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Nothing was written if a target is not the group's."""
    targets = _handles(operation)
    conflict = Conflict("")
    for attempt in range(1, TRIES + 1):
        view = _look(context, operation, targets)
        if not view.standing.targets:
            never_joined = int(operation.data.get(_NEVER_JOINED, "0"))
            return Done({"to": view.standing.size, "removed": ", ".join(targets), _NEVER_JOINED: never_joined})
        if view.standing.excess < 0:
            note = "machines of this group are still being made"
            return Pending(_WAIT_FOR_MACHINES, "remove", dict(operation.data), note)
        try:
            return _Attempt(context, operation, view).run()
        except Held:
            raise
        except Conflict as error:
            conflict = error
            if attempt == TRIES:
                _unmark_unless_settled(context, operation, targets)
    raise conflict


def release(context: Context, operation: Operation) -> bool:
    """Take our marks off targets that are not to go any more; False where the size was lowered for them already, or
    where none of them lives any more. Raises ProviderError."""
    stands = _look(context, operation, _handles(operation)).standing
    marked = all(each.mark(context.settings.keys) is not None for each in stands.targets)
    if marked and stands.goal >= stands.size:
        return False
    own = f"{MARK_PREFIX}{operation.id}/"
    for machine in stands.targets:
        if (machine.mark(context.settings.keys) or "").startswith(own):
            context.api.mark(machine, None)
    return True


def _handles(operation: Operation) -> dict[str, str]:
    """Machine handle -> instance id, of all targets."""
    handles = {}
    for target in operation.targets:
        handle = target.handle or handle_of(target.instance)
        if handle.count("/") != 1:
            raise InvalidRequest(f"{target.node or target.instance}: no Machine is known for it")
        handles[handle] = target.instance
    return handles


def _look(context: Context, operation: Operation, targets: dict[str, str]) -> _View:
    subject = context.subject(operation.group)
    sets = machine_sets(context.api, subject)
    # The size before the Machines: one that changes after this read fails the precondition of the write.
    scale = context.api.scale(subject.kind, subject.namespace, subject.name)
    mine, foreign = machines_of(context.api, subject, sets)
    elsewhere = {each.handle for each in foreign}
    for handle in sorted(targets):
        if handle.partition("/")[0] != subject.namespace or handle in elsewhere:
            raise InvalidRequest(f"{MACHINE} {handle} does not belong to {operation.group}")
    for machine in mine:
        if _is_another(machine, targets.get(machine.handle, "")):
            raise InvalidRequest(f"{MACHINE} {machine.handle} is another machine by now than {targets[machine.handle]}")
    stands = standing(scale.spec.replicas, mine, targets, context.settings.keys)
    return _View(subject, sets, scale.metadata.resource_version, stands)


def _is_another(machine: Machine, instance: str) -> bool:
    """Whether the name was taken over by a machine with another id than the plan knew."""
    if "/" not in instance or not machine.spec.provider_id:
        return False
    return normalise(machine.spec.provider_id) != normalise(instance)


class _Attempt:
    """The lower half of the table, over one view."""

    def __init__(self, context: Context, operation: Operation, view: _View) -> None:
        self._context, self._api, self._keys = context, context.api, context.settings.keys
        self._operation, self._view = operation, view

    def run(self) -> Outcome:
        """Pending until the targets go. Raises Conflict where the group changed meanwhile; marks stay on for that."""
        self._spare_the_joined()
        stands = self._clear_the_way()
        try:
            if stands.goal < stands.size:
                self._permitted(stands.goal)
            self._mark(stands)
        except (Transient, Throttled):
            raise       # marks that were set stay: the next call goes on from them
        except ProviderError:
            _unmark(self._context, self._operation, stands.targets)
            raise
        if stands.goal < stands.size:
            self._lower(stands)
        names = ", ".join(each.handle for each in stands.targets)
        # D31: these were counted as coming nodes, so what waits for them must be planned again at once.
        never_joined = sum(1 for each in stands.targets if each.status.node_ref is None)
        data = {_NEVER_JOINED: str(never_joined)}
        return Pending(_LOOK_AGAIN, "remove", data, f"the deletion of {names} has not begun")

    def _spare_the_joined(self) -> None:
        """Raises if a Machine that was to be discarded has its Node by now, unless the size accounts for it already."""
        stands = self._view.standing
        if self._operation.kind is not Kind.DISCARD or stands.goal >= stands.size:
            return
        nodes = Nodes(nodes_of(self._api), self._keys)
        for machine in stands.targets:
            if (node := nodes.of(machine)) is not None:
                _unmark(self._context, self._operation, stands.targets)
                raise Held(f"{MACHINE} {machine.handle} has joined as node {node.name} meanwhile")

    def _clear_the_way(self) -> Standing:
        """Deal with marks on other Machines that no size accounts for: they could be taken in the targets' place.

        Fresh ones of ours belong to a removal that runs beside this one: the goal counts them, whoever lowers first.
        """
        stands = self._view.standing
        if stands.others_settled:
            return stands
        kept = []
        for machine in stands.others:
            mark = machine.mark(self._keys) or ""
            if not mark.startswith(MARK_PREFIX):
                raise Held(
                    f"{MACHINE} {machine.handle} carries a {self._keys.delete_machine} mark that is not ours, so it "
                    "would be deleted in the place of another: take the mark off or delete that Machine"
                )
            if is_forgotten(mark, self._context.now()):
                self._api.mark(machine, None)
            else:
                kept.append(machine)
        return msgspec.structs.replace(stands, others=tuple(kept))

    def _permitted(self, goal: int) -> None:
        if self._operation.kind is not Kind.DISCARD:
            check_minimum(self._view.subject, goal)
        if reason := rolling_out(self._view.subject.resource, self._view.sets):
            raise Held(f"{self._operation.group}: {reason}")

    def _mark(self, stands: Standing) -> None:
        value = mark_value(self._operation.id, self._context.now())
        for machine in stands.targets:
            mark = machine.mark(self._keys)
            # A mark that a person set does the same and stays theirs; one of ours is made fresh.
            if mark is None or (mark.startswith(MARK_PREFIX) and is_forgotten(mark, self._context.now())):
                self._api.mark(machine, value)

    def _lower(self, stands: Standing) -> None:
        subject = self._view.subject
        try:
            self._api.set_scale(subject.kind, subject.namespace, subject.name, stands.goal, self._view.version)
        except (Transient, Throttled, Conflict):
            raise       # it may have happened, or will: the marks stay for the next look
        except ProviderError:
            _unmark(self._context, self._operation, stands.targets)
            raise


def _unmark_unless_settled(context: Context, operation: Operation, targets: dict[str, str]) -> None:
    """Give up for now: our marks come off, except where the size was lowered for them meanwhile."""
    stands = _look(context, operation, targets).standing
    if stands.goal < stands.size:
        _unmark(context, operation, stands.targets)


def _unmark(context: Context, operation: Operation, machines: Collection[Machine]) -> None:
    own = f"{MARK_PREFIX}{operation.id}/"
    for machine in machines:
        try:
            fresh = context.api.machine(machine.metadata.namespace, machine.metadata.name)
            if (fresh.mark(context.settings.keys) or "").startswith(own):
                context.api.mark(machine, None)
        except ProviderError:
            continue     # best effort: a mark that stays is cleared once it is old (_clear_the_way)
