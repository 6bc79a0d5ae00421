"""Scales up: one request with a token, whose activity is polled until it ends;
and what all changes share.

    own activity found ──────────────────────────────► poll it    (an earlier attempt reached ESS)
    target == to_size  ──────────────────────────────► done
    target neither from_size nor to_size ────────────► conflict, nothing is written
    target == from_size ─► check ─► write, with token ─► poll

    the activity is    then
    running            poll again with growing delay; after ten minutes the scale-up
                       request's own timer takes over
    Successful         done; not if the group's maximum was lowered meanwhile
                       and ESS has created fewer
    Failed, Rejected   failed, with the class of its code: missing stock or quota
                       is known within a minute
    Warning            the same, with the instances that were created

For groups with a desired capacity the request is an absolute number. A failure leaves it in place,
and placeholders show the difference until the planner lowers it. For groups without one the request
is the difference, so no count of ours can reduce such a group.

A key with the rights that Cluster Autoscaler's documentation lists may not call
ScaleWithAdjustment. The desired capacity is then set by ModifyScalingGroup, which starts an
activity without metadata: it is recognised as the first one after the newest that existed before
the change. As no later pass can recognise it, a failure takes the number back here. A group without
a desired capacity cannot grow with such a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from itertools import takewhile

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.policy.vendors.alicloud import AlicloudBounds
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.decoding import (
    ScalingActivity,
    ScalingGroup,
    ScalingInstance,
)
from chalicelib.providers.alicloud.error_mapping import is_denied, is_no_change
from chalicelib.providers.alicloud.node_groups import (
    created,
    failed,
    failure,
    metadata,
    no_scale_up,
    occupied,
    of_operation,
    present,
    running,
    target_of,
)
from chalicelib.providers.alicloud.settings import AlicloudSettings
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    Unauthorized,
    Unknown,
)
from chalicelib.providers.kit.node_identity import Seen
from chalicelib.providers.kit.sized_group import (
    Floor,
    Polls,
    SizedGroup,
    changed_size,
    check_sizes,
    lower_towards,
    other_size,
)

ACTIVITY = "activity"  # of the operation's data: the id of the activity that is followed
BEFORE = "before"  # the newest activity before ModifyScalingGroup, "" if there was none
_TOTAL, _CHANGE = "TotalCapacity", "QuantityChangeInCapacity"
FOLLOWING = Polls("activity", first=5.0, growth=2.0, longest=30.0)
_PATIENCE = 600.0  # seconds
_TOKEN = 48  # digits; ESS accepts 64 characters


class AlicloudContext(msgspec.Struct, frozen=True):
    """What all changes need. joined: lists the cluster's current nodes; None if the
    cluster cannot be reached."""

    api: AlicloudApi
    settings: AlicloudSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def bounds(self, group: str) -> AlicloudBounds:
        """Return the policy's bounds of a group. Raises InvalidRequest for a group that the policy
        does not name, which must not be changed."""
        for bounds in self.settings.groups:
            if bounds.id == group:
                return bounds
        raise InvalidRequest(f"the policy names no scaling group {group}")

    def group(self, name: str) -> ScalingGroup:
        """Return the current scaling group; raises NotFound, and Unknown for a
        group that cannot be decoded."""
        group = self.api.groups([name]).get(name)
        if group is None:
            raise NotFound(f"there is no scaling group {name} in {self.settings.region}")
        if group.problem:
            raise Unknown(f"scaling group {name} {group.problem}")
        return group

    def check_idle(self, group: str) -> list[ScalingActivity]:
        """Return the newest activities; raises Conflict while one of them is running, because the
        data just read may already be outdated."""
        activities = self.api.activities(group)
        if running(activities):
            raise Conflict(
                f"{group}: a scaling activity is under way", code="ScalingActivityInProgress"
            )
        return activities


def client_token(operation: Operation, *parts: str) -> str:
    """Return the ClientToken of a request. It is stable per operation and request, so ESS
    executes the request once."""
    text = msgspec.json.encode([operation.spec.id, *parts])
    return f"outscaler-{hashlib.sha256(text).hexdigest()[:_TOKEN]}"


def _lower(context: AlicloudContext, operation: Operation, group: ScalingGroup, size: int) -> None:
    """Set a lower desired capacity without a scaling activity. The caller has seen that no instance
    is above it; that holds only while nothing is under way, and where ESS does not cut the number
    down to a smaller maximum. Raises ProviderError, Conflict while something is."""
    name = operation.spec.group
    if size > group.max_size:
        raise InvalidRequest(
            f"{name}: {size} is above the scaling group's MaxSize {group.max_size}, to "
            "which ESS would shrink it; raise MaxSize"
        )
    context.check_idle(name)
    token = client_token(operation, _TOTAL, str(size))
    try:
        context.api.scale(
            name, _TOTAL, size, token=token, at_once=False, metadata=metadata(operation.spec.id)
        )
    except ProviderError as error:
        if is_denied(error):
            context.api.set_desired(name, size)
        elif not is_no_change(error):
            raise


def sized_group(
    context: AlicloudContext,
    operation: Operation,
    group: ScalingGroup,
    instances: Callable[[], Iterable[ScalingInstance]],
) -> SizedGroup:
    """Return the size of a group that has a desired capacity, and how it is lowered. instances: all
    of the group."""

    def floors() -> tuple[Floor, ...]:
        existing = occupied(group, instances())
        return (
            Floor(existing, f"the {existing} instances that exist"),
            Floor(group.min_size, f"the group's MinSize {group.min_size}"),
        )

    return SizedGroup(
        operation.spec.group,
        group.desired_capacity,
        floors,
        lambda size: _lower(context, operation, group, size),
    )


# -- scale-up


def scale_up(context: AlicloudContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; idempotent. Raises ProviderError."""
    name, from_size, to_size = (
        operation.spec.group,
        operation.spec.from_size,
        operation.spec.to_size,
    )
    bounds = context.bounds(name)
    check_sizes(operation)
    if to_size > bounds.max:
        raise InvalidRequest(f"{name}: {to_size} is above the policy's maximum {bounds.max}")
    group = context.group(name)
    activity = of_operation(context.api.activities(name), operation.spec.id)
    if activity is not None:
        return _progress(context, operation, activity)
    size = target_of(group)
    if size == to_size:
        return changed_size(operation)
    if size != from_size:
        return other_size(operation, name, size)
    if reason := no_scale_up(group):
        raise InvalidRequest(reason)
    if to_size > group.max_size:
        raise InvalidRequest(
            f"{name}: {to_size} is above the scaling group's MaxSize {group.max_size}, "
            "at which ESS would cap it silently; raise MaxSize, or lower the policy's max"
        )
    if group.enable_desired_capacity and present(group) > to_size:
        # ESS is still removing instances, and the new size would make it continue.
        raise Conflict(f"{name} still has {present(group)} instances, more than it is to have")
    return _request(context, operation, group)


