"""Builds the policy's node groups from ESS responses: sizes and bounds,
activities, instances, groups.

An idle pass reads the groups, twenty per call, and each group's instances, fifty per call, or the
instances of the whole account if that takes fewer calls. Activities are read only where machines
are missing. A group that cannot be read carries its error and does not affect the others. After
throttling or a refusal the remaining requests are not sent: an API that does not respond is not
called five hundred times, each with its retries and timeouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import msgspec

from chalicelib.model.group import GroupOptions, Instance, InstanceError, InstanceState, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.model.timestamps import instant
from chalicelib.policy.vendors.alicloud import AlicloudBounds
from chalicelib.providers.alicloud.api import IDS, MOVED, SIZE, AlicloudApi, PricedMachine, pages_of
from chalicelib.providers.alicloud.decoding import (
    InstanceType,
    ScalingActivity,
    ScalingGroup,
    ScalingInstance,
)
from chalicelib.providers.alicloud.error_mapping import activity_class, is_busy, is_denied
from chalicelib.providers.alicloud.node_life import (
    busy_group,
    busy_instance,
    outdated,
    repairer,
    with_notices,
)
from chalicelib.providers.alicloud.node_template import (
    SPOT,
    Blueprint,
    candidates,
    make_template,
    priced_type,
    read_blueprints,
    read_tags,
    spot_strategy,
)
from chalicelib.providers.alicloud.provider_ids import (
    AlicloudGroupNames,
    placeholder_id,
)
from chalicelib.providers.alicloud.settings import PROVIDER, AlicloudSettings
from chalicelib.providers.alicloud.vswitches import possible_zones, uncertain_switches
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import ProviderError, Throttled, Transient, Unauthorized
from chalicelib.providers.kit.group_builder import (
    GroupBuilder,
    instance_state,
    placeholder_handle,
    placeholders,
)
from chalicelib.providers.kit.node_template import ZONE
from chalicelib.providers.kit.price_reader import VendorPrice, with_price

T = TypeVar("T")

_SHOWN = 5
_MOST_ZONES = 4  # whose spot prices are read for one group
_NO_ZONE = (
    "prices of preemptible instances vary between zones, and none of its zones is known; a tag may "
    "set one"
)

# -- sizes. Upstream left some kinds of instances out of its count and then wrote the result as an
# absolute number, so a scale-up became a scale-in. Here every kind of instance that occupies
# capacity is counted in one place.

LEAVING = frozenset({"Removing", "Removing:Wait"})
_STOPPED = "Stopped"


class AlicloudRange(msgspec.Struct, frozen=True):
    """The minimum and maximum number of instances. doubt: why they differ from the policy's;
    error: why there are none."""

    min: int
    max: int
    doubt: str = ""
    error: str = ""


def present(group: ScalingGroup) -> int:
    """Return the number of instances that exist or are being created, without
    leaving and stopped ones."""
    return (
        group.active_capacity
        + group.pending_capacity
        + group.pending_wait_capacity
        + group.init_capacity
        + group.protected_capacity
        + group.standby_capacity
    )


def target_of(group: ScalingGroup) -> int:
    """Return the size that ESS works towards: the desired capacity, or the current
    size if the group has none."""
    return group.desired_capacity if group.enable_desired_capacity else present(group)


def surplus(group: ScalingGroup) -> int:
    """Return the instances beyond the desired capacity, which ESS will remove on
    its own, choosing which."""
    return max(0, present(group) - group.desired_capacity) if group.enable_desired_capacity else 0


def occupied(group: ScalingGroup, instances: Iterable[ScalingInstance]) -> int:
    """Return the smallest size at which no existing instance has to be removed. The larger of the
    list and the group's own count is used, because the two are not read at one instant. Stopped
    instances count: ESS could remove a running one instead of them."""
    listed = sum(instance.lifecycle_state not in LEAVING for instance in instances)
    return max(listed, present(group) + group.stopped_capacity)


def no_scale_up(group: ScalingGroup) -> str:
    """Return why the group can neither scale up nor remove now; empty if it can."""
    suspended = frozenset(group.suspended_processes or ())
    rows = (
        (bool(group.problem), group.problem),
        (
            group.group_type not in {"", "ECS"},
            f"has machines of type {group.group_type}, which are not nodes; use ECS",
        ),
        (group.lifecycle_state == "Deleting", "is being deleted; take it out of the policy"),
        (
            group.lifecycle_state not in {"", "Active"},
            f"is {group.lifecycle_state}; enable it in Auto Scaling",
        ),
        (
            group.system_suspended,
            "was suspended by Auto Scaling after many failures; fix the cause and resume it",
        ),
        (
            any(
                override.weighted_capacity > 1 for override in group.launch_template_overrides or ()
            ),
            (
                "counts its instance types with weights, so its capacity is not a number of nodes; "
                "remove the weights"
            ),
        ),
        (
            bool(suspended & {"ScaleOut", "scale-out"}),
            "has its process ScaleOut suspended; resume it",
        ),
    )
    text = next((text for applies, text in rows if applies), "")
    return f"scaling group {group.scaling_group_id} {text}" if text else ""


def no_removal(group: ScalingGroup) -> str:
    """Return why nothing may be removed from the group; empty if removal is allowed."""
    if frozenset(group.suspended_processes or ()) & {"ScaleIn", "scale-in"}:
        return (
            f"scaling group {group.scaling_group_id} has its process ScaleIn suspended; resume it"
        )
    return ""


def size_range(bounds: AlicloudBounds, group: ScalingGroup) -> AlicloudRange:
    """Return the policy's bounds limited to the group's own bounds, which ESS
    enforces without an error."""
    least, most = max(bounds.min, group.min_size), min(bounds.max, group.max_size)
    if least > most:
        return AlicloudRange(
            bounds.min,
            bounds.max,
            error=(
                f"scaling group {bounds.id} allows {group.min_size} to {group.max_size} instances "
                "and the policy "
                f"{bounds.min} to {bounds.max}, which have no size in common; change one of the two"
            ),
        )
    narrower = [
        f"{name} {ours} is {theirs} there"
        for name, ours, theirs in (("min", bounds.min, least), ("max", bounds.max, most))
        if ours != theirs
    ]
    text = (
        f"the scaling group's own bounds are narrower: {', '.join(narrower)}; change one of the two"
    )
    return AlicloudRange(least, most, text if narrower else "")


# -- activities. ESS accepts a request long before it knows whether there is stock, and upstream
# never checks the result. Outscaler's own activities are identified by metadata in each request, so
# a call that is repeated after a crash finds its own activity.

_OPERATION = "outscaler/operation"
_MANAGED = "cluster-autoscaler/alicloud/managed"  # upstream's
_UNKNOWN, _LONGEST = "Unknown", 300


def metadata(operation: str) -> dict[str, str]:
    """Return the metadata of this operation's requests, and the mark of upstream's."""
    return {_OPERATION: operation, _MANAGED: "true"}


def _metadata_of(activity: ScalingActivity) -> Mapping[str, object]:
    """Return the metadata of an activity; empty if it has none or if it is not a JSON object."""
    try:
        return msgspec.json.decode(activity.activity_metadata or "{}", type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError):
        return {}


def is_own(activity: ScalingActivity) -> bool:
    """Whether an autoscaler requested the activity: Outscaler, or upstream before it."""
    pairs = _metadata_of(activity)
    return _OPERATION in pairs or pairs.get(_MANAGED) == "true"


def of_operation(activities: Iterable[ScalingActivity], operation: str) -> ScalingActivity | None:
    """Return the activity that an operation started."""
    return next(
        (
            activity
            for activity in activities
            if _metadata_of(activity).get(_OPERATION) == operation
        ),
        None,
    )


def running(activities: Iterable[ScalingActivity]) -> bool:
    """Whether any activity is unfinished. ESS accepts no other request in that time."""
    return any(not activity.over for activity in activities)


def failed(activity: ScalingActivity) -> bool:
    """Whether the activity ended without complete success."""
    return activity.status_code in {"Failed", "Rejected", "Warning"}


def created(activity: ScalingActivity) -> int:
    """Return the number of instances that the activity created."""
    return max(activity.created_capacity, len(activity.created_instances or ()))


def failure(activity: ScalingActivity) -> InstanceError:
    """Return why the activity failed, with the provider error class that selects the backoff. An
    activity over several instance types may fail differently for each type. The first reason with a
    known error class is used."""
    reasons = [(activity.error_code, activity.error_message)]
    reasons += [(reason.code, reason.message) for reason in activity.error_messages or ()]
    named = [(code, message) for code, message in reasons if code]
    classified = [(code, message) for code, message in named if activity_class(code) != _UNKNOWN]
    code, message = next(iter(classified or named), (activity.status_code, activity.error_message))
    text = (
        message
        or activity.status_message
        or f"scaling activity {activity.scaling_activity_id} failed"
    )
    cls = "Conflict" if is_busy(ProviderError("", code=code)) else activity_class(code)
    return InstanceError(cls, code, text[:_LONGEST])


def last_failure(activities: Sequence[ScalingActivity]) -> InstanceError | None:
    """Return why missing instances do not arrive: the failure of the newest own activity. None
    while that activity is running, if it succeeded, or if ESS itself has created instances since.
    activities: newest first."""
    for activity in activities:
        if is_own(activity):
            return failure(activity) if failed(activity) else None
        if activity.over and created(activity) > 0:
            return None
    return None


# -- instances

_STATES: Mapping[str, InstanceState] = MappingProxyType(
    {
        "InService": InstanceState.RUNNING,
        "Protected": InstanceState.RUNNING,
        "Standby": InstanceState.RUNNING,
        "Pending": InstanceState.CREATING,
        "Pending:Wait": InstanceState.CREATING,
        "Removing": InstanceState.DELETING,
        "Removing:Wait": InstanceState.DELETING,
    }
)


def _instances(
    group: ScalingGroup, version: int, listed: Iterable[ScalingInstance], names: AlicloudGroupNames
) -> tuple[Instance, ...]:
    """Return all instances except the stopped ones, each once, by id. version: of the
    group's launch template."""
    by_id = {
        instance.instance_id: instance
        for instance in listed
        if instance.instance_id and instance.lifecycle_state != _STOPPED
    }
    return tuple(
        _instance(group, version, instance, names) for _, instance in sorted(by_id.items())
    )


