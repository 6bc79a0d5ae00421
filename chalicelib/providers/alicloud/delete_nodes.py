"""TODO"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.alicloud.decoding import Accepted, ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.error_mapping import is_busy, is_gone
from chalicelib.providers.alicloud.node_groups import (
    LEAVING,
    failed,
    failure,
    held,
    occupied,
    range_of,
    running,
    surplus,
    target_of,
    unremovable,
)
from chalicelib.providers.alicloud.provider_ids import handle_of, identify, is_placeholder, placeholder_group
from chalicelib.providers.alicloud.scale_up import (
    ACTIVITY,
    AlicloudContext,
    client_token,
    growing_wait,
    lower,
    other_size,
)
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError
from chalicelib.providers.joined_nodes import joined_of, refuse_changed, refuse_joined


class AlicloudTargets(msgspec.Struct, frozen=True):
    """The targets of a removal: instance ids and placeholders."""

    instances: tuple[str, ...]
    placeholders: tuple[str, ...]


def read_targets(operation: Operation) -> AlicloudTargets:
    """Return the targets, each once; raises InvalidRequest for one without an id, or for another group's
    placeholder."""
    handles: dict[str, None] = {}
    for target in operation.spec.targets:
        handle = handle_of(target)
        if not handle:
            raise InvalidRequest(f"{target.node or target.instance}: no ECS instance is known for it")
        handles[handle] = None
    for handle in handles:
        if is_placeholder(handle) and placeholder_group(handle) != operation.spec.group:
            raise InvalidRequest(f"{handle} does not belong to {operation.spec.group}")
    return AlicloudTargets(
        tuple(each for each in handles if not is_placeholder(each)),
        tuple(each for each in handles if is_placeholder(each)),
    )


def listed_in(context: AlicloudContext, group: str, ids: Sequence[str] = ()) -> dict[str, ScalingInstance]:
    """Return the group's instances by id, or only those named; raises ProviderError."""
    try:
        return {each.instance_id: each for each in context.api.instances(group, ids)}
    except NotFound:
        return {}  # a deleted group has no instances


def lives(name: str, listed: Mapping[str, ScalingInstance]) -> bool:
    """Whether the instance exists and is not being removed."""
    return name in listed and listed[name].lifecycle_state not in LEAVING


def check_membership(
    context: AlicloudContext, operation: Operation, targets: AlicloudTargets, listed: Mapping[str, ScalingInstance]
) -> None:
    """Raise InvalidRequest if an instance that the group lacks is in another group, of this policy or not.

    An instance unknown to ESS counts as gone."""
    context.bounds(operation.spec.group)
    absent = [each for each in targets.instances if each not in listed]
    if not absent:
        return
    elsewhere = {
        each.instance_id: each.scaling_group_id
        for each in context.api.instances("", absent)
        if each.scaling_group_id not in {"", operation.spec.group}
    }
    if elsewhere:
        groups = ", ".join(sorted(set(elsewhere.values())))
        raise InvalidRequest(f"{', '.join(sorted(elsewhere))} is in {groups} and not in {operation.spec.group}")


def spare_the_joined(context: AlicloudContext, instances: Iterable[str]) -> None:
    """Raises PermanentConflict if one of the instances is a node by now. Without a connection to the cluster nothing is
    checked: the caller has looked by name."""
    if context.joined is None:
        return
    refuse_joined(joined_of(instances, identify(context.joined(), context.settings.region)))


def check_nodes(context: AlicloudContext, operation: Operation, instances: Collection[str]) -> None:
    """Raises PermanentConflict if one of the instances is not, or not for certain, the node that was planned.
    Without a connection to the cluster nothing is checked."""
    if context.joined is None:
        return
    nodes = context.joined()
    identity = identify(nodes, context.settings.region)

    def among(target: RemovalTarget) -> str | None:
        return name if (name := handle_of(target)) in instances else None

    refuse_changed(operation.spec.targets, among, identity, nodes)


def take_back(
    context: AlicloudContext,
    operation: Operation,
    group: ScalingGroup,
    listed: Mapping[str, ScalingInstance],
    targets: AlicloudTargets,
) -> Failed | None:
    """Lower the desired capacity by the number of instances that were never created. Failed if it has increased.

    The new size is computed from the planned size, so the call may be repeated. If the capacity is lower already, this
    operation or a concurrent removal has lowered it, and the next pass sees the remainder."""
    desired = group.desired_capacity
    if not group.enable_desired_capacity:
        return None  # instances that were not created are not part of such a group's size
    if desired > operation.spec.from_size:
        return other_size(operation, desired)
    least = max(occupied(group, listed.values()), group.min_size)
    goal = max(least, operation.spec.from_size - len(targets.placeholders))
    if goal < desired:
        lower(context, operation, group, goal)
    return None


LOT = 20
STEP, SPARE = "remove", "spare"
ASKED, REFUSED, LATE = "asked", "refused", "late"
_LOOK_AGAIN = 5.0
_LATE_POLLS = 6  # polls after an activity reports success while an instance is still listed, before the removal fails


