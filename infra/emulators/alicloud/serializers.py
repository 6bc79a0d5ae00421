"""Serializes the account's objects as responses. Functions return the form of ESS 2022-02-22;
`older` converts it to 2014-08-28 by wrapping its lists.

ECS still wraps its lists. `as_text` returns numbers and booleans as text,
which the API is known to do.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from infra.emulators.alicloud.models import (
    Activity,
    AlicloudGroup,
    AlicloudMachine,
    AlicloudTemplate,
    Configuration,
    MachineType,
)

Json = dict[str, Any]
_WRAPPED: Mapping[str, str] = MappingProxyType(
    {
        "ScalingGroups": "ScalingGroup",
        "ScalingInstances": "ScalingInstance",
        "InstanceTypes": "InstanceType",
        "ScalingConfigurations": "ScalingConfiguration",
        "ScalingActivities": "ScalingActivity",
        "Tags": "Tag",
        "VSwitchIds": "VSwitchId",
        "SuspendedProcesses": "SuspendedProcess",
        "ErrorMessages": "ErrorMessage",
        "LaunchTemplateOverrides": "LaunchTemplateOverride",
        "HealthCheckTypes": "HealthCheckType",
    }
)


def stamp(at: float, *, seconds: bool = True) -> str:
    """Format a time as `2026-01-15T08:20:11Z`, or without the seconds as in activities."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime(
        "%Y-%m-%dT%H:%M:%SZ" if seconds else "%Y-%m-%dT%H:%MZ"
    )


def price_json(price: float, currency: str, disk: float = 0.01) -> Json:
    """The response of DescribePrice: the price of an instance, and of its
    system disk. disk: its price."""
    parts = {"instanceType": price, "systemDisk": disk, "bandwidth": 0.0, "image": 0.0}
    details = [
        {"Resource": name, **_amounts(part), "SubRules": {"Rule": []}}
        for name, part in parts.items()
    ]
    total = {**_amounts(price + disk), "ReservedInstanceHourPrice": 0.0, "Currency": currency}
    return {
        "PriceInfo": {
            "Price": {**total, "DetailInfos": {"DetailInfo": details}},
            "Rules": {"Rule": []},
        }
    }


def _amounts(price: float) -> Json:
    return {"OriginalPrice": price, "DiscountPrice": 0.0, "TradePrice": price}


def group_json(group: AlicloudGroup) -> Json:
    """An entry of DescribeScalingGroups."""
    made: Json = {
        "ScalingGroupId": group.id,
        "ScalingGroupName": group.name,
        "RegionId": group.region,
        "LifecycleState": group.state,
        "GroupType": group.kind,
        "SystemSuspended": group.system_suspended,
        "SuspendedProcesses": sorted(group.suspended),
        "MinSize": group.min,
        "MaxSize": group.max,
        "EnableDesiredCapacity": group.desired is not None,
        "TotalCapacity": group.total,
        "TotalInstanceCount": len(group.machines),
        "ActiveCapacity": group.count("InService"),
        "PendingCapacity": group.count("Pending"),
        "PendingWaitCapacity": group.count("Pending:Wait"),
        "InitCapacity": 0,
        "ProtectedCapacity": group.count("Protected"),
        "StandbyCapacity": group.count("Standby"),
        "RemovingCapacity": group.count("Removing"),
        "RemovingWaitCapacity": group.count("Removing:Wait"),
        "StoppedCapacity": group.count("Stopped"),
        "VSwitchIds": [f"vsw-{zone}" for zone in group.zones],
        "MultiAZPolicy": group.multi_zone,
        "DefaultCooldown": 300,
        "ScalingPolicy": "recycle",
        "HealthCheckType": group.health_check,
        "HealthCheckTypes": [group.health_check],
        "SpotInstanceRemedy": group.remedy,
        "MaxInstanceLifetime": group.max_lifetime,
        "Tags": [{"TagKey": key, "TagValue": value} for key, value in group.tags.items()],
    }
    if group.desired is not None:
        made["DesiredCapacity"] = group.desired
    if group.configuration:
        made["ActiveScalingConfigurationId"] = group.configuration
    if group.template:
        made |= {
            "LaunchTemplateId": group.template,
            "LaunchTemplateVersion": group.template_version,
            "LaunchTemplateOverrides": [{"InstanceType": each} for each in group.overrides],
        }
    return made


def machine_json(machine: AlicloudMachine, template: str = "") -> Json:
    """An entry of DescribeScalingInstances. template: the group's launch template."""
    made = {
        "InstanceId": machine.id,
        "ScalingGroupId": machine.group,
        "LifecycleState": machine.state,
        "HealthStatus": machine.health,
        "CreationType": machine.creation,
        "ZoneId": machine.zone,
        "CreatedTime": stamp(machine.created),
        "CreationTime": stamp(machine.created, seconds=False),
        "SpotStrategy": machine.spot,
        "ScalingConfigurationId": machine.configuration,
        "ScalingActivityId": machine.activity,
        "LaunchTemplateId": template if machine.template_version else "",
        "LaunchTemplateVersion": str(machine.template_version or ""),
    }
    return {key: value for key, value in made.items() if value}


RECYCLING = "Recycling"


