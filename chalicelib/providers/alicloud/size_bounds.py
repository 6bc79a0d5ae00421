"""What a scaling group says of itself: how many it has, how many it wants, and whether it may be touched (§3.2, §5).

Upstream computed sizes from a count that left kinds of instances out, and then wrote them as absolute numbers: a
scale-up became a scale-in (defects 4 and 5). Here every kind that takes a place is counted, in one place.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.providers.alicloud.models import ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.settings import AlicloudBounds

LEAVING = frozenset({"Removing", "Removing:Wait"})
STOPPED = "Stopped"
_OUT, _IN = frozenset({"ScaleOut", "scale-out"}), frozenset({"ScaleIn", "scale-in"})


class AlicloudRange(msgspec.Struct, frozen=True):
    """The sizes a group may have. doubt: why they are not those of the policy; error: why there are none."""

    min: int
    max: int
    doubt: str = ""
    error: str = ""


def present(group: ScalingGroup) -> int:
    """Instances that are there or on their way, without those that leave or are stopped."""
    return (
        group.active_capacity
        + group.pending_capacity
        + group.pending_wait_capacity
        + group.init_capacity
        + group.protected_capacity
        + group.standby_capacity
    )


def target_of(group: ScalingGroup) -> int:
    """The size that ESS works towards: the desired capacity where the group has one, else what there is."""
    return group.desired_capacity if group.enable_desired_capacity else present(group)


def surplus(group: ScalingGroup) -> int:
    """Instances beyond the desired capacity: as many ESS will take away by itself, of its own choice."""
    return max(0, present(group) - group.desired_capacity) if group.enable_desired_capacity else 0


def occupied(group: ScalingGroup, instances: Iterable[ScalingInstance]) -> int:
    """The least size at which no existing instance would have to go, by the list or by the group's own count, whichever
    says more: the two are not read in one instant. Stopped instances count: ESS could take a running one for them."""
    listed = sum(each.lifecycle_state not in LEAVING for each in instances)
    return max(listed, present(group) + group.stopped_capacity)


def off(group: ScalingGroup) -> str:
    """Why the group takes no growth and no removal just now; empty where it does (defect 13, scenario 15)."""
    suspended = frozenset(group.suspended_processes or ())
    rows = (
        (bool(group.problem), group.problem),
        (group.group_type not in {"", "ECS"}, f"has machines of type {group.group_type}, which are no nodes; use ECS"),
        (group.lifecycle_state == "Deleting", "is being deleted; take it out of the policy"),
        (group.lifecycle_state not in {"", "Active"}, f"is {group.lifecycle_state}; enable it in Auto Scaling"),
        (group.system_suspended, "was suspended by Auto Scaling after many failures; mend its cause and resume it"),
        (
            any(each.weighted_capacity > 1 for each in group.launch_template_overrides or ()),
            "counts its instance types with weights, so that its capacity is no number of nodes; take the weights out",
        ),
        (bool(suspended & _OUT), "has its process ScaleOut suspended; resume it"),
    )
    text = next((text for applies, text in rows if applies), "")
    return f"scaling group {group.scaling_group_id} {text}" if text else ""


def held(group: ScalingGroup) -> str:
    """Why nothing may be removed from the group, empty where it may."""
    if frozenset(group.suspended_processes or ()) & _IN:
        return f"scaling group {group.scaling_group_id} has its process ScaleIn suspended; resume it"
    return ""


def range_of(bounds: AlicloudBounds, group: ScalingGroup) -> AlicloudRange:
    """The policy's bounds within the group's own, which ESS keeps to without a word (defect 17)."""
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
