"""Removes instances by id, twenty at a time, and lowers the desired capacity by instances
that were never created.

Every call first reads the group's instances and continues from that state, so it may be repeated or
interrupted at any point:

    placeholders among the targets             lower the desired capacity, never below what exists
    absent, or Removing                        removed
    protected, or attached by a user           not requested; the others are, and
                                               these are reported as failed
    requested, its activity is running         poll again
    requested, its activity has failed         failed, with the activity's class
    alive                                      requested, if the group stays at or above its minimum

A failed creation leaves the desired capacity unchanged, and ESS would retry it forever; deleting
the placeholders ends that (docs/reference/node-groups.md "Unregistered instances"). A user may have
lowered the desired capacity below the number of instances, and ESS will then remove the surplus.
The instances removed here are part of that surplus. The capacity is not lowered for them again,
because ESS would then remove instances that were not selected.

ESS accepts a request only while no activity of the group is in progress, so the second twenty wait
for the first, and other removals of the group that are ready join a request (`delete_together`).
Each of them is checked as if it were alone, and continues by the same table with the activity of
the shared request. The response names instances that are not removed (IgnoredInstances); an
instance that is already gone is not a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.alicloud.api import IDS
from chalicelib.providers.alicloud.decoding import Accepted, ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.error_mapping import is_busy, is_gone
from chalicelib.providers.alicloud.node_groups import (
    LEAVING,
    failed,
    failure,
    no_removal,
    running,
    size_range,
    surplus,
    target_of,
    unremovable,
)
from chalicelib.providers.alicloud.provider_ids import handle_of, identify
from chalicelib.providers.alicloud.scale_up import (
    ACTIVITY,
    FOLLOWING,
    AlicloudContext,
    client_token,
    sized_group,
)
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    Throttled,
    Transient,
)
from chalicelib.providers.kit.group_builder import placeholder_group
from chalicelib.providers.kit.node_identity import PermanentConflict
from chalicelib.providers.kit.removal_guard import (
    Targets,
    check_minimum,
    check_nodes,
    read_targets,
)
from chalicelib.providers.kit.sized_group import (
    changed_size,
    check_sizes,
    lower_as_planned,
    lower_by_placeholders,
)

STEP, SPARE = "remove", "spare"
ASKED, REFUSED, LATE = "asked", "refused", "late"
_LOOK_AGAIN = 5.0
_FOLLOWING = msgspec.structs.replace(FOLLOWING, step=STEP)
# Seconds until a removal tries again whose group is busy, unless the end of the activity wakes it
# before; and the code with which a drained node waits for its turn until its deadline
# (operations/waiting.py).
TURN, _QUEUED = 60.0, "busy"
# polls after an activity reports success while an instance is still listed,
# before the removal fails
_LATE_POLLS = 6


# -- targets


def targets_of(operation: Operation) -> Targets:
    """Return the targets; raises InvalidRequest."""
    return read_targets(operation, handle_of, placeholder_group, "ECS instance")


def listed_in(
    context: AlicloudContext, group: str, ids: Sequence[str] = ()
) -> dict[str, ScalingInstance]:
    """Return the group's instances by id, or only those named; raises ProviderError."""
    try:
        return {instance.instance_id: instance for instance in context.api.instances(group, ids)}
    except NotFound:
        return {}  # a deleted group has no instances


def is_alive(name: str, listed: Mapping[str, ScalingInstance]) -> bool:
    """Whether the instance exists and is not being removed."""
    return name in listed and listed[name].lifecycle_state not in LEAVING


def check_membership(
    context: AlicloudContext,
    group: str,
    machines: Iterable[str],
    listed: Mapping[str, ScalingInstance],
) -> None:
    """Raise InvalidRequest if an instance that the group lacks is in another group, of this policy
    or not. An instance unknown to ESS counts as gone."""
    context.bounds(group)
    absent = [name for name in machines if name not in listed]
    if not absent:
        return
    elsewhere = {
        instance.instance_id: instance.scaling_group_id
        for instance in context.api.instances("", absent)
        if instance.scaling_group_id not in {"", group}
    }
    if elsewhere:
        groups = ", ".join(sorted(set(elsewhere.values())))
        raise InvalidRequest(f"{', '.join(sorted(elsewhere))} is in {groups} and not in {group}")