def delete_nodes(context: AlicloudContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Writes nothing if a target does not belong to the group."""
    targets = read_targets(operation)
    group = context.group(operation.spec.group)
    # The full list is read only if the desired capacity is to be lowered; otherwise even a large group costs one call.
    listed = listed_in(context, operation.spec.group, () if targets.placeholders else targets.instances)
    removal = _Removal(context, operation, group, listed, targets)
    if not operation.status.data:
        check_membership(context, operation, targets, listed)
    if operation.spec.kind is OperationKind.DELETE_INSTANCES and removal.to_ask:
        spare_the_joined(context, removal.to_ask)
    if targets.placeholders and (conflict := take_back(context, operation, group, listed, targets)):
        return conflict
    return removal.run()


def cancel_delete(context: AlicloudContext, operation: Operation) -> bool:
    """Return whether any target is still there and not leaving; raises ProviderError.

    There is nothing to undo, because ESS is not modified before the removal request."""
    targets = read_targets(operation)
    listed = listed_in(context, operation.spec.group, targets.instances) if targets.instances else {}
    if any(lives(name, listed) for name in targets.instances):
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
        targets: AlicloudTargets,
    ) -> None:
        self._context, self._operation, self._group = context, operation, group
        self._targets = targets
        living = [name for name in targets.instances if lives(name, listed)]
        self._refused = {name: why for name, why in _known(operation, REFUSED).items() if name in living}
        self._refused |= {name: why for name in living if (why := unremovable(listed[name]))}
        self._living = [name for name in living if name not in self._refused]
        self._asked = [name for name in operation.status.data.get(ASKED, "").split(",") if name in self._living]

    @property
    def to_ask(self) -> list[str]:
        """Return the instances whose removal this call will request, except those already requested."""
        return [] if self._asked else self._living

    def run(self) -> Outcome:
        """Pending until no target is alive."""
        if not self._living:
            return self._end()
        if self._asked:
            return self._follow()
        self._permitted()
        spare = surplus(self._group)
        if spare:  # our own request may have lowered the capacity already
            self._context.check_idle(self._operation.spec.group)
        lot = self._living[: min(LOT, spare) if spare else LOT]
        if self._operation.spec.kind is OperationKind.DELETE_NODES:
            check_nodes(self._context, self._operation, lot)
        token = client_token(self._operation, STEP if not spare else SPARE, *sorted(lot))
        try:
            accepted = self._context.api.remove(self._operation.spec.group, lot, token=token, decrease=not spare)
        except ProviderError as error:
            if is_busy(error) and self._operation.status.data:
                return InProgress(
                    2 * _LOOK_AGAIN, STEP, dict(self._operation.status.data), "another activity is under way"
                )
            if is_gone(error) and self._some_gone(lot):
                return InProgress(_LOOK_AGAIN, STEP, self._data([], Accepted()), error.message)
            raise
        return self._answered(lot, accepted)

    def _some_gone(self, lot: list[str]) -> bool:
        """Whether an instance has disappeared since it was listed; the removal of the others is then requested without
        it."""
        fresh = listed_in(self._context, self._operation.spec.group, lot)
        return not all(lives(name, fresh) for name in lot)

    def _end(self, code: str = "") -> Outcome:
        gone = len(self._targets.instances) - len(self._refused) + len(self._targets.placeholders)
        facts: dict[str, str | int] = {"removed": gone, "group": self._operation.spec.group}
        if not self._refused:
            return Succeeded(facts)
        text = "; ".join(f"{name}: {why}" for name, why in sorted(self._refused.items()))
        return Failed("InvalidRequest", f"{self._operation.spec.group}: {text}", code, facts=facts)

    def _follow(self) -> Outcome:
        """Follow the activity while requested instances are still alive."""
        name = self._operation.status.data.get(ACTIVITY, "")
        found = self._context.api.activities(self._operation.spec.group, ids=[name]) if name else []
        asked = ", ".join(self._asked)
        if found and failed(found[0]):
            why = failure(found[0])
            text = f"{self._operation.spec.group}: {asked} could not be removed: {why.message}"
            return Failed(why.cls, text, why.code, facts={ACTIVITY: name})
        pause, data, _ = growing_wait(self._operation)
        if running(found):
            return InProgress(pause, STEP, data, f"scaling activity {name} removes {asked}")
        late = data.get(LATE, "") + "."
        if len(late) > _LATE_POLLS:
            text = f"{self._operation.spec.group}: ESS says that {asked} was removed and lists it still"
            return Failed("Unknown", text, facts={ACTIVITY: name})
        return InProgress(pause, STEP, {**data, LATE: late}, f"ESS has not begun to remove {asked}")

    def _permitted(self) -> None:
        """Raise InvalidRequest if the group must not be changed or would fall below its minimum.

        While an activity is running, the numbers may already include our own request. The removal is then retried
        (Conflict) instead of failed."""
        if reason := held(self._group):
            raise InvalidRequest(reason)
        if self._operation.spec.kind is OperationKind.DELETE_INSTANCES:
            return
        bounds = range_of(self._context.bounds(self._operation.spec.group), self._group)
        left = target_of(self._group) - max(0, len(self._living) - surplus(self._group))
        if left < bounds.min:
            self._context.check_idle(self._operation.spec.group)
            raise InvalidRequest(f"{self._operation.spec.group}: {left} would be below the minimum {bounds.min}")

    def _answered(self, lot: list[str], accepted: Accepted) -> Outcome:
        ignored = {each.instance_id: each for each in accepted.ignored_instances or () if each.instance_id in lot}
        for name, why in ignored.items():
            error = ProviderError(why.message, code=why.code)
            if is_busy(error):
                raise Conflict(f"{name}: {why.message or why.code}", code=why.code)
            if not is_gone(error):
                self._refused[name] = f"{why.code}: {why.message}" if why.message else why.code
        if ignored and all(name in self._refused for name in self._living):
            return self._end(next(iter(ignored.values())).code)
        return InProgress(_LOOK_AGAIN, STEP, self._data([name for name in lot if name not in self._refused], accepted))

    def _data(self, lot: list[str], accepted: Accepted) -> dict[str, str]:
        data = {ASKED: ",".join(lot), ACTIVITY: accepted.scaling_activity_id}
        refused = msgspec.json.encode(self._refused).decode() if self._refused else ""
        return {**data, REFUSED: refused} if refused else data


def _known(operation: Operation, key: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(operation.status.data.get(key) or "{}", type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeError):
        return {}
