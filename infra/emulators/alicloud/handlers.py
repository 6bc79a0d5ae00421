"""The API's actions: map parameters to a response in the form of the newest version (`older` in
serializers.py makes the older form).

Each checks its parameters as the vendor does: page sizes, numbers of ids, filters
that exclude each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from infra.emulators.alicloud.account import AlicloudCloud
from infra.emulators.alicloud.errors import AlicloudRefusedError
from infra.emulators.alicloud.models import AlicloudGroup, AlicloudMachine
from infra.emulators.alicloud.mutations import Adjustment, AlicloudMutations, Removal
from infra.emulators.alicloud.serializers import (
    RECYCLING,
    activity_json,
    advice_json,
    configuration_json,
    group_json,
    instance_json,
    instance_status,
    machine_json,
    price_json,
    template_json,
    type_json,
)

Json = dict[str, Any]
T = TypeVar("T")
OLD, NEW = "2014-08-28", "2022-02-22"
ECS, STS, VPC = "2014-05-26", "2015-04-01", "2016-04-28"


class Sent(msgspec.Struct, frozen=True):
    """The version and parameters of a call."""

    version: str
    values: Mapping[str, str]

    def text(self, name: str) -> str:
        """Return a parameter, "" if absent."""
        return self.values.get(name, "")

    def must(self, name: str) -> str:
        """Return a mandatory parameter. Raises Refused if it is absent."""
        if not self.values.get(name):
            raise AlicloudRefusedError(f"Missing{name}", f"{name} is mandatory for this action.")
        return self.values[name]

    def number(self, name: str, default: int) -> int:
        """Return an integer parameter."""
        text = self.values.get(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise AlicloudRefusedError(
                "InvalidParameter", f"{name}={text!r} is no integer"
            ) from None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean parameter, in any letter case."""
        text = self.values.get(name, str(default)).lower()
        if text not in {"true", "false"}:
            raise AlicloudRefusedError(
                "InvalidParameter", f"{name}={text!r} is neither true nor false"
            )
        return text == "true"

    def many(self, name: str, most: int) -> tuple[str, ...]:
        """Return a list `Name.1`, `Name.2`. The old version of ESS uses singular names. Raises
        Refused if there are too many."""
        singular = name.removesuffix("s") if self.version == OLD else name
        found = sorted(
            (int(key.removeprefix(f"{singular}.")), value)
            for key, value in self.values.items()
            if key.startswith(f"{singular}.") and key.removeprefix(f"{singular}.").isdigit()
        )
        if len(found) > most:
            raise AlicloudRefusedError("InvalidParameter", f"{singular}: at most {most} at once")
        return tuple(value for _, value in found)


def _page(
    sent: Sent, name: str, found: Sequence[T], shape: Callable[[T], Json], most: int = 50
) -> Json:
    number, size = sent.number("PageNumber", 1), sent.number("PageSize", 10)
    if number < 1 or not 1 <= size <= most:
        raise AlicloudRefusedError(
            "InvalidParameter",
            f"PageNumber={number} PageSize={size}: at least 1, at most {most} on a page",
        )
    part = found[(number - 1) * size : number * size]
    return {
        "TotalCount": len(found),
        "PageNumber": number,
        "PageSize": size,
        name: [shape(each) for each in part],
    }


def _json_list(sent: Sent, name: str) -> frozenset[str] | None:
    """Return a list of at most 100 texts that is sent as JSON; None if it is
    absent, which is no filter."""
    if not sent.text(name):
        return None
    try:
        names = msgspec.json.decode(sent.text(name), type=list[str])
    except msgspec.MsgspecError:
        names = [""] * 101
    if len(names) > 100:
        raise AlicloudRefusedError("InvalidParameter", f"{name}: a JSON list of at most 100 texts")
    return frozenset(names)