def _instance(
    group: ScalingGroup, version: int, instance: ScalingInstance, names: AlicloudGroupNames
) -> Instance:
    """Build one instance. In an unknown state it is running if it is a node,
    otherwise it is being created."""
    node = names.node_of(instance.instance_id)
    reported = _STATES.get(instance.lifecycle_state, InstanceState.CREATING)
    return Instance(
        names.spell(instance.instance_id),
        # a pending life-cycle hook does not prevent the kubelet from joining
        instance_state(reported, is_node=node is not None),
        handle=instance.instance_id,
        node=node.name if node is not None else "",
        held=unremovable(instance),
        created=instant(instance.created_time),
        claimants=names.claimants(instance.instance_id),
        outdated=outdated(instance, group, version),
        busy=busy_instance(instance),
        repaired_by=repairer(instance, group),
    )


def unremovable(instance: ScalingInstance) -> str:
    """Return why this instance must not be removed; empty if it may be. An instance that a user has
    protected is kept. An instance that a user has attached without handing over its lifecycle would
    only be detached by ESS: it would keep running and costing money as a node that nothing manages
    (Alibaba Cloud ESS API reference, RemoveInstances)."""
    name = instance.instance_id
    if instance.lifecycle_state == "Protected":
        return (
            f"{name} is protected in the scaling group; remove its protection so that it can be "
            "removed"
        )
    if instance.creation_type == "Attached" and not instance.entrusted:
        return (
            f"{name} was attached manually, so it would keep running after its removal; remove it "
            "manually"
        )
    return ""


