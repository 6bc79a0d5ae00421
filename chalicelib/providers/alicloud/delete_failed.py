"""Deletes instances that never became nodes; instances that have joined meanwhile are kept.

A failed creation leaves the desired capacity unchanged, and ESS would retry it forever. Deleting the placeholders
lowers the desired capacity to the number of existing instances (docs/reference/node-groups.md "Unregistered
instances").
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed
from chalicelib.providers.alicloud.context import AlicloudContext
from chalicelib.providers.alicloud.decrease_target import lower, other_size
from chalicelib.providers.alicloud.models import ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.size_bounds import occupied
from chalicelib.providers.alicloud.targets import AlicloudTargets


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
