"""The answers around the things of wire.py: counts and lists (alicloud.md §3.2 to §3.7).

total_count has no default in any of them: an answer without it is not an answer of nothing, and what is taken for
nothing here looks like a group without machines.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.providers.alicloud.wire import (
    InstanceType,
    LaunchTemplateData,
    ScalingActivity,
    ScalingConfiguration,
    ScalingGroup,
    ScalingInstance,
)


class GroupsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingGroups. Each group is read by itself: one of another shape hides none of the others."""

    total_count: int
    scaling_groups: list[dict[str, Any]] = []


def read_group(said: dict[str, Any]) -> ScalingGroup:
    """One group, with `problem` where it cannot be understood. A group without an id has the id ""."""
    try:
        return msgspec.convert(said, ScalingGroup, strict=False)
    except msgspec.ValidationError as error:
        name = said.get("ScalingGroupId")
        return ScalingGroup(name if isinstance(name, str) else "", problem=f"cannot be understood: {error}")


class InstancesPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingInstances."""

    total_count: int
    scaling_instances: list[ScalingInstance] = []


class ConfigurationsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingConfigurations."""

    total_count: int
    scaling_configurations: list[ScalingConfiguration] = []


class ActivitiesPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingActivities."""

    total_count: int
    scaling_activities: list[ScalingActivity] = []


class TypesAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeInstanceTypes."""

    instance_types: list[InstanceType]


class SystemDisk(msgspec.Struct, frozen=True, rename="pascal"):
    """A template's SystemDisk."""

    size: int = 0


class TemplateData(LaunchTemplateData, frozen=True, rename="pascal"):
    """A template's contents as ECS writes them."""

    system_disk: SystemDisk = SystemDisk()


class Version(msgspec.Struct, frozen=True, rename="pascal"):
    """One version of a launch template."""

    version_number: int = 0
    default_version: bool = False
    data: TemplateData = msgspec.field(default_factory=TemplateData, name="LaunchTemplateData")

    @property
    def launch_template_data(self) -> LaunchTemplateData:
        """With the disk's size where the product's own shape is nested."""
        data = self.data
        return LaunchTemplateData(data.instance_type, data.system_disk_size or data.system_disk.size,
                                  data.spot_strategy, data.tags)


class VersionsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeLaunchTemplateVersions."""

    total_count: int
    launch_template_version_sets: list[Version] = []
