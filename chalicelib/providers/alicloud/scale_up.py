"""TODO"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import takewhile

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.decoding import ScalingActivity, ScalingGroup
from chalicelib.providers.alicloud.error_mapping import is_denied, is_no_change
from chalicelib.providers.alicloud.node_groups import (
    created,
    failed,
    failure,
    metadata,
    occupied,
    of_operation,
    off,
    present,
    running,
    target_of,
)
from chalicelib.providers.alicloud.settings import AlicloudBounds, AlicloudSettings
from chalicelib.providers.cluster_nodes import Seen
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError, Unauthorized, Unknown

_TOKEN = 48  # digits; ESS accepts 64 characters


class AlicloudContext(msgspec.Struct, frozen=True):
    """joined: lists the cluster's current nodes; None if the cluster cannot be reached."""

    api: AlicloudApi
    settings: AlicloudSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def bounds(self, group: str) -> AlicloudBounds:
        """Return the policy's bounds of a group.

        Raises InvalidRequest for a group that the policy does not name, which must not be changed."""
        for each in self.settings.groups:
            if each.id == group:
                return each
        raise InvalidRequest(f"the policy names no scaling group {group}")

    def group(self, group: str) -> ScalingGroup:
        """Return the current scaling group; raises NotFound, and Unknown for a group that cannot be decoded."""
        found = self.api.groups([group]).get(group)
        if found is None:
            raise NotFound(f"there is no scaling group {group} in {self.settings.region}")
        if found.problem:
            raise Unknown(f"scaling group {group} {found.problem}")
        return found

    def check_idle(self, group: str) -> None:
        """Raise Conflict while an activity of the group is running, because the data just read may already be
        outdated."""
        if running(self.api.activities(group)):
            raise Conflict(f"{group}: a scaling activity is under way", code="ScalingActivityInProgress")


def client_token(operation: Operation, *parts: str) -> str:
    """Return the ClientToken of a request. It is stable per operation and request, so ESS executes the request once."""
    text = msgspec.json.encode([operation.spec.id, *parts])
    return f"outscaler-{hashlib.sha256(text).hexdigest()[:_TOKEN]}"


TOTAL_CAPACITY = "TotalCapacity"


def decrease_target(context: AlicloudContext, operation: Operation) -> Outcome:
    """Lower the desired capacity to to_size where no instance would have to go for it; raises ProviderError.

    A group without a desired capacity has a target equal to its instances, so there is never anything to lower.
    """
    if operation.spec.to_size < 0:
        raise InvalidRequest(f"{operation.spec.group}: {operation.spec.to_size} is not a valid size")
    context.bounds(operation.spec.group)
    group = context.group(operation.spec.group)
    size = target_of(group)
    if size <= operation.spec.to_size:
        return succeeded(operation)
    if not group.enable_desired_capacity:
        raise InvalidRequest(f"{operation.spec.group} has no desired capacity: its size is the {size} instances it has")
    if size != operation.spec.from_size:
        return other_size(operation, size)
    there = occupied(group, context.api.instances(operation.spec.group))
    if operation.spec.to_size < there:
        raise InvalidRequest(
            f"{operation.spec.group}: {operation.spec.to_size} is below the {there} instances that exist"
        )
    if operation.spec.to_size < group.min_size:
        raise InvalidRequest(
            f"{operation.spec.group}: {operation.spec.to_size} is below the group's MinSize {group.min_size}"
        )
    lower(context, operation, group, operation.spec.to_size)
    return succeeded(operation)


def lower(context: AlicloudContext, operation: Operation, group: ScalingGroup, size: int) -> None:
    """Set a lower desired capacity without a scaling activity. The caller has seen that no instance is above it; that
    holds only while nothing is under way, and where ESS does not cut the number down to a smaller maximum. Raises
    ProviderError, Conflict while something is."""
    if size > group.max_size:
        raise InvalidRequest(
            f"{operation.spec.group}: {size} is above the scaling group's MaxSize {group.max_size}, to "
            "which ESS would shrink it; raise MaxSize"
        )
    context.check_idle(operation.spec.group)
    token = client_token(operation, TOTAL_CAPACITY, str(size))
    try:
        context.api.scale(
            operation.spec.group, TOTAL_CAPACITY, size, token=token, at_once=False, metadata=metadata(operation.spec.id)
        )
    except ProviderError as error:
        if is_denied(error):
            context.api.set_desired(operation.spec.group, size)
        elif not is_no_change(error):
            raise


