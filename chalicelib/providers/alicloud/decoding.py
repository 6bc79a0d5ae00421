"""The used fields of ESS 2022-02-22 and ECS 2014-05-26, as in the vendor's API reference,
and their lenient decoding.

Older API versions wrap lists (`InstanceTypes.InstanceType[]`), as ECS still does; newer ones do
not. Numbers and booleans may be text, and empty values may be null, an empty text or missing. All
of it is normalised in `decode`, so the types need not handle it; everything has a default. Only
total_count has none: a response without it must not be read as an empty list, which would look like
a group without machines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from chalicelib.providers.alicloud.error_mapping import error_for
from chalicelib.providers.kit.errors import Unknown, shape_error
from chalicelib.providers.kit.http import VendorResponse
from chalicelib.providers.kit.price_reader import currency_code, price_of

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=10**6)]  # maximum of cores, GPUs or GiB of one machine
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]  # GiB
Name = Annotated[str, msgspec.Meta(max_length=200)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]

_LONGEST = 300  # maximum length of a problem text, in characters


def decode(response: VendorResponse, kind: type[T]) -> T:
    """Decode the response as that type. Raises Transient for a truncated body, Unknown for an
    unexpected structure, and the mapped error if a success status carries an error code."""
    body = response.read(object, _normalised)
    if isinstance(body, dict) and body.get("Code"):
        raise error_for(response) or Unknown(f"{response.call}: the answer carries an error code")
    try:
        return msgspec.convert(body, kind, strict=False)
    except msgspec.ValidationError as error:
        raise shape_error(response.call, error) from None


def _normalised(value: Any, name: str = "") -> Any:
    """Return the value without empty members and with lists unwrapped."""
    if isinstance(value, list):
        return [member for item in value if (member := _normalised(item)) not in (None, "")]
    if not isinstance(value, dict):
        return value
    if name.endswith("s") and len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, list):
            return _normalised(inner)
    return {
        key: member
        for key, item in value.items()
        if (member := _normalised(item, key)) not in (None, "", {})
    }


# -- types


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
    """LaunchTemplateOverrides[]. weighted_capacity: the units of the group's capacity that
    one such instance provides."""

    instance_type: Name = ""
    weighted_capacity: int = 0


class ScalingGroup(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """DescribeScalingGroups, one group. A negative number makes the group unreadable, because its
    other fields are then not reliable enough for a change."""

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
    # Of any type, because a group whose size is known is not unreadable for them.
    spot_instance_remedy: Any = False
    health_check_type: Any = ""  # NONE | ECS | LOAD_BALANCER
    health_check_types: Any = None  # a list of the same, where there may be several
    tags: list[Tag] | None = None
    problem: str = ""  # set by Outscaler: why the group could not be decoded


class ScalingInstance(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """DescribeScalingInstances, one instance. lifecycle_state: InService, Pending, Pending:Wait,
    Protected, Standby, Stopped, Removing, Removing:Wait."""

    instance_id: Id
    scaling_group_id: str = ""
    scaling_configuration_id: str = ""
    launch_template_id: Any = ""
    # a number, of any type as the id: neither makes the list unreadable
    launch_template_version: Any = ""
    lifecycle_state: Name = ""
    health_status: str = ""  # Healthy | Unhealthy
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
    """DescribeScalingActivities, one activity. status_code: InProgress, Successful, Warning
    (partial), Failed, Rejected."""

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


class PriceDetail(msgspec.Struct, frozen=True, rename="pascal"):
    """The part of a price for one resource: instanceType, systemDisk, image …"""

    resource: str = ""
    trade_price: Any = None


class PriceTotal(msgspec.Struct, frozen=True, rename="pascal"):
    """A price, and its parts. trade_price: after the account's discounts. currency: CNY on the
    vendor's Chinese site, USD on its international one."""

    trade_price: Any = None
    currency: Any = ""
    detail_infos: list[Any] = []


class PriceInfo(msgspec.Struct, frozen=True, rename="pascal"):
    """A price and the rules that led to it, of which only the price is used."""

    price: PriceTotal = PriceTotal()


class PriceAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """ECS DescribePrice."""

    price_info: PriceInfo = PriceInfo()

    @property
    def hourly(self) -> tuple[float, str] | None:
        """Return the price of the instance without its disks, and the currency; None if either is
        missing. An answer without parts states the price of the instance alone."""
        total = self.price_info.price
        parts = read_each(total.detail_infos, PriceDetail, lambda part: part.resource)
        amounts = [part.trade_price for part in parts if part.resource.casefold() == "instancetype"]
        price, currency = (
            price_of(amounts[0] if amounts else total.trade_price),
            currency_code(total.currency),
        )
        return (price, currency) if price and currency else None


