"""TODO"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from chalicelib.net.json_repair import read_json
from chalicelib.providers.alicloud.error_mapping import error_for
from chalicelib.providers.errors import Transient, Unknown
from chalicelib.providers.http import VendorResponse

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


S = TypeVar("S", bound=msgspec.Struct)

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


def read_each(said: Sequence[Any], kind: type[S], name_of: Callable[[S], str]) -> list[S]:
    """Decode items that were requested by name.

    An item that cannot be decoded is left out, as are two different items of one name. The caller sees that they are
    missing."""
    found: dict[str, list[S]] = {}
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


T = TypeVar("T")


def decode(response: VendorResponse, kind: type[T]) -> T:
    """Decode the response as that type.

    Raises Transient for a truncated body, Unknown for an unexpected structure, and the mapped error if a success status
    carries an error code."""
    try:
        body = read_json(response.body, _even)
        if isinstance(body, dict) and body.get("Code"):
            raise error_for(response) or Unknown(f"{response.call}: the answer carries an error code")
        return msgspec.convert(body, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Unknown(f"{response.call}: the answer has another shape than expected: {error}") from None
    except msgspec.DecodeError:
        raise Transient(f"{response.call}: the answer is not complete JSON") from None


def _even(value: Any, name: str = "") -> Any:
    """Return the value without empty members and with lists unwrapped."""
    if isinstance(value, list):
        return [even for each in value if (even := _even(each)) not in (None, "")]
    if not isinstance(value, dict):
        return value
    if name.endswith("s") and len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, list):
            return _even(inner)
    return {key: even for key, each in value.items() if (even := _even(each, key)) not in (None, "", {})}
