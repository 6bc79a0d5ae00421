"""Computes a scaling group's current size, target, bounds and whether it can be changed.

Upstream left some kinds of instances out of its count and then wrote the result as an absolute number, so a scale-up
became a scale-in. Here every kind of instance that occupies capacity is counted in one place.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.policy.vendors.alicloud import AlicloudBounds
from chalicelib.providers.alicloud.models import ScalingGroup, ScalingInstance

LEAVING = frozenset({"Removing", "Removing:Wait"})
STOPPED = "Stopped"
_OUT, _IN = frozenset({"ScaleOut", "scale-out"}), frozenset({"ScaleIn", "scale-in"})


class AlicloudRange(msgspec.Struct, frozen=True):
    """The sizes a group may have. doubt: why they differ from the policy's; error: why there are none."""

    min: int
    max: int
    doubt: str = ""
    error: str = ""


def present(group: ScalingGroup) -> int:
    """Return the number of instances that exist or are being created, without leaving and stopped ones."""
    return (
        group.active_capacity
        + group.pending_capacity
        + group.pending_wait_capacity
        + group.init_capacity
        + group.protected_capacity
        + group.standby_capacity
    )


def target_of(group: ScalingGroup) -> int:
    """Return the size that ESS works towards: the desired capacity, or the current size if the group has none."""
    return group.desired_capacity if group.enable_desired_capacity else present(group)


def surplus(group: ScalingGroup) -> int:
    """Return the instances beyond the desired capacity, which ESS will remove on its own, choosing which."""
    return max(0, present(group) - group.desired_capacity) if group.enable_desired_capacity else 0


def occupied(group: ScalingGroup, instances: Iterable[ScalingInstance]) -> int:
    """Return the smallest size at which no existing instance has to be removed.

    The larger of the list and the group's own count is used, because the two are not read at one instant. Stopped
    instances count: ESS could remove a running one instead of them."""
    listed = sum(each.lifecycle_state not in LEAVING for each in instances)
    return max(listed, present(group) + group.stopped_capacity)


def off(group: ScalingGroup) -> str:
    """Return why the group can neither scale up nor remove now; empty if it can."""
    suspended = frozenset(group.suspended_processes or ())
    rows = (
        (bool(group.problem), group.problem),
        (group.group_type not in {"", "ECS"}, f"has machines of type {group.group_type}, which are not nodes; use ECS"),
        (group.lifecycle_state == "Deleting", "is being deleted; take it out of the policy"),
        (group.lifecycle_state not in {"", "Active"}, f"is {group.lifecycle_state}; enable it in Auto Scaling"),
        (group.system_suspended, "was suspended by Auto Scaling after many failures; fix the cause and resume it"),
        (
            any(each.weighted_capacity > 1 for each in group.launch_template_overrides or ()),
            "counts its instance types with weights, so its capacity is not a number of nodes; remove the weights",
        ),
        (bool(suspended & _OUT), "has its process ScaleOut suspended; resume it"),
    )
    text = next((text for applies, text in rows if applies), "")
    return f"scaling group {group.scaling_group_id} {text}" if text else ""


def held(group: ScalingGroup) -> str:
    """Return why nothing may be removed from the group; empty if removal is allowed."""
    if frozenset(group.suspended_processes or ()) & _IN:
        return f"scaling group {group.scaling_group_id} has its process ScaleIn suspended; resume it"
    return ""


def range_of(bounds: AlicloudBounds, group: ScalingGroup) -> AlicloudRange:
    """Return the policy's bounds limited to the group's own bounds, which ESS enforces without an error."""
    least, most = max(bounds.min, group.min_size), min(bounds.max, group.max_size)
    if least > most:
        return AlicloudRange(
            bounds.min,
            bounds.max,
            error=(
                f"scaling group {bounds.id} allows {group.min_size} to {group.max_size} instances and the policy "
                f"{bounds.min} to {bounds.max}, which have no size in common; change one of the two"
            ),
        )
    differ = [
        f"{word} {ours} is {theirs} there"
        for word, ours, theirs in (("min", bounds.min, least), ("max", bounds.max, most))
        if ours != theirs
    ]
    doubt = f"the scaling group's own bounds are narrower: {', '.join(differ)}; change one of the two" if differ else ""
    return AlicloudRange(least, most, doubt)
