"""Changes a group's size: one request with a token, whose activity is polled until it ends.

    own activity found ──────────────────────────────► poll it    (an earlier attempt reached ESS)
    target == to_size  ──────────────────────────────► done
    target neither from_size nor to_size ────────────► conflict, nothing is written
    target == from_size ─► check ─► write, with token ─► poll

    the activity is    then
    running            poll again with growing delay; after ten minutes the scale-up request's own timer takes over
    Successful         done; not if the group's maximum was lowered meanwhile and ESS has created fewer
    Failed, Rejected   failed, with the class of its code: missing stock or quota is known within a minute
    Warning            the same, with the instances that were created

For groups with a desired capacity the request is an absolute number. A failure leaves it in place, and placeholders
show the difference until the planner lowers it. For groups without one the request is the difference, so no count of
ours can reduce such a group.

A key with the rights that Cluster Autoscaler's documentation lists may not call ScaleWithAdjustment. The desired
capacity is then set by ModifyScalingGroup, which starts an activity without metadata: it is recognised as the first one
after the newest that existed before the change. As no later pass can recognise it, a failure takes the number back
here. A group without a desired capacity cannot grow with such a key.
"""

from __future__ import annotations

from itertools import takewhile

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.alicloud.context import AlicloudContext, client_token
from chalicelib.providers.alicloud.decrease_target import TOTAL_CAPACITY, lower, other_size, succeeded
from chalicelib.providers.alicloud.error_mapping import is_denied, is_no_change
from chalicelib.providers.alicloud.models import ScalingActivity, ScalingGroup
from chalicelib.providers.alicloud.scaling_activities import created, failed, failure, metadata, of_operation, running
from chalicelib.providers.alicloud.size_bounds import occupied, off, present, target_of
from chalicelib.providers.errors import Conflict, InvalidRequest, ProviderError, Unauthorized

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
