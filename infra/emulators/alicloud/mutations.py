"""The requests that change a scaling group, with all checks of ESS before it accepts them.

An accepted request may still fail; its activity reports that (simulation.py). A repeated request
with the same ClientToken and parameters gets the same response and has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from infra.emulators.alicloud import simulation
from infra.emulators.alicloud.account import AlicloudCloud
from infra.emulators.alicloud.errors import AlicloudRefusedError
from infra.emulators.alicloud.models import GONE_SOON, AlicloudGroup

Json = dict[str, Any]
MOST_REMOVED = 20
_TOKEN_SECONDS = 24 * 3600.0
_MOST_AT_ONCE = 1000
_RANGES: Mapping[str, tuple[int, int]] = {
    "QuantityChangeInCapacity": (-1000, 1000),
    "PercentChangeInCapacity": (-100, 10000),
    "TotalCapacity": (0, 2000),
}


class Adjustment(msgspec.Struct, frozen=True):
    """Parameters of ScaleWithAdjustment."""

    group: str
    kind: str
    value: int
    at_once: bool = False
    metadata: str = ""
    plan_only: bool = False


class Removal(msgspec.Struct, frozen=True):
    """Parameters of RemoveInstances."""

    group: str
    instances: tuple[str, ...]
    decrease: bool = True
    ignore_invalid: bool = False
    recycle: bool = False


class AlicloudMutations:
    """Accepts change requests for one account and remembers their tokens."""

    def __init__(self, cloud: AlicloudCloud) -> None:
        self._cloud = cloud
        self._given: dict[str, tuple[float, object, Json]] = {}

    def once(self, token: str, order: object, carry_out: Callable[[], Json]) -> Json:
        """Execute the request once per token and return the result of its first execution.
        Token "": always execute."""
        if not token:
            return carry_out()
        if len(token) > 64 or not token.isascii():
            raise AlicloudRefusedError(
                "InvalidParameter", "ClientToken: at most 64 ASCII characters"
            )
        now = self._cloud.clock()
        at, before, answer = self._given.get(token, (0.0, None, {}))
        if before is not None and now - at < _TOKEN_SECONDS:
            if before != order:
                raise AlicloudRefusedError(
                    "IdempotentParameterMismatch", "the token was used with other parameters"
                )
            return answer
        answer = carry_out()
        self._given[token] = (now, order, answer)
        return answer

    def adjust(self, order: Adjustment) -> Json:
        """Execute ScaleWithAdjustment."""
        least, most = _RANGES.get(order.kind, (1, 0))
        if not least <= order.value <= most:
            raise AlicloudRefusedError(
                "InvalidParameter",
                f"AdjustmentType {order.kind} with AdjustmentValue {order.value}",
            )
        group = self._ready(order.group)
        base = group.total if group.desired is None else group.desired
        asked = {
            "TotalCapacity": order.value,
            "QuantityChangeInCapacity": base + order.value,
            "PercentChangeInCapacity": base + round(base * order.value / 100),
        }[order.kind]
        wanted = min(max(asked, group.min), group.max)
        if abs(wanted - base) > _MOST_AT_ONCE:
            raise AlicloudRefusedError(
                "InvalidParameter", f"more than {_MOST_AT_ONCE} instances in one step"
            )
        if order.plan_only:
            return {"PlanResult": {"ResourceAllocations": []}}
        if group.desired is not None and not order.at_once:
            return self._wish(group, wanted)
        if wanted == group.total and wanted == base:
            raise _no_change(asked, wanted, base)
        return self._carry_out(group, wanted, order.metadata)

    def _wish(self, group: AlicloudGroup, wanted: int) -> Json:
        """Change only the desired capacity; ESS adjusts the machines at its next check."""
        if wanted == group.desired:
            raise _no_change(wanted, wanted, wanted)
        group.desired = wanted
        group.check_at = self._cloud.clock() + self._cloud.times.check
        return {"ActivityType": "CapacityChange"}

    def _carry_out(self, group: AlicloudGroup, wanted: int, metadata: str) -> Json:
        now, total = self._cloud.clock(), group.total
        if group.desired is not None:
            group.desired = wanted
            if wanted == total:
                return {"ActivityType": "CapacityChange"}
        cause = f"A user changed the capacity from {total} to {wanted}."
        if wanted > total:
            made = simulation.grow(
                self._cloud, group, wanted - total, now, cause, metadata=metadata
            )
        else:
            chosen = simulation.victims(group, total - wanted)
            made = simulation.shrink(self._cloud, group, chosen, now, cause, metadata=metadata)
        return {"ScalingActivityId": made.id, "ActivityType": "ScalingActivity"}

    def modify(self, id_: str, desired: int) -> Json:
        """Execute ModifyScalingGroup for the desired capacity. ESS then compares the group with it,
        and the activity that follows is its own; without a token, a repeated request is a new one.
        An activity may be running."""
        group = self._group(id_)
        if group.state not in ("Active", "Inactive"):
            raise AlicloudRefusedError(
                "IncorrectScalingGroupStatus", f"the scaling group {id_} is {group.state}"
            )
        if group.desired is None or not group.min <= desired <= group.max:
            raise AlicloudRefusedError("InvalidParameter", f"DesiredCapacity {desired}")
        group.desired, group.check_at = desired, self._cloud.clock()
        return {}

    def remove(self, order: Removal) -> Json:
        """Execute RemoveInstances."""
        if not 1 <= len(order.instances) <= MOST_REMOVED:
            raise AlicloudRefusedError(
                "InvalidParameter", f"InstanceIds: 1 to {MOST_REMOVED} of them"
            )
        group = self._ready(order.group)
        invalid = [_problem(group, each) for each in order.instances]
        bad = [each for each in invalid if each is not None]
        good = list(
            dict.fromkeys(
                each for each, why in zip(order.instances, invalid, strict=True) if why is None
            )
        )
        if bad and not (order.ignore_invalid and (good or self._cloud.takes_empty_removals)):
            raise AlicloudRefusedError(bad[0]["Code"], bad[0]["Message"])
        if group.total - len(good) < group.min:
            raise AlicloudRefusedError(
                "IncorrectCapacity.MinSize",
                f"the group would have fewer than {group.min} instances",
            )
        if group.desired is not None and order.decrease:
            group.desired = max(group.min, group.desired - len(good))
        made = simulation.shrink(
            self._cloud,
            group,
            good,
            self._cloud.clock(),
            "A user removed instances.",
            ignored=len(bad),
            keeps=order.recycle,
        )
        return {"ScalingActivityId": made.id, **({"IgnoredInstances": bad} if bad else {})}

    def _group(self, id_: str) -> AlicloudGroup:
        group = self._cloud.groups.get(id_)
        if group is None:
            raise AlicloudRefusedError(
                "InvalidScalingGroupId.NotFound", f"the scaling group {id_} does not exist"
            )
        return group

    def _ready(self, id_: str) -> AlicloudGroup:
        group = self._group(id_)
        if group.state != "Active" or group.system_suspended:
            raise AlicloudRefusedError(
                "IncorrectScalingGroupStatus", f"the scaling group {id_} is not active"
            )
        if group.running is not None:
            raise AlicloudRefusedError(
                "ScalingActivityInProgress", f"a scaling activity of {id_} is in progress"
            )
        return group


def _no_change(asked: int, wanted: int, base: int) -> AlicloudRefusedError:
    if asked > wanted:
        return AlicloudRefusedError(
            "IncorrectCapacity.MaxSize", "the group has its maximum of instances"
        )
    if asked < wanted:
        return AlicloudRefusedError(
            "IncorrectCapacity.MinSize", "the group has its minimum of instances"
        )
    return AlicloudRefusedError("IncorrectCapacity.NoChange", f"the capacity is {base} already")


def _problem(group: AlicloudGroup, id_: str) -> Json | None:
    """Return why an instance cannot be removed, as in IgnoredInstances."""
    machine = group.machines.get(id_)
    if machine is None:
        return {
            "InstanceId": id_,
            "Code": "InvalidInstanceId.NotFound",
            "Message": f"the instance {id_} does not exist in the scaling group",
        }
    if machine.state == "Protected" or machine.state in GONE_SOON:
        return {
            "InstanceId": id_,
            "Code": "IncorrectInstanceStatus",
            "Message": f"the instance {id_} is {machine.state}",
        }
    if machine.health == "Locked":
        return {
            "InstanceId": id_,
            "Code": "OperationDenied.Locked",
            "Message": f"the instance {id_} is locked",
        }
    return None