def instance_json(machine: AlicloudMachine, region: str, now: float) -> Json:
    """An entry of DescribeInstances (ECS)."""
    message = "The spot instance is locked and pending release."
    locks = [{"LockReason": RECYCLING, "LockMsg": message}] if machine.announced else []
    return {
        "InstanceId": machine.id,
        "RegionId": region,
        "ZoneId": machine.zone,
        "InstanceType": machine.type,
        "Status": instance_status(machine, now),
        "InstanceChargeType": "PostPaid",
        "SpotStrategy": machine.spot,
        "CreationTime": stamp(machine.created, seconds=False),
        "StartTime": stamp(max(machine.created, machine.running_at), seconds=False),
        "OperationLocks": {"LockReason": locks},
    }


def instance_status(machine: AlicloudMachine, now: float) -> str:
    """The status of an ECS instance."""
    if machine.state == "Stopped" or machine.health == "Unhealthy":
        return "Stopped"
    return "Starting" if now < machine.running_at or machine.state == "Pending" else "Running"


def advice_json(zones: Mapping[str, Mapping[str, str]], region: str) -> Json:
    """The response of DescribeSpotAdvice. zones: zone -> instance type -> InterruptRateDesc."""
    entries = [
        {
            "ZoneId": zone,
            "AvailableSpotResources": {
                "AvailableSpotResource": [
                    {
                        "InstanceType": kind,
                        "InterruptRateDesc": text,
                        "InterruptionRate": 0.0,
                        "AverageSpotDiscount": 20,
                    }
                    for kind, text in kinds.items()
                ]
            },
        }
        for zone, kinds in zones.items()
    ]
    return {"RegionId": region, "AvailableSpotZones": {"AvailableSpotZone": entries}}


def activity_json(activity: Activity) -> Json:
    """An entry of DescribeScalingActivities."""
    made: Json = {
        "ScalingActivityId": activity.id,
        "ScalingGroupId": activity.group,
        "StatusCode": activity.status,
        "Cause": activity.cause,
        "TriggerSourceType": activity.trigger,
        "ScalingInstanceNumber": activity.wanted,
        "Description": f"{'Add' if activity.grows else 'Remove'} {activity.wanted} ECS instance(s)",
        "StartTime": stamp(activity.started, seconds=False),
        "Progress": 0 if activity.running else 100,
    }
    if activity.metadata:
        made["ActivityMetadata"] = activity.metadata
    if activity.ended is not None:
        done = [] if activity.status in {"Failed", "Rejected"} else activity.machines
        made |= {
            "EndTime": stamp(activity.ended, seconds=False),
            "TotalCapacity": str(activity.total_after),
            "StatusMessage": _told(activity),
        }
        kind = "Created" if activity.grows else "Stopped" if activity.keeps else "Destroyed"
        made |= {f"{kind}Capacity": len(done), f"{kind}Instances": list(done)}
        if activity.problems:
            first, codes = activity.problems[0], {each.code: each for each in activity.problems}
            made |= {
                "ErrorCode": first.code,
                "ErrorMessage": first.message,
                "ErrorMessages": [
                    {"Code": each.code, "Message": each.message} for each in codes.values()
                ],
            }
    return made


def _told(activity: Activity) -> str:
    verb = "add" if activity.grows else "remove"
    if activity.problems:
        return f"Fail to {verb} ECS instances: {activity.problems[0].message}"
    return f'"{len(activity.machines)}" ECS instances are {verb}ed'


def configuration_json(configuration: Configuration) -> Json:
    """An entry of DescribeScalingConfigurations."""
    return {
        "ScalingConfigurationId": configuration.id,
        "ScalingGroupId": configuration.group,
        "LifecycleState": "Active",
        "InstanceType": configuration.types[0],
        "InstanceTypes": list(configuration.types),
        "SystemDiskSize": configuration.disk,
        "SystemDiskCategory": "cloud_essd",
        "SpotStrategy": configuration.spot,
        "Tags": [{"Key": key, "Value": value} for key, value in configuration.tags.items()],
    }


def type_json(kind: MachineType) -> Json:
    """An entry of DescribeInstanceTypes."""
    return {
        "InstanceTypeId": kind.id,
        "InstanceTypeFamily": kind.family,
        "CpuCoreCount": kind.cpu,
        "MemorySize": kind.memory,
        "CpuArchitecture": kind.architecture,
        "GPUAmount": kind.gpus,
        "GPUSpec": kind.gpu,
        "GPUMemorySize": 16.0 if kind.gpus else 0.0,
        "LocalStorageAmount": 0,
        "EniQuantity": 4,
        "EniPrivateIpAddressQuantity": 15,
    }


def template_json(template: AlicloudTemplate) -> Json:
    """An entry of DescribeLaunchTemplateVersions."""
    tags = [{"Key": key, "Value": value} for key, value in template.tags.items()]
    data: Json = {
        "InstanceType": template.type,
        "SpotStrategy": template.spot,
        "Tags": {"InstanceTag": tags},
        "SystemDisk": {"Size": template.disk, "Category": "cloud_essd"},
    }
    return {
        "LaunchTemplateId": template.id,
        "VersionNumber": template.version,
        "DefaultVersion": template.default,
        "LaunchTemplateName": template.id,
        "LaunchTemplateData": data,
    }


def older(value: Any) -> Any:
    """Convert a response to the form of 2014-08-28: every list in a wrapper
    that names its elements."""
    if isinstance(value, list):
        return [older(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {_WRAPPED[key]: older(each)}
        if key in _WRAPPED and isinstance(each, list)
        else older(each)
        for key, each in value.items()
    }


def as_text(value: Any) -> Any:
    """Convert every number and boolean of a response to text."""
    if isinstance(value, list):
        return [as_text(each) for each in value]
    if isinstance(value, dict):
        return {key: as_text(each) for key, each in value.items()}
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value