# -- reading in bulk

# calls; above this number, one list of the whole account is tried instead of one call per group
_BULK = 20


class _RequestGuard:
    """Sends the requests of one pass, and stops after consecutive failures that the next
    request would also meet."""

    def __init__(self) -> None:
        self._stopped: ProviderError | None = None
        self._failures = 0

    def send(self, request: Callable[[], T]) -> T:
        """Return the response; raises ProviderError, without a request after enough failures."""
        if self._stopped is not None:
            raise self._stopped
        try:
            answer = request()
        except ProviderError as error:
            most = _most_failures(error)
            self._failures = self._failures + 1 if most else 0
            if most and self._failures >= most:
                self._stopped = error
            raise
        self._failures = 0
        return answer


def _most_failures(error: ProviderError) -> int:
    """Return how many consecutive failures of this kind stop the remaining requests; 0
    for any number. Permissions may be granted per group, and one inconsistent list
    does not predict the next."""
    if is_denied(error):
        return 5
    if isinstance(error, Throttled | Unauthorized):
        return 1
    return 3 if isinstance(error, Transient) and error.code != MOVED else 0


def _read_groups(
    api: AlicloudApi, guard: _RequestGuard, ids: Sequence[str], pages: int
) -> tuple[dict[str, ScalingGroup], dict[str, str]]:
    """Return the groups by id, and the reason for each that could not be read. Raises ProviderError
    if none could be read. pages: expected pages of instances, from the number of nodes, so that one
    reservation (kit/rate_limit.py) covers the whole pass."""
    lots = [ids[at : at + IDS] for at in range(0, len(ids), IDS)]
    api.expect(len(lots) + min(len(ids), _BULK) + pages)
    groups: dict[str, ScalingGroup] = {}
    unread: dict[str, str] = {}
    for lot in lots:
        try:
            groups |= guard.send(lambda lot=lot: api.groups(lot))  # type: ignore[misc]
        except ProviderError as error:
            unread |= dict.fromkeys(lot, f"could not be read: {error.described}")
            if len(unread) == len(ids):
                raise
    return groups, unread