def has_requested(context: AlicloudContext, operation: Operation) -> bool:
    """Return whether ESS knows the operation's activity, or the size is the requested
    one; raises ProviderError."""
    if of_operation(context.api.activities(operation.spec.group), operation.spec.id) is not None:
        return True
    return target_of(context.group(operation.spec.group)) == operation.spec.to_size


def poll_growth(context: AlicloudContext, operation: Operation) -> Outcome:
    """Report the activity's progress; raises ProviderError. If the activity is unknown, the
    scale-up is called again and finds it."""
    name, before = operation.status.data.get(ACTIVITY, ""), operation.status.data.get(BEFORE)
    if not name and before is None:
        return scale_up(context, operation)
    if name:
        activities = context.api.activities(operation.spec.group, ids=[name])
    else:
        newest = context.api.activities(operation.spec.group)
        activities = list(
            takewhile(lambda activity: activity.scaling_activity_id != before, newest)
        )[-1:]
        if (
            not activities
            and present(context.group(operation.spec.group)) >= operation.spec.to_size
        ):
            return changed_size(operation)
    activity = activities[0] if activities else ScalingActivity(scaling_activity_id=name)
    outcome = _progress(context, operation, activity)
    if before is not None and isinstance(outcome, Failed):
        _take_back(context, operation)
    return outcome