class LaunchTemplateData(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The contents of a launch template. version: their number, set by Outscaler; 0: unknown."""

    instance_type: Name = ""
    system_disk_size: Whole = 0
    spot_strategy: Name = ""
    tags: list[Tag] | None = None
    version: int = 0


class SpotResource(msgspec.Struct, frozen=True, rename="pascal"):
    """AvailableSpotResources[]. interrupt_rate_desc: the share of the type's preemptible instances
    that ECS has taken back in the last 30 days, as a range: `3-5%`."""

    instance_type: str = ""
    interrupt_rate_desc: str = ""


class SpotZone(msgspec.Struct, frozen=True, rename="pascal"):
    """AvailableSpotZones[]."""

    zone_id: str = ""
    available_spot_resources: list[Any] = []


class SpotAdvice(msgspec.Struct, frozen=True, rename="pascal"):
    """ECS DescribeSpotAdvice."""

    available_spot_zones: list[Any] = []

    def rate(self, instance_type: str, zone: str) -> float:
        """Return the middle of the range for the type in the zone, or the highest of all zones if
        the zone is ""; 0.0 if there is none."""
        zones = read_each(self.available_spot_zones, SpotZone, lambda each: each.zone_id)
        rates = [
            _middle(resource.interrupt_rate_desc)
            for each in zones
            if zone in {"", each.zone_id}
            for resource in read_each(
                each.available_spot_resources, SpotResource, lambda item: item.instance_type
            )
            if resource.instance_type == instance_type
        ]
        return max(rates, default=0.0)


_RANGE = re.compile(r"(\d{1,3})-(\d{1,3})%?\Z", re.ASCII)


def _middle(text: str) -> float:
    """Return the middle of a range of percentages as a share; 0.0 for anything else."""
    bounds = _RANGE.match(text.replace(" ", "")[:20])
    least, most = (int(bound) for bound in bounds.groups()) if bounds else (0, 0)
    return (least + most) / 200 if least <= most <= 100 else 0.0


class LockReason(msgspec.Struct, frozen=True, rename="pascal"):
    """OperationLocks[]: why an instance is locked: recycling, security, financial …"""

    lock_reason: str = ""


class EcsInstance(msgspec.Struct, frozen=True, rename="pascal"):
    """ECS DescribeInstances, one instance. status: Pending, Running, Starting, Stopping, Stopped.
    start_time: of its last start, with minutes only."""

    instance_id: Id
    status: Name = ""
    start_time: Name = ""
    operation_locks: list[Any] = []

    @property
    def is_taken_back(self) -> bool:
        """Whether ECS has announced that it releases the preemptible instance."""
        locks = read_each(self.operation_locks, LockReason, lambda lock: lock.lock_reason)
        return any(lock.lock_reason.casefold() == "recycling" for lock in locks)


class Accepted(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The response to a write: accepted, not yet done. activity_type CapacityChange: only the
    desired number changed, and there may be no activity."""

    scaling_activity_id: str = ""
    activity_type: str = ""
    request_id: str = ""
    ignored_instances: list[CodeAndMessage] | None = None


# -- responses. Groups, types and configurations are decoded one by one, so one malformed item
# does not hide the others.


class GroupsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingGroups."""

    total_count: int
    items: list[Any] = msgspec.field(default_factory=list, name="ScalingGroups")


class InstancesPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingInstances."""

    total_count: int
    items: list[ScalingInstance] = msgspec.field(default_factory=list, name="ScalingInstances")


class ConfigurationsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingConfigurations."""

    total_count: int
    items: list[Any] = msgspec.field(default_factory=list, name="ScalingConfigurations")


class ActivitiesPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeScalingActivities."""

    total_count: int
    items: list[ScalingActivity] = msgspec.field(default_factory=list, name="ScalingActivities")


class TypesAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeInstanceTypes."""

    instance_types: list[Any]


class VSwitch(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """A VSwitch."""

    v_switch_id: str
    zone_id: str = ""


class VSwitchesAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeVSwitches (VPC)."""

    v_switches: list[Any] = []


class EcsInstancesPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeInstances (ECS). next_token: of the next page, "" on the last one."""

    instances: list[Any]
    next_token: str = ""


class SystemDisk(msgspec.Struct, frozen=True, rename="pascal"):
    """A template's SystemDisk."""

    size: Whole = 0


class TemplateData(LaunchTemplateData, frozen=True, rename="pascal"):
    """A template's contents as ECS returns them: the disk size is flat or nested."""

    system_disk: SystemDisk = SystemDisk()


class Version(msgspec.Struct, frozen=True, rename="pascal"):
    """One version of a launch template."""

    version_number: int = 0
    default_version: bool = False
    data: TemplateData = msgspec.field(default_factory=TemplateData, name="LaunchTemplateData")

    @property
    def launch_template_data(self) -> LaunchTemplateData:
        """Return the data with the disk size from either form."""
        size = self.data.system_disk_size or self.data.system_disk.size
        data = self.data
        return LaunchTemplateData(
            data.instance_type, size, data.spot_strategy, data.tags, self.version_number
        )


class VersionsPage(msgspec.Struct, frozen=True, rename="pascal"):
    """DescribeLaunchTemplateVersions."""

    total_count: int
    items: list[Version] = msgspec.field(default_factory=list, name="LaunchTemplateVersionSets")


def read_groups(items: Sequence[Any]) -> list[ScalingGroup]:
    """Decode the groups. A group that cannot be decoded, or whose id occurs twice, has its
    `problem` set. A missing id is ""."""
    groups = []
    for item in items:
        try:
            groups.append(msgspec.convert(item, ScalingGroup, strict=False))
        except msgspec.ValidationError as error:
            name = item.get("ScalingGroupId") if isinstance(item, dict) else ""
            problem = f"cannot be understood: {error}"[:_LONGEST]
            groups.append(ScalingGroup(name if isinstance(name, str) else "", problem=problem))
    times = Counter(group.scaling_group_id for group in groups)
    twice = "is described by the vendor more than once"
    return [
        group
        if times[group.scaling_group_id] == 1
        else ScalingGroup(group.scaling_group_id, problem=twice)
        for group in groups
    ]


def read_each(items: Sequence[Any], kind: type[S], name_of: Callable[[S], str]) -> list[S]:
    """Decode items that were requested by name. An item that cannot be decoded is left out, as are
    two different items of one name. The caller sees that they are missing."""
    by_name: dict[str, list[S]] = {}
    for item in items:
        try:
            thing = msgspec.convert(item, kind, strict=False)
        except (msgspec.ValidationError, OverflowError):
            continue
        namesakes = by_name.setdefault(name_of(thing), [])
        if thing not in namesakes:
            namesakes.append(thing)
    return [namesakes[0] for namesakes in by_name.values() if len(namesakes) == 1]