def other_size(operation: Operation, size: int) -> Failed:
    """Somebody else's number stands."""
    planned = f"from {operation.spec.from_size} to {operation.spec.to_size}"
    return Failed("Conflict", f"{operation.spec.group} has the size {size}, but {planned} was planned")


def succeeded(operation: Operation) -> Succeeded:
    """The outcome of an operation whose size is reached."""
    return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size})


ACTIVITY, POLLS = "activity", "polls"
BEFORE = "before"  # the newest activity before ModifyScalingGroup, "" if there was none
STEP = "activity"
_FIRST, _LONGEST, _PATIENCE = 5.0, 30.0, 600.0
_CHANGE = "QuantityChangeInCapacity"


def scale_up(context: AlicloudContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; idempotent. Raises ProviderError."""
    bounds = context.bounds(operation.spec.group)
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} does not increase the size")
    if operation.spec.to_size > bounds.max:
        raise InvalidRequest(
            f"{operation.spec.group}: {operation.spec.to_size} is above the policy's maximum {bounds.max}"
        )
    group = context.group(operation.spec.group)
    own = of_operation(context.api.activities(operation.spec.group), operation.spec.id)
    if own is not None:
        return _follow(context, operation, own)
    size = target_of(group)
    if size == operation.spec.to_size:
        return succeeded(operation)
    if size != operation.spec.from_size:
        return other_size(operation, size)
    _may_grow(group, operation)
    return _ask(context, operation, group)


def has_requested(context: AlicloudContext, operation: Operation) -> bool:
    """Return whether ESS knows the operation's activity, or the size is the requested one; raises ProviderError."""
    if of_operation(context.api.activities(operation.spec.group), operation.spec.id) is not None:
        return True
    return target_of(context.group(operation.spec.group)) == operation.spec.to_size


def poll_growth(context: AlicloudContext, operation: Operation) -> Outcome:
    """Report the activity's progress; raises ProviderError.

    If the activity is unknown, the scale-up is called again and finds it."""
    name, before = operation.status.data.get(ACTIVITY, ""), operation.status.data.get(BEFORE)
    if not name and before is None:
        return scale_up(context, operation)
    if name:
        found = context.api.activities(operation.spec.group, ids=[name])
    else:
        known = context.api.activities(operation.spec.group)
        found = list(takewhile(lambda each: each.scaling_activity_id != before, known))[-1:]
        if not found and present(context.group(operation.spec.group)) >= operation.spec.to_size:
            return succeeded(operation)
    outcome = _follow(context, operation, found[0] if found else ScalingActivity(scaling_activity_id=name))
    if before is not None and isinstance(outcome, Failed):
        _take_back(context, operation)
    return outcome


def growing_wait(operation: Operation) -> tuple[float, dict[str, str], bool]:
    """Return seconds until the next poll (5, 10, 20, then 30), the data that records it, and whether the limit is
    reached.

    Polls are counted because clocks of different functions may differ."""
    text = operation.status.data.get(POLLS, "")
    polls = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    waits = [min(_LONGEST, _FIRST * 2.0 ** min(n, 10)) for n in range(polls + 1)]
    return waits[-1], {**operation.status.data, POLLS: str(polls + 1)}, sum(waits[:-1]) >= _PATIENCE


def _may_grow(group: ScalingGroup, operation: Operation) -> None:
    """Raise if the group cannot reach that size, or if the new size is not larger than the number of existing
    instances.

    In the second case ESS is still removing instances, and the new size would make it continue."""
    if reason := off(group):
        raise InvalidRequest(reason)
    if operation.spec.to_size > group.max_size:
        raise InvalidRequest(
            f"{operation.spec.group}: {operation.spec.to_size} is above the scaling group's MaxSize {group.max_size}, "
            "at which ESS would cap it silently; raise MaxSize, or lower the policy's max"
        )
    if group.enable_desired_capacity and present(group) > operation.spec.to_size:
        raise Conflict(f"{operation.spec.group} still has {present(group)} instances, more than it is to have")


def _ask(context: AlicloudContext, operation: Operation, group: ScalingGroup) -> Outcome:
    desired = group.enable_desired_capacity
    kind = TOTAL_CAPACITY if desired else _CHANGE
    value = operation.spec.to_size if desired else operation.spec.to_size - operation.spec.from_size
    try:
        accepted = context.api.scale(
            operation.spec.group,
            kind,
            value,
            token=client_token(operation, kind, str(value)),
            at_once=desired,
            metadata=metadata(operation.spec.id),
        )
    except ProviderError as error:
        if is_denied(error):
            return _set_desired(context, operation, group, error)
        if not is_no_change(error):
            raise
        if target_of(context.group(operation.spec.group)) == operation.spec.to_size:
            return succeeded(operation)
        raise Conflict(f"{operation.spec.group} is still shrinking", code=error.code) from None
    known = {ACTIVITY: accepted.scaling_activity_id} if accepted.scaling_activity_id else {}
    return InProgress(_FIRST, STEP, known)


def _set_desired(
    context: AlicloudContext, operation: Operation, group: ScalingGroup, error: ProviderError
) -> InProgress:
    """Ask for the size with a right that Cluster Autoscaler's documentation lists. Raises Unauthorized for a group that
    has no desired capacity, and Conflict while an activity runs."""
    name, size = operation.spec.group, operation.spec.to_size
    if not group.enable_desired_capacity:
        text = "grant ess:ScaleWithAdjustment: without it a group that has no expected number of instances cannot grow"
        raise Unauthorized(f"{error.message}; {text}", code=error.code, request_id=error.request_id)
    before = context.api.activities(name)
    if running(before):
        raise Conflict(f"{name}: a scaling activity is under way", code="ScalingActivityInProgress")
    context.api.set_desired(name, size)
    return InProgress(_FIRST, STEP, {BEFORE: before[0].scaling_activity_id if before else ""})


def _take_back(context: AlicloudContext, operation: Operation) -> None:
    """Lower the desired capacity to what exists, if it is still the one that the operation has set. Raises
    ProviderError, Conflict while an activity runs."""
    group = context.group(operation.spec.group)
    if group.desired_capacity != operation.spec.to_size:
        return
    there = occupied(group, context.api.instances(operation.spec.group))
    goal = max(operation.spec.from_size, there, group.min_size)
    if goal < operation.spec.to_size:
        lower(context, operation, group, goal)


def _follow(context: AlicloudContext, operation: Operation, activity: ScalingActivity) -> Outcome:
    name, made, asked = (
        activity.scaling_activity_id,
        created(activity),
        operation.spec.to_size - operation.spec.from_size,
    )
    facts: dict[str, str | int] = {
        "from": operation.spec.from_size,
        "to": operation.spec.to_size,
        "created": made,
        ACTIVITY: name,
    }
    if not activity.over:
        pause, data, enough = growing_wait(operation)
        if enough:
            return Succeeded({**facts, "note": "the scaling activity is still running"})
        return InProgress(
            pause, STEP, {**data, ACTIVITY: name}, f"scaling activity {name} is {activity.progress}% done"
        )
    if failed(activity):
        why = failure(activity)
        some = f" ({made} of {asked} were created)" if made else ""
        return Failed(why.cls, f"{operation.spec.group}: {why.message}{some}", why.code, facts=facts)
    if made < asked and (most := context.group(operation.spec.group).max_size) < operation.spec.to_size:
        return Failed(
            "InvalidRequest",
            f"{operation.spec.group}: its MaxSize is {most} by now, so ESS created {made} of {asked}",
            "IncorrectCapacity.MaxSize",
            facts=facts,
        )
    return Succeeded(facts)