def _read_all_instances(
    api: AlicloudApi, guard: _RequestGuard, groups: Sequence[ScalingGroup]
) -> dict[str, list[ScalingInstance]]:
    """Return the instances of many small groups from one list of the whole account, if that takes
    fewer calls. Contains only groups for which the list agrees with the group's own count; the
    caller reads the others one by one. Raises nothing, because an error here recurs, and is
    reported, when the groups are read one by one."""
    one_by_one = sum(pages_of(group.total_capacity) for group in groups)
    if one_by_one <= _BULK:
        return {}
    try:
        listed = guard.send(lambda: api.all_instances(one_by_one // 2))
    except ProviderError:
        listed = None
    by_group: dict[str, list[ScalingInstance]] = {group.scaling_group_id: [] for group in groups}
    for instance in listed or ():
        if instance.scaling_group_id in by_group:
            by_group[instance.scaling_group_id].append(instance)
    agreed = {
        group.scaling_group_id: by_group[group.scaling_group_id]
        for group in groups
        if listed is not None and _agrees(group, by_group[group.scaling_group_id])
    }
    api.expect(
        sum(
            pages_of(group.total_capacity)
            for group in groups
            if group.scaling_group_id not in agreed
        )
    )
    return agreed


def _agrees(group: ScalingGroup, instances: Sequence[ScalingInstance]) -> bool:
    """Whether the list has as many instances as the group reports. They differ if instances appear
    or disappear between the two responses, or if the group reports no count. Whether TotalCapacity
    includes stopped instances is not documented."""
    stopped = sum(instance.lifecycle_state == _STOPPED for instance in instances)
    return stopped == group.stopped_capacity and len(instances) - group.total_capacity in {
        0,
        stopped,
    }


# -- groups


def observe(api: AlicloudApi, settings: AlicloudSettings, nodes: Sequence[Node]) -> Observation:
    """Return all groups of the policy, in its order; raises ProviderError
    if no group can be read."""
    names, guard = AlicloudGroupNames(nodes, settings.region), _RequestGuard()
    groups, unread = _read_groups(
        api, guard, [bounds.id for bounds in settings.groups], len(names) // SIZE
    )
    usable = [
        group for group in groups.values() if group.group_type in {"", "ECS"} and not group.problem
    ]
    blueprints = read_blueprints(api, usable)
    listed = _read_all_instances(api, guard, usable)
    builder = _AlicloudGroupBuilder(api, guard, settings, names, blueprints, listed)
    builder.read_types(usable)
    builder.read_switch_zones(usable)
    built = tuple(
        builder.broken(bounds, unread[bounds.id])
        if bounds.id in unread
        else builder.build(bounds, groups.get(bounds.id))
        for bounds in settings.groups
    )
    if settings.read_prices:
        built = builder.priced(built, groups)
    if builder.has_spot_instances:
        built = with_notices(api, built, builder.gaps)
    return Observation(built, tuple(builder.gaps))


class _AlicloudGroupBuilder(GroupBuilder):
    def __init__(
        self,
        api: AlicloudApi,
        guard: _RequestGuard,
        settings: AlicloudSettings,
        names: AlicloudGroupNames,
        blueprints: Mapping[str, Blueprint],
        listed: Mapping[str, list[ScalingInstance]],
    ) -> None:
        super().__init__(PROVIDER)
        self._api, self._guard, self._settings, self._listed = api, guard, settings, listed
        self._names, self._blueprints = names, blueprints
        self._types: dict[str, InstanceType] = {}
        self._types_problem = ""
        self._zones: dict[str, frozenset[str]] = {}
        self._switch_zones: dict[str, str] = {}
        self.has_spot_instances = False
        """Whether any of the groups built has an instance that ECS may take back."""

    def read_types(self, groups: Sequence[ScalingGroup]) -> None:
        """Read the instance types of all groups at once."""
        names = {
            name
            for group in groups
            for name in candidates(group, self._blueprints[group.scaling_group_id])
        }
        try:
            self._types = self._api.instance_types(sorted(names)) if names else {}
        except ProviderError as error:
            self._types_problem = f"instance types could not be read: {error.message}"

    def read_switch_zones(self, groups: Iterable[ScalingGroup]) -> None:
        """Read the zones of the VSwitches of groups that have several."""
        switches = {name for group in groups for name in uncertain_switches(group)}
        self._switch_zones, denied = self._api.switch_zones(switches)
        if denied:
            self.gaps.append(
                MissingData("VSwitch", f"{denied}; grant it", place=f"spec.providers.{PROVIDER}")
            )

    def build(self, bounds: AlicloudBounds, group: ScalingGroup | None) -> NodeGroup:
        """Build the node group of one policy entry, whatever the state of its scaling group."""
        if group is None:
            return self.broken(
                bounds,
                f"there is no scaling group {bounds.id} in {self._settings.region} (ESS does not "
                "list inactive ones "
                "either); check the id and the region, or take it out of the policy",
            )
        if group.problem or group.group_type not in {"", "ECS"}:
            return self.broken(bounds, no_scale_up(group))
        try:
            instances = (
                self._listed[bounds.id]
                if bounds.id in self._listed
                else self._guard.send(lambda: self._api.instances(bounds.id))
            )
        except ProviderError as error:
            text = f"its instances could not be read: {error.described}"
            return msgspec.structs.replace(self.broken(bounds, text), target=target_of(group))
        sizes = size_range(bounds, group)
        unremovables = sorted(
            instance.instance_id for instance in instances if unremovable(instance)
        )
        more = ", …" if len(unremovables) > _SHOWN else ""
        if sizes.doubt:
            self.warn(bounds.id, sizes.doubt)
        if unremovables:  # a warning before scale-down attempts to remove them
            text = (
                "protected or attached manually, so not removed: "
                f"{', '.join(unremovables[:_SHOWN])}{more}"
            )
            self.warn(bounds.id, text)
        template, options, problem = self._template(group, instances)
        blueprint = self._blueprints[bounds.id]
        spot = bool(spot_strategy(group, blueprint))
        self.has_spot_instances |= any(
            spot or instance.spot_strategy in SPOT for instance in instances
        )
        self._zones[bounds.id] = frozenset(instance.zone_id for instance in instances) - {""}
        missing_ones, activity = self._placeholders(group, instances)
        return NodeGroup(
            id=bounds.id,
            provider=PROVIDER,
            min=sizes.min,
            max=sizes.max,
            target=target_of(group),
            instances=(
                *_instances(group, blueprint.version, instances, self._names),
                *missing_ones,
            ),
            template=template,
            template_error=problem,
            error=no_scale_up(group) or sizes.error,
            options=options,
            priority=bounds.priority,
            spot=spot,
            replaces_interrupted=spot and str(group.spot_instance_remedy).lower() == "true",
            restarts=True,
            busy=busy_group(group, instances, activity),
            scale_down_held=no_removal(group),
            name=group.scaling_group_name,
            zones=possible_zones(group, instances, template, self._switch_zones),
        )

    def priced(
        self, built: Sequence[NodeGroup], groups: Mapping[str, ScalingGroup]
    ) -> tuple[NodeGroup, ...]:
        """Return the groups with the hourly prices of their nodes, or why they have none, and with
        how often ECS takes back those of spot groups."""
        machines: dict[str, tuple[PricedMachine, ...]] = {}
        spot: dict[str, PricedMachine] = {}
        for group in built:
            if group.id not in groups or (blueprint := self._blueprints.get(group.id)) is None:
                continue
            kind = priced_type(groups[group.id], blueprint, self._types)
            strategy, zones = spot_strategy(groups[group.id], blueprint), self._zones_of(group)
            if kind:
                machines[group.id] = tuple(
                    PricedMachine(kind, strategy, zone) for zone in (zones if strategy else [""])
                )
            if kind and strategy:
                spot[group.id] = PricedMachine(kind, strategy, zones[0] if len(zones) == 1 else "")
        prices, denied = self._api.prices(
            [machine for several in machines.values() for machine in several]
        )
        rates, rates_denied = (
            self._api.interruption_rates(list(spot.values())) if spot else ({}, "")
        )
        self.warn_of_denied("Price", denied)
        self.warn_of_denied("InterruptionRate", rates_denied)
        return tuple(
            msgspec.structs.replace(
                self._with_price(
                    group, groups, [prices[machine] for machine in machines.get(group.id, ())]
                ),
                interruption_rate=rates[spot[group.id]] if group.id in spot else 0.0,
            )
            for group in built
        )

    def _zones_of(self, group: NodeGroup) -> list[str]:
        """Return the zone of a group's new nodes, or those in which it has instances
        if they may be in several."""
        zone = (group.template.labels if group.template else {}).get(ZONE)
        return [zone] if zone else sorted(self._zones.get(group.id, ()))[:_MOST_ZONES]

    def _with_price(
        self, group: NodeGroup, groups: Mapping[str, ScalingGroup], prices: Sequence[VendorPrice]
    ) -> NodeGroup:
        """Return the group with the highest of these prices; with none if one of them is
        unknown."""
        if group.id not in groups or group.id not in self._blueprints:
            return group
        spot = bool(spot_strategy(groups[group.id], self._blueprints[group.id]))
        unknown = _NO_ZONE if spot and group.template is not None else group.template_error
        price = min(prices, key=lambda each: (bool(each.price), -each.price), default=None)
        return with_price(group, price, spot=spot, error=unknown)

    def broken(self, bounds: AlicloudBounds, error: str) -> NodeGroup:
        """Build the node group of an entry about which nothing more is known."""
        return NodeGroup(
            id=bounds.id,
            provider=PROVIDER,
            min=bounds.min,
            max=bounds.max,
            error=error,
            priority=bounds.priority,
        )

    def _placeholders(
        self, group: ScalingGroup, instances: list[ScalingInstance]
    ) -> tuple[tuple[Instance, ...], str]:
        """Return placeholders for instances that are desired, do not exist and are known to have
        failed, and the scaling activity that is running, as far as activities are read.

        Instances below the group's own minimum get none, because the desired capacity cannot be
        lowered for them."""
        name, region = group.scaling_group_id, self._settings.region
        existing = max(occupied(group, instances), group.min_size)
        missing = group.desired_capacity - existing if group.enable_desired_capacity else 0
        if missing <= 0:
            return (), ""
        try:
            activities = self._api.activities(name)
        except ProviderError as trouble:
            self.warn(name, f"why machines are missing could not be read: {trouble.message}")
            return (), ""
        under_way = next(
            (activity.scaling_activity_id for activity in activities if not activity.over), ""
        )
        error = last_failure(activities)
        if error is None:
            return (), under_way
        missing_ones = placeholders(
            missing,
            error,
            lambda number: placeholder_handle(name, number),
            lambda handle: placeholder_id(region, handle),
        )
        return missing_ones, under_way

    def _template(
        self, group: ScalingGroup, instances: list[ScalingInstance]
    ) -> tuple[Node | None, GroupOptions, str]:
        name, settings = group.scaling_group_id, self._settings
        blueprint = self._blueprints[name]
        tags = read_tags((tag.pair for tag in group.tags or ()), blueprint.tags)
        template = make_template(
            group,
            instances,
            blueprint,
            tags,
            self._types,
            self._switch_zones,
            settings.region,
            settings.reserve,
        )
        for warning in (*tags.warnings, *template.warnings):
            self.warn(name, warning)
        problem = self._types_problem if template.problem and candidates(group, blueprint) else ""
        return template.node, tags.options, problem or template.problem