def check_nodes_of(
    context: AlicloudContext, operation: Operation, instances: Sequence[str]
) -> None:
    """Raise PermanentConflict if an instance is not, or not for certain,
    the node that was planned."""
    region = context.settings.region
    check_nodes(
        operation, context.joined, lambda nodes: identify(nodes, region), instances, handle_of
    )


# -- removal


def delete_nodes(context: AlicloudContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Writes nothing if a target does
    not belong to the group."""
    removal = _read_removal(context, operation)
    return removal.run()[0] if isinstance(removal, _Removal) else removal


def delete_together(
    context: AlicloudContext, operation: Operation, others: Iterable[Operation]
) -> tuple[Outcome, dict[str, Outcome]]:
    """See OneChangeAtATime; raises ProviderError."""
    try:
        removal, joined = _read_removal(context, operation), list[_Removal]()
        if isinstance(removal, _Removal) and removal.unrequested:
            removal.check_permitted()
            context.check_idle(operation.spec.group)
            if ready := tuple(islice(others, IDS)) if removal.room else ():
                if context.joined is not None:
                    nodes = context.joined()
                    # of all, read once
                    context = msgspec.structs.replace(context, joined=lambda: nodes)
                removal = _read_removal(context, operation)  # seconds have passed
                if isinstance(removal, _Removal):
                    joined = _joining(context, removal, ready)
        return removal.run(joined) if isinstance(removal, _Removal) else (removal, {})
    except Conflict as error:
        if not is_busy(error):
            raise
        raise Conflict(
            error.message, code=_QUEUED, request_id=error.request_id, retry_after=TURN
        ) from None


def _read_removal(context: AlicloudContext, operation: Operation) -> _Removal | Outcome:
    """Return what is left to remove, after lowering the capacity by the placeholders; Failed if the
    size has increased. Raises ProviderError."""
    targets = targets_of(operation)
    group = context.group(operation.spec.group)
    # The full list is read only if the desired capacity is to be lowered; otherwise even a
    # large group costs one call.
    listed = listed_in(
        context, operation.spec.group, () if targets.placeholders else targets.machines
    )
    removal = _Removal(context, operation, group, listed, targets)
    if not operation.status.data:
        check_membership(context, operation.spec.group, targets.machines, listed)
    if operation.spec.kind is OperationKind.DELETE_INSTANCES and removal.unrequested:
        check_nodes_of(context, operation, removal.unrequested)
    # instances that were not created are not part of the size of a group without a desired capacity
    if group.enable_desired_capacity:
        group_size = sized_group(context, operation, group, listed.values)
        failed = lower_by_placeholders(operation, targets, group_size)
        if failed is not None:
            return failed
    return removal


def _joining(
    context: AlicloudContext, removal: _Removal, ready: Sequence[Operation]
) -> list[_Removal]:
    """Return which of the other removals share the request of this one. One that would be refused,
    or of whose instances one is not in the group any more, finds that out by itself."""
    targets: dict[str, Targets] = {}
    for operation in ready:
        with suppress(BadInput, InvalidRequest):
            targets[operation.spec.id] = targets_of(operation)
    names = [name for each in targets.values() for name in each.machines]
    listed = listed_in(context, removal.group.scaling_group_id, names) if names else {}
    joined, requested, room = list[_Removal](), set(removal.lot), removal.room
    for operation in ready:
        if (its_targets := targets.get(operation.spec.id)) is None or its_targets.placeholders:
            continue
        other = _Removal(context, operation, removal.group, listed, its_targets)
        lot = other.lot
        if (
            not lot
            or set(lot) != set(its_targets.machines)
            or len(lot) > room
            or not requested.isdisjoint(lot)
        ):
            continue
        with suppress(PermanentConflict):
            check_nodes_of(context, operation, lot)
            joined.append(other)
            requested.update(lot)
            room -= len(lot)
    return joined


def cancel_delete(context: AlicloudContext, operation: Operation) -> bool:
    """Return whether any target is still there and not leaving; raises ProviderError. There is
    nothing to undo, because ESS is not modified before the removal request."""
    targets = targets_of(operation)
    listed = listed_in(context, operation.spec.group, targets.machines) if targets.machines else {}
    if any(is_alive(name, listed) for name in targets.machines):
        return True
    if not targets.placeholders:
        return False
    try:
        return target_of(context.group(operation.spec.group)) >= operation.spec.from_size
    except NotFound:
        return False


class _Removal:
    """One call of a removal, according to the table above."""

    def __init__(
        self,
        context: AlicloudContext,
        operation: Operation,
        group: ScalingGroup,
        listed: Mapping[str, ScalingInstance],
        targets: Targets,
    ) -> None:
        self.group = group
        self._context, self._operation, self._targets, self._name = (
            context,
            operation,
            targets,
            operation.spec.group,
        )
        alive = [name for name in targets.machines if is_alive(name, listed)]
        try:
            refused = msgspec.json.decode(
                operation.status.data.get(REFUSED) or "{}", type=dict[str, str]
            )
        except (msgspec.MsgspecError, UnicodeError):
            refused = {}
        self._refused = {name: why for name, why in refused.items() if name in alive}
        self._refused |= {name: why for name in alive if (why := unremovable(listed[name]))}
        self._alive = [name for name in alive if name not in self._refused]
        self._requested = [
            name for name in operation.status.data.get(ASKED, "").split(",") if name in self._alive
        ]

    @property
    def unrequested(self) -> list[str]:
        """Return the instances whose removal this call will request, except
        those already requested."""
        return [] if self._requested else self._alive

    @property
    def lot(self) -> list[str]:
        """Return the instances of the next request. While there is a
        surplus, only as many as it has."""
        return self.unrequested[: surplus(self.group) or IDS][:IDS]

    @property
    def room(self) -> int:
        """Return how many instances of other removals fit in the next request."""
        if spare := surplus(self.group):
            return min(IDS, spare) - len(self.lot)
        return max(0, min(IDS - len(self.lot), self._size_after(len(self._alive)) - self._least))

    def run(self, others: Sequence[_Removal] = ()) -> tuple[Outcome, dict[str, Outcome]]:
        """Return the outcome, Pending until no target is alive; and by operation id the outcomes of
        the others, which share the request."""
        if not self._alive:
            return self._end(), {}
        if self._requested:
            return self._follow(), {}
        self.check_permitted()
        spare = surplus(self.group)
        if spare:  # our own request may have lowered the capacity already
            self._context.check_idle(self._name)
        lot = self.lot
        if self._operation.spec.kind is OperationKind.DELETE_NODES:
            check_nodes_of(self._context, self._operation, lot)
        names = [*lot, *sorted(name for other in others for name in other.lot)]
        token = client_token(self._operation, SPARE if spare else STEP, *sorted(names))
        try:
            accepted = self._context.api.remove(self._name, names, token=token, decrease=not spare)
        except ProviderError as error:
            if others and not isinstance(error, Conflict | Throttled | Transient):
                # refused as a whole, and nothing is removed: each is judged by itself
                return self.run()
            data = self._operation.status.data
            if is_busy(error) and data:
                return InProgress(
                    2 * _LOOK_AGAIN, STEP, dict(data), "another activity is under way"
                ), {}
            if is_gone(error):
                # An instance has disappeared since it was listed; the removal of the others
                # is requested without it.
                fresh = listed_in(self._context, self._name, lot)
                if not all(is_alive(name, fresh) for name in lot):
                    return InProgress(
                        _LOOK_AGAIN, STEP, self._data([], Accepted()), error.message
                    ), {}
            raise
        outcomes: dict[str, Outcome] = {}
        for other in others:
            with suppress(Conflict):
                outcomes[other._operation.spec.id] = other._answered(other.lot, accepted)
        return self._answered(lot, accepted), outcomes

    def _end(self, code: str = "") -> Outcome:
        removed = len(self._targets.machines) - len(self._refused) + len(self._targets.placeholders)
        facts: dict[str, str | int] = {"removed": removed, "group": self._name}
        if not self._refused:
            return Succeeded(facts)
        text = "; ".join(f"{name}: {why}" for name, why in sorted(self._refused.items()))
        return Failed("InvalidRequest", f"{self._name}: {text}", code, facts=facts)

    def _follow(self) -> Outcome:
        """Follow the activity while requested instances are still alive."""
        activity = self._operation.status.data.get(ACTIVITY, "")
        activities = self._context.api.activities(self._name, ids=[activity]) if activity else []
        requested = ", ".join(self._requested)
        destroyed = activities[0].destroyed_instances or () if activities else ()
        if activities and failed(activities[0]) and not set(self._requested) <= set(destroyed):
            why = failure(activities[0])
            text = f"{self._name}: {requested} could not be removed: {why.message}"
            return Failed(why.cls, text, why.code, facts={ACTIVITY: activity})
        if running(activities):
            return _FOLLOWING.later(
                self._operation, f"scaling activity {activity} removes {requested}"
            )
        late = self._operation.status.data.get(LATE, "") + "."
        if len(late) > _LATE_POLLS:
            text = f"{self._name}: ESS says that {requested} was removed and lists it still"
            return Failed("Unknown", text, facts={ACTIVITY: activity})
        return _FOLLOWING.later(
            self._operation, f"ESS has not begun to remove {requested}", data={LATE: late}
        )

    def check_permitted(self) -> None:
        """Raise InvalidRequest if the group must not be changed or would fall below its minimum.
        While an activity is running, the numbers may already include our own request. The removal
        is then retried (Conflict) instead of failed."""
        if reason := no_removal(self.group):
            raise InvalidRequest(reason)
        if self._operation.spec.kind is OperationKind.DELETE_INSTANCES:
            return
        size = self._size_after(len(self._alive))
        if size < self._least:
            self._context.check_idle(self._name)
        check_minimum(self._name, size, self._least)

    @property
    def _least(self) -> int:
        return size_range(self._context.bounds(self._name), self.group).min

    def _size_after(self, count: int) -> int:
        """Return the size without so many instances, of which the surplus
        is not part of the size."""
        return target_of(self.group) - max(0, count - surplus(self.group))

    def _answered(self, lot: list[str], accepted: Accepted) -> Outcome:
        ignored = {
            item.instance_id: item
            for item in accepted.ignored_instances or ()
            if item.instance_id in lot
        }
        for name, why in ignored.items():
            error = ProviderError(why.message, code=why.code)
            if is_busy(error):
                raise Conflict(f"{name}: {why.message or why.code}", code=why.code)
            if not is_gone(error):
                self._refused[name] = f"{why.code}: {why.message}" if why.message else why.code
        if ignored and all(name in self._refused for name in self._alive):
            return self._end(next(iter(ignored.values())).code)
        return InProgress(
            _LOOK_AGAIN,
            STEP,
            self._data([name for name in lot if name not in self._refused], accepted),
        )

    def _data(self, lot: list[str], accepted: Accepted) -> dict[str, str]:
        data = {ASKED: ",".join(lot), ACTIVITY: accepted.scaling_activity_id}
        return (
            {**data, REFUSED: msgspec.json.encode(self._refused).decode()}
            if self._refused
            else data
        )


# -- lower capacity


def decrease_target(context: AlicloudContext, operation: Operation) -> Outcome:
    """Lower the desired capacity to to_size where no instance would have to go for it; raises
    ProviderError. A group without a desired capacity has a target equal to its instances, so there
    is never anything to lower."""
    name, to_size = operation.spec.group, operation.spec.to_size
    check_sizes(operation)
    context.bounds(name)
    group = context.group(name)
    size = target_of(group)
    if size <= to_size:
        return changed_size(operation)
    if not group.enable_desired_capacity:
        raise InvalidRequest(
            f"{name} has no desired capacity: its size is the {size} instances it has"
        )
    group_size = sized_group(context, operation, group, lambda: context.api.instances(name))
    return lower_as_planned(operation, group_size) or changed_size(operation)
