"""Decrease of a scaling group's desired capacity where no instance has to go for it.

A group without a desired capacity wants the instances that it has, so there is never anything to lower.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Outcome, Succeeded
from chalicelib.providers.alicloud.context import AlicloudContext, client_token
from chalicelib.providers.alicloud.error_mapping import is_denied, is_no_change
from chalicelib.providers.alicloud.models import ScalingGroup
from chalicelib.providers.alicloud.scaling_activities import metadata
from chalicelib.providers.alicloud.size_bounds import occupied, target_of
from chalicelib.providers.errors import InvalidRequest, ProviderError

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