class AlicloudHandlers:
    """The actions of one account."""

    def __init__(self, cloud: AlicloudCloud) -> None:
        self._cloud, self._orders = cloud, AlicloudMutations(cloud)
        ess: dict[str, Callable[[Sent], Json]] = {
            "DescribeScalingGroups": self._groups,
            "DescribeScalingInstances": self._instances,
            "DescribeScalingConfigurations": self._configurations,
            "DescribeScalingActivities": self._activities,
            "ScaleWithAdjustment": self._adjust,
            "ModifyScalingGroup": self._modify,
            "RemoveInstances": self._remove,
        }
        self._table: Mapping[str, Mapping[str, Callable[[Sent], Json]]] = MappingProxyType(
            {
                OLD: ess,
                NEW: ess,
                ECS: {
                    "DescribeInstanceTypes": self._types,
                    "DescribeLaunchTemplateVersions": self._templates,
                    "DescribePrice": self._price,
                    "DescribeInstances": self._ecs_instances,
                    "DescribeSpotAdvice": self._advice,
                    "RebootInstance": self._reboot,
                },
                VPC: {"DescribeVSwitches": self._switches},
            }
        )

    def find(self, version: str, action: str) -> Callable[[Sent], Json]:
        """Return an action. Raises Refused if the product does not have it in that version."""
        found = self._table.get(version, {}).get(action)
        if found is None:
            raise AlicloudRefusedError(
                "InvalidAction.NotFound", f"Specified api is not found: {action} of {version}"
            )
        return found

    def _here(self, sent: Sent) -> list[AlicloudGroup]:
        """Return the groups of the requested region. For another region the vendor
        returns no groups and no error."""
        return (
            list(self._cloud.shown().values())
            if sent.must("RegionId") == self._cloud.region
            else []
        )

    def _groups(self, sent: Sent) -> Json:
        ids, found = sent.many("ScalingGroupIds", 20), self._here(sent)
        if ids:
            found = [each for each in found if each.id in ids and not self._hidden(each)]
        return _page(sent, "ScalingGroups", found, group_json)

    def _hidden(self, group: AlicloudGroup) -> bool:
        return self._cloud.hides_inactive and group.state == "Inactive"

    def _instances(self, sent: Sent) -> Json:
        group, ids = sent.text("ScalingGroupId"), sent.many("InstanceIds", 20)
        states, activity = sent.many("LifecycleStates", 20), sent.text("ScalingActivityId")
        found = [
            (held, machine)
            for held in self._here(sent)
            if group in ("", held.id)
            for machine in held.machines.values()
            if (not ids or machine.id in ids)
            and (not states or machine.state in states)
            and (not activity or machine.activity == activity)
        ]

        def shape(entry: tuple[AlicloudGroup, AlicloudMachine]) -> Json:
            return machine_json(entry[1], entry[0].template)

        return _page(sent, "ScalingInstances", found, shape, 50 if sent.version == OLD else 100)

    def _configurations(self, sent: Sent) -> Json:
        group, ids = sent.text("ScalingGroupId"), sent.many("ScalingConfigurationIds", 10)
        here = self._cloud.groups if sent.must("RegionId") == self._cloud.region else {}
        found = [
            each
            for each in self._cloud.configurations.values()
            if each.group in here and group in ("", each.group) and (not ids or each.id in ids)
        ]
        return _page(sent, "ScalingConfigurations", found, configuration_json)

    def _activities(self, sent: Sent) -> Json:
        group, ids, status = (
            sent.text("ScalingGroupId"),
            sent.many("ScalingActivityIds", 20),
            sent.text("StatusCode"),
        )
        if bool(group) == bool(ids):
            raise AlicloudRefusedError(
                "InvalidParameter", "either ScalingGroupId or ScalingActivityIds must be given"
            )
        here = self._cloud.groups.values() if sent.must("RegionId") == self._cloud.region else ()
        found = [
            each
            for held in here
            if group in ("", held.id)
            for each in held.activities
            if (not ids or each.id in ids) and status in ("", each.status)
        ]
        return _page(sent, "ScalingActivities", found[::-1], activity_json)

    def _adjust(self, sent: Sent) -> Json:
        mode = sent.text("ExecutionMode") or "None"
        order = Adjustment(
            sent.must("ScalingGroupId"),
            sent.must("AdjustmentType"),
            (sent.must("AdjustmentValue"), sent.number("AdjustmentValue", 0))[1],
            sent.flag("SyncActivity"),
            sent.text("ActivityMetadata"),
            mode == "PlanOnly",
        )
        return self._orders.once(
            sent.text("ClientToken"), order, lambda: self._orders.adjust(order)
        )

    def _modify(self, sent: Sent) -> Json:
        sent.must("DesiredCapacity")  # the only attribute that is emulated
        return self._orders.modify(sent.must("ScalingGroupId"), sent.number("DesiredCapacity", 0))

    def _remove(self, sent: Sent) -> Json:
        order = Removal(
            sent.must("ScalingGroupId"),
            sent.many("InstanceIds", 20),
            sent.flag("DecreaseDesiredCapacity", default=True),
            sent.flag("IgnoreInvalidInstance"),
            sent.text("RemovePolicy") == "recycle",
        )
        return self._orders.once(
            sent.text("ClientToken"), order, lambda: self._orders.remove(order)
        )

    def _types(self, sent: Sent) -> Json:
        # RegionId is missing in the current API model, but clients send it
        names = sent.many("InstanceTypes", 10)
        known = [kind for kind in self._cloud.types.values() if not names or kind.id in names]
        most, start = (
            sent.number("MaxResults", 1600),
            sent.number("NextToken", 0) if sent.text("NextToken") else 0,
        )
        if not 1 <= most <= 1600:
            raise AlicloudRefusedError("InvalidParameter", f"MaxResults={most}: 1 to 1600")
        more = str(start + most) if start + most < len(known) else ""
        return {
            "InstanceTypes": {
                "InstanceType": [type_json(each) for each in known[start : start + most]]
            },
            "NextToken": more,
        }

    def _switches(self, sent: Sent) -> Json:
        here = sent.must("RegionId") == self._cloud.region
        zones = (
            sorted({zone for group in self._cloud.groups.values() for zone in group.zones})
            if here
            else []
        )
        wanted = sent.text("VSwitchId")
        listed = [
            {"VSwitchId": f"vsw-{zone}", "ZoneId": zone, "Status": "Available"}
            for zone in zones
            if wanted in ("", f"vsw-{zone}")
        ]
        return {
            "TotalCount": len(listed),
            "PageNumber": 1,
            "PageSize": 10,
            "VSwitches": {"VSwitch": listed[:10]},
        }

    def _price(self, sent: Sent) -> Json:
        if sent.text("ResourceType") not in ("", "instance") or sent.text("PriceUnit") not in (
            "",
            "Hour",
        ):
            raise AlicloudRefusedError(
                "InvalidParameter", "only hourly prices of instances are emulated"
            )
        sent.must("RegionId")
        name, strategy = sent.must("InstanceType"), sent.text("SpotStrategy") or "NoSpot"
        if name not in self._cloud.types:
            raise AlicloudRefusedError(
                "InvalidInstanceType.ValueNotSupported", f"InstanceType={name} is not supported"
            )
        if strategy not in ("NoSpot", "SpotWithPriceLimit", "SpotAsPriceGo"):
            raise AlicloudRefusedError("InvalidParameter", f"SpotStrategy={strategy} is not valid")
        if self._cloud.price_answer is not None:
            return {"PriceInfo": self._cloud.price_answer}
        return price_json(
            self._cloud.price(name, spot=strategy != "NoSpot", zone=sent.text("ZoneId")),
            self._cloud.currency,
        )

    def _ecs_instances(self, sent: Sent) -> Json:
        """Execute DescribeInstances for the machines of scaling groups, the
        only ones of the account."""
        now, reason, ids = (
            self._cloud.clock(),
            sent.text("LockReason"),
            _json_list(sent, "InstanceIds"),
        )
        here = self._cloud.machines() if sent.must("RegionId") == self._cloud.region else []
        found = [
            instance_json(machine, self._cloud.region, now)
            for machine in here
            if not machine.released
            and (ids is None or machine.id in ids)
            and (not reason or (machine.announced and reason == RECYCLING))
        ]
        if sent.flag("DryRun"):
            raise AlicloudRefusedError(
                "DryRunOperation", "Request validation has been passed with DryRun flag set."
            )
        most, start = (
            sent.number("MaxResults", 10),
            sent.number("NextToken", 0) if sent.text("NextToken") else 0,
        )
        most = min(100, max(10, most))
        more = str(start + most) if start + most < len(found) else ""
        return {
            "Instances": {"Instance": found[start : start + most]},
            "NextToken": more,
            "TotalCount": 0,
            "PageSize": most,
        }

    def _advice(self, sent: Sent) -> Json:
        sent.must("RegionId")
        kinds, zone = sent.many("InstanceTypes", 10), sent.text("ZoneId")
        zones = sorted({name for group in self._cloud.groups.values() for name in group.zones})
        shown = {
            name: {
                kind: text
                for kind in self._cloud.types
                if (not kinds or kind in kinds)
                and (text := self._cloud.interruptions.get((kind, name), "0-3%"))
            }
            for name in zones
            if zone in ("", name)
        }
        return advice_json(shown, self._cloud.region)

    def _reboot(self, sent: Sent) -> Json:
        id_ = sent.must("InstanceId")
        sent.flag("ForceStop")
        machine = next(
            (each for each in self._cloud.machines() if each.id == id_ and not each.released), None
        )
        if machine is None:
            raise AlicloudRefusedError(
                "InvalidInstanceId.NotFound", f"the instance {id_} does not exist"
            )
        if instance_status(machine, self._cloud.clock()) != "Running":
            raise AlicloudRefusedError(
                "IncorrectInstanceStatus",
                "The current status of the resource does not support this operation.",
            )
        self._cloud.reboot(id_)
        return {}

    def _templates(self, sent: Sent) -> Json:
        sent.must("RegionId")
        id_, versions = sent.must("LaunchTemplateId"), sent.many("LaunchTemplateVersion", 30)
        held = [
            each
            for (name, _), each in sorted(self._cloud.templates.items(), reverse=True)
            if name == id_
        ]
        if not held:
            raise AlicloudRefusedError(
                "InvalidLaunchTemplateId.NotFound", f"the launch template {id_} does not exist"
            )
        if not all(each.isdigit() for each in versions):
            raise AlicloudRefusedError(
                "InvalidParameter",
                "LaunchTemplateVersion: integers; DefaultVersion=true for the default",
            )
        default = sent.flag("DefaultVersion")
        found = [
            each
            for each in held
            if (not versions or str(each.version) in versions) and (not default or each.default)
        ]
        made = _page(sent, "Sets", found, template_json)
        return {**made, "LaunchTemplateVersionSets": {"LaunchTemplateVersionSet": made.pop("Sets")}}
