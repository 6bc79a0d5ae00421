"""The response envelopes around the types of models.py: counts and lists.

total_count has no default in any of them. A response without it must not be read as an empty list, which would look
like a group without machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from chalicelib.providers.alicloud.models import (
    LaunchTemplateData,
    ScalingActivity,
    ScalingGroup,
    ScalingInstance,
    Whole,
)

T = TypeVar("T", bound=msgspec.Struct)

_LONGEST = 300  # maximum length of a problem text, in characters


class GroupsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingGroups. Each group is decoded separately, so one malformed group does not hide the others."""

    total_count: int
    scaling_groups: list[Any] = []


def read_groups(said: Sequence[Any]) -> list[ScalingGroup]:
    """Decode the groups. A group that cannot be decoded, or whose id occurs twice, has its `problem` set. A missing id
    is ""."""
    found = [_group(each) for each in said]
    times = Counter(each.scaling_group_id for each in found)
    return [
        each
        if times[each.scaling_group_id] == 1
        else ScalingGroup(each.scaling_group_id, problem="is described by the vendor more than once")
        for each in found
    ]


def _group(said: Any) -> ScalingGroup:
    try:
        return msgspec.convert(said, ScalingGroup, strict=False)
    except msgspec.ValidationError as error:
        name = said.get("ScalingGroupId") if isinstance(said, dict) else ""
        return ScalingGroup(name if isinstance(name, str) else "", problem=f"cannot be understood: {error}"[:_LONGEST])


def read_each(said: Sequence[Any], kind: type[T], name_of: Callable[[T], str]) -> list[T]:
    """Decode items that were requested by name.

    An item that cannot be decoded is left out, as are two different items of one name. The caller sees that they are
    missing."""
    found: dict[str, list[T]] = {}
    for each in said:
        try:
            thing = msgspec.convert(each, kind, strict=False)
        except (msgspec.ValidationError, OverflowError):
            continue
        alike = found.setdefault(name_of(thing), [])
        if thing not in alike:
            alike.append(thing)
    return [alike[0] for alike in found.values() if len(alike) == 1]


class InstancesPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingInstances."""

    total_count: int
    scaling_instances: list[ScalingInstance] = []


class ConfigurationsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingConfigurations."""

    total_count: int
    scaling_configurations: list[Any] = []


class ActivitiesPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingActivities."""

    total_count: int
    scaling_activities: list[ScalingActivity] = []


class TypesAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeInstanceTypes. Each type is decoded separately, like each scaling configuration."""

    instance_types: list[Any]


class SystemDisk(msgspec.Struct, frozen=True, rename="pascal"):
    """A template's SystemDisk."""

    size: Whole = 0


class TemplateData(LaunchTemplateData, frozen=True, rename="pascal"):
    """A template's contents as ECS returns them."""

    system_disk: SystemDisk = SystemDisk()


class Version(msgspec.Struct, frozen=True, rename="pascal"):
    """One version of a launch template."""

    version_number: int = 0
    default_version: bool = False
    data: TemplateData = msgspec.field(default_factory=TemplateData, name="LaunchTemplateData")

    @property
    def launch_template_data(self) -> LaunchTemplateData:
        """Return the data with the disk size from either form, flat or nested in SystemDisk."""
        data = self.data
        return LaunchTemplateData(
            data.instance_type, data.system_disk_size or data.system_disk.size, data.spot_strategy, data.tags
        )


class VersionsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeLaunchTemplateVersions."""

    total_count: int
    launch_template_version_sets: list[Version] = []
