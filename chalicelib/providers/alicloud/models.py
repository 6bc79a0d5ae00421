"""The used fields of ESS 2022-02-22 and ECS 2014-05-26, as in the vendor's API reference.

Everything has a default, because the API omits empty values. Numbers and booleans may arrive as text; the decoder is
lenient (api.py), not the fields.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=10**6)]  # maximum of cores, GPUs or GiB of one machine
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]  # GiB
Name = Annotated[str, msgspec.Meta(max_length=200)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Tag(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """A tag; groups use TagKey and TagValue, configurations Key and Value."""

    key: str = ""
    value: str = ""
    tag_key: str = ""
    tag_value: str = ""

    @property
    def pair(self) -> tuple[str, str]:
        """Return (key, value) from the form that is filled."""
        return (self.key or self.tag_key, self.value or self.tag_value)


class TemplateOverride(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """LaunchTemplateOverrides[]. weighted_capacity: the units of the group's capacity that one such instance
    provides."""

    instance_type: Name = ""
    weighted_capacity: int = 0


class ScalingGroup(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """DescribeScalingGroups, one group.

    A negative number makes the group unreadable, because its other fields are then not reliable enough for a change."""

    scaling_group_id: str
    scaling_group_name: str = ""
    region_id: str = ""
    lifecycle_state: str = "Active"  # Active | Inactive | Deleting
    group_type: str = "ECS"  # ECS | ECI
    system_suspended: bool = False
    suspended_processes: list[str] | None = None
    min_size: Count = 0
    max_size: Count = 0
    enable_desired_capacity: bool = False
    desired_capacity: Count = 0
    total_capacity: Count = 0
    active_capacity: Count = 0
    pending_capacity: Count = 0
    pending_wait_capacity: Count = 0
    init_capacity: Count = 0
    protected_capacity: Count = 0
    standby_capacity: Count = 0
    removing_capacity: Count = 0
    removing_wait_capacity: Count = 0
    stopped_capacity: Count = 0
    active_scaling_configuration_id: str = ""
    launch_template_id: str = ""
    launch_template_version: str = ""
    launch_template_overrides: list[TemplateOverride] | None = None
    v_switch_ids: list[str] | None = None
    multi_az_policy: str = msgspec.field(default="", name="MultiAZPolicy")
    tags: list[Tag] | None = None
    problem: str = ""  # set by Outscaler: why the group could not be decoded


class ScalingInstance(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """DescribeScalingInstances, one instance. lifecycle_state: InService, Pending, Pending:Wait, Protected, Standby,
    Stopped, Removing, Removing:Wait."""

    instance_id: Id
    scaling_group_id: str = ""
    scaling_configuration_id: str = ""
    lifecycle_state: Name = ""
    health_status: str = ""
    creation_type: str = ""  # AutoCreated | Attached | Managed
    entrusted: bool = False  # an attached instance whose lifecycle the group manages
    created_time: str = ""
    zone_id: Name = ""
    spot_strategy: Name = ""
    scaling_activity_id: str = ""


class ScalingConfiguration(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """DescribeScalingConfigurations, one configuration."""

    scaling_configuration_id: str = ""
    scaling_group_id: str = ""
    lifecycle_state: Name = ""
    instance_type: Name = ""
    instance_types: list[Name] | None = None
    system_disk_size: Whole = 0
    spot_strategy: Name = ""
    tags: list[Tag] | None = None


class CodeAndMessage(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """ErrorMessages[] of an activity, IgnoredInstances[] of a removal."""

    code: str = ""
    message: str = ""
    instance_id: str = ""


class ScalingActivity(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """DescribeScalingActivities, one activity. status_code: InProgress, Successful, Warning (partial), Failed,
    Rejected."""

    scaling_activity_id: str = ""
    scaling_group_id: str = ""
    status_code: str = ""
    status_message: str = ""
    progress: int = 0
    created_capacity: int = 0
    created_instances: list[str] | None = None
    destroyed_instances: list[str] | None = None
    error_code: str = ""
    error_message: str = ""
    error_messages: list[CodeAndMessage] | None = None
    activity_metadata: str = ""
    start_time: str = ""
    end_time: str = ""

    @property
    def over(self) -> bool:
        """Whether the activity has ended."""
        return self.status_code not in {"", "InProgress"}


class InstanceType(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """ECS DescribeInstanceTypes, one type. memory_size in GiB."""

    instance_type_id: str
    instance_type_family: str = ""
    cpu_core_count: Whole = 0
    memory_size: Amount = 0.0
    cpu_architecture: str = "X86"  # X86 | ARM
    gpu_amount: Whole = msgspec.field(default=0, name="GPUAmount")
    gpu_spec: Name = msgspec.field(default="", name="GPUSpec")
    local_storage_amount: int = 0


class LaunchTemplateData(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The contents of a launch template. api.py unwraps the tags."""

    instance_type: Name = ""
    system_disk_size: Whole = 0
    spot_strategy: Name = ""
    tags: list[Tag] | None = None


class Accepted(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The response to a write: accepted, not yet done.

    activity_type CapacityChange: only the desired number changed, and there may be no activity."""

    scaling_activity_id: str = ""
    activity_type: str = ""
    request_id: str = ""
    ignored_instances: list[CodeAndMessage] | None = None