def _request(context: AlicloudContext, operation: Operation, group: ScalingGroup) -> Outcome:
    name, to_size = operation.spec.group, operation.spec.to_size
    desired = group.enable_desired_capacity
    kind, value = (_TOTAL, to_size) if desired else (_CHANGE, to_size - operation.spec.from_size)
    token = client_token(operation, kind, str(value))
    try:
        accepted = context.api.scale(
            name, kind, value, token=token, at_once=desired, metadata=metadata(operation.spec.id)
        )
    except ProviderError as error:
        if is_denied(error):
            return _set_desired(context, operation, group, error)
        if not is_no_change(error):
            raise
        if target_of(context.group(name)) == to_size:
            return changed_size(operation)
        raise Conflict(f"{name} is still shrinking", code=error.code) from None
    return FOLLOWING.begin(
        {ACTIVITY: accepted.scaling_activity_id} if accepted.scaling_activity_id else {},
    )


def _set_desired(
    context: AlicloudContext, operation: Operation, group: ScalingGroup, error: ProviderError
) -> InProgress:
    """Ask for the size with a right that Cluster Autoscaler's documentation lists. Raises
    Unauthorized for a group that has no desired capacity, and Conflict while an activity runs."""
    if not group.enable_desired_capacity:
        text = (
            "grant ess:ScaleWithAdjustment: without it a group that has no expected number of "
            "instances cannot grow"
        )
        raise Unauthorized(f"{error.message}; {text}", code=error.code, request_id=error.request_id)
    before = context.check_idle(operation.spec.group)
    context.api.set_desired(operation.spec.group, operation.spec.to_size)
    return FOLLOWING.begin({BEFORE: before[0].scaling_activity_id if before else ""})


def _take_back(context: AlicloudContext, operation: Operation) -> None:
    """Lower the desired capacity to what exists, if it is still the one that the operation has set.
    Raises ProviderError, Conflict while an activity runs."""
    group = context.group(operation.spec.group)
    if group.desired_capacity != operation.spec.to_size:
        return
    name = operation.spec.group
    group_size = sized_group(context, operation, group, lambda: context.api.instances(name))
    lower_towards(operation.spec.from_size, group_size)


def _progress(context: AlicloudContext, operation: Operation, activity: ScalingActivity) -> Outcome:
    group, name = operation.spec.group, activity.scaling_activity_id
    count, requested = created(activity), operation.spec.to_size - operation.spec.from_size
    facts: dict[str, str | int] = {
        "from": operation.spec.from_size,
        "to": operation.spec.to_size,
        "created": count,
        ACTIVITY: name,
    }
    if not activity.over:
        if FOLLOWING.have_taken(operation, _PATIENCE):
            return Succeeded({**facts, "note": "the scaling activity is still running"})
        note = f"scaling activity {name} is {activity.progress}% done"
        return FOLLOWING.later(operation, note, data={ACTIVITY: name})
    if failed(activity):
        why = failure(activity)
        some = f" ({count} of {requested} were created)" if count else ""
        return Failed(why.cls, f"{group}: {why.message}{some}", why.code, facts=facts)
    if count < requested and (most := context.group(group).max_size) < operation.spec.to_size:
        text = f"{group}: its MaxSize is {most} by now, so ESS created {count} of {requested}"
        return Failed("InvalidRequest", text, "IncorrectCapacity.MaxSize", facts=facts)
    return Succeeded(facts)
