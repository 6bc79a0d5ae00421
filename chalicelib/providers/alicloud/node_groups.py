"""TODO"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import msgspec

from chalicelib.model.group import GroupOptions, Instance, InstanceError, InstanceState, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.model.timestamps import instant
from chalicelib.providers.alicloud.api import IDS, MOVED, SIZE, AlicloudApi, pages_of
from chalicelib.providers.alicloud.decoding import InstanceType, ScalingActivity, ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.error_mapping import activity_class, is_busy, is_denied
from chalicelib.providers.alicloud.node_template import Blueprint, candidates, make_template, read_blueprints, read_tags
from chalicelib.providers.alicloud.provider_ids import AlicloudGroupNames, placeholder_handle, placeholder_id
from chalicelib.providers.alicloud.settings import PROVIDER, AlicloudBounds, AlicloudSettings
from chalicelib.providers.base import Observation
from chalicelib.providers.errors import ProviderError, Throttled, Transient, Unauthorized

LEAVING = frozenset({"Removing", "Removing:Wait"})
STOPPED = "Stopped"
_OUT, _IN = frozenset({"ScaleOut", "scale-out"}), frozenset({"ScaleIn", "scale-in"})


class AlicloudRange(msgspec.Struct, frozen=True):
    """The sizes a group may have. doubt: why they differ from the policy's; error: why there are none."""

    min: int
    max: int
    doubt: str = ""
    error: str = ""


def present(group: ScalingGroup) -> int:
    """Return the number of instances that exist or are being created, without leaving and stopped ones."""
    return (
        group.active_capacity
        + group.pending_capacity
        + group.pending_wait_capacity
        + group.init_capacity
        + group.protected_capacity
        + group.standby_capacity
    )


def target_of(group: ScalingGroup) -> int:
    """Return the size that ESS works towards: the desired capacity, or the current size if the group has none."""
    return group.desired_capacity if group.enable_desired_capacity else present(group)


def surplus(group: ScalingGroup) -> int:
    """Return the instances beyond the desired capacity, which ESS will remove on its own, choosing which."""
    return max(0, present(group) - group.desired_capacity) if group.enable_desired_capacity else 0


def occupied(group: ScalingGroup, instances: Iterable[ScalingInstance]) -> int:
    """Return the smallest size at which no existing instance has to be removed.

    The larger of the list and the group's own count is used, because the two are not read at one instant. Stopped
    instances count: ESS could remove a running one instead of them."""
    listed = sum(each.lifecycle_state not in LEAVING for each in instances)
    return max(listed, present(group) + group.stopped_capacity)


def off(group: ScalingGroup) -> str:
    """Return why the group can neither scale up nor remove now; empty if it can."""
    suspended = frozenset(group.suspended_processes or ())
    rows = (
        (bool(group.problem), group.problem),
        (group.group_type not in {"", "ECS"}, f"has machines of type {group.group_type}, which are not nodes; use ECS"),
        (group.lifecycle_state == "Deleting", "is being deleted; take it out of the policy"),
        (group.lifecycle_state not in {"", "Active"}, f"is {group.lifecycle_state}; enable it in Auto Scaling"),
        (group.system_suspended, "was suspended by Auto Scaling after many failures; fix the cause and resume it"),
        (
            any(each.weighted_capacity > 1 for each in group.launch_template_overrides or ()),
            "counts its instance types with weights, so its capacity is not a number of nodes; remove the weights",
        ),
        (bool(suspended & _OUT), "has its process ScaleOut suspended; resume it"),
    )
    text = next((text for applies, text in rows if applies), "")
    return f"scaling group {group.scaling_group_id} {text}" if text else ""


def held(group: ScalingGroup) -> str:
    """Return why nothing may be removed from the group; empty if removal is allowed."""
    if frozenset(group.suspended_processes or ()) & _IN:
        return f"scaling group {group.scaling_group_id} has its process ScaleIn suspended; resume it"
    return ""


def range_of(bounds: AlicloudBounds, group: ScalingGroup) -> AlicloudRange:
    """Return the policy's bounds limited to the group's own bounds, which ESS enforces without an error."""
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


OPERATION = "outscaler/operation"
MANAGED: Mapping[str, str] = MappingProxyType({"cluster-autoscaler/alicloud/managed": "true"})
_BAD = frozenset({"Failed", "Rejected", "Warning"})
_UNKNOWN, _LONGEST = "Unknown", 300


def metadata(operation: str) -> dict[str, str]:
    """Return the metadata of this operation's requests. The second pair is upstream's."""
    return {OPERATION: operation, **MANAGED}


def _read(activity: ScalingActivity) -> Mapping[str, object]:
    """Return the metadata of an activity; empty if it has none or if it is not a JSON object."""
    try:
        return msgspec.json.decode(activity.activity_metadata or "{}", type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError):
        return {}


def is_own(activity: ScalingActivity) -> bool:
    """Whether an autoscaler requested the activity: Outscaler, or upstream before it."""
    known = _read(activity)
    return OPERATION in known or any(known.get(key) == value for key, value in MANAGED.items())


def of_operation(activities: Iterable[ScalingActivity], operation: str) -> ScalingActivity | None:
    """Return the activity that an operation started."""
    return next((each for each in activities if _read(each).get(OPERATION) == operation), None)


def running(activities: Iterable[ScalingActivity]) -> bool:
    """Whether any activity is unfinished. ESS accepts no other request in that time."""
    return any(not each.over for each in activities)


def failed(activity: ScalingActivity) -> bool:
    """Whether the activity ended without complete success."""
    return activity.status_code in _BAD


def created(activity: ScalingActivity) -> int:
    """Return the number of instances that the activity created."""
    return max(activity.created_capacity, len(activity.created_instances or ()))


def failure(activity: ScalingActivity) -> InstanceError:
    """Return why the activity failed, with the provider error class that selects the backoff.

    An activity over several instance types may fail differently for each type. The first reason with a known error
    class is used."""
    reasons = [(activity.error_code, activity.error_message)]
    reasons += [(each.code, each.message) for each in activity.error_messages or ()]
    named = [reason for reason in reasons if reason[0]]
    telling = [reason for reason in named if activity_class(reason[0]) != _UNKNOWN]
    code, message = next(iter(telling or named), (activity.status_code, activity.error_message))
    text = message or activity.status_message or f"scaling activity {activity.scaling_activity_id} failed"
    cls = "Conflict" if is_busy(ProviderError("", code=code)) else activity_class(code)
    return InstanceError(cls, code, text[:_LONGEST])


def last_failure(activities: Sequence[ScalingActivity]) -> InstanceError | None:
    """Return why missing instances do not arrive: the failure of the newest own activity.

    None while that activity is running, if it succeeded, or if ESS itself has created instances since. activities:
    newest first."""
    for each in activities:
        if is_own(each):
            return failure(each) if failed(each) else None
        if each.over and created(each) > 0:
            return None
    return None


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
MOST_PLACEHOLDERS = 1000
"""Maximum instances that ESS creates in one step; a larger number does not belong to an instance."""


def classify(instances: Iterable[ScalingInstance], names: AlicloudGroupNames) -> tuple[Instance, ...]:
    """Return all instances except the stopped ones, each once, by id.

    An instance in an unknown state is running if it is a node, otherwise it is being created."""
    found = {each.instance_id: each for each in instances if each.instance_id and each.lifecycle_state != STOPPED}
    return tuple(_one(each, names) for _, each in sorted(found.items()))


def _one(instance: ScalingInstance, names: AlicloudGroupNames) -> Instance:
    node = names.node_of(instance.instance_id)
    unheard = InstanceState.RUNNING if node is not None else InstanceState.CREATING
    state = _STATES.get(instance.lifecycle_state, unheard)
    if node is not None and state is InstanceState.CREATING:
        state = InstanceState.RUNNING  # a pending life-cycle hook does not prevent the kubelet from joining
    return Instance(
        names.spell(instance.instance_id),
        state,
        handle=instance.instance_id,
        node=node.name if node is not None else "",
        held=unremovable(instance),
        created=instant(instance.created_time),
        claimants=names.claimants(instance.instance_id),
    )


def placeholders(region: str, group: str, missing: int, error: InstanceError) -> tuple[Instance, ...]:
    """Return one placeholder per missing machine. The planner considers only those in state CREATING with an error."""
    return tuple(
        Instance(
            placeholder_id(region, group, number),
            InstanceState.CREATING,
            error,
            handle=placeholder_handle(group, number),
        )
        for number in range(min(missing, MOST_PLACEHOLDERS))
    )


def unremovable(instance: ScalingInstance) -> str:
    """Return why this instance must not be removed; empty if it may be.

    An instance that a user has protected is kept. An instance that a user has attached without handing over its
    lifecycle would only be detached by ESS: it would keep running and costing money as a node that nothing manages
    (Alibaba Cloud ESS API reference, RemoveInstances)."""
    name = instance.instance_id
    if instance.lifecycle_state == "Protected":
        return f"{name} is protected in the scaling group; remove its protection so that it can be removed"
    if instance.creation_type == "Attached" and not instance.entrusted:
        return f"{name} was attached manually, so it would keep running after its removal; remove it manually"
    return ""


T = TypeVar("T")

_ANY_NUMBER = 0
_WORTH = 20  # calls; above this number, one list of the whole account is tried instead of one call per group


class Asking:
    """The requests of one pass, with a count of consecutive failures."""

    def __init__(self) -> None:
        self._stopped: ProviderError | None = None
        self._row = 0

    def ask(self, question: Callable[[], T]) -> T:
        """Return the response; raises ProviderError.

        After enough consecutive failures that the next request would also meet, raises without sending it."""
        if self._stopped is not None:
            raise self._stopped
        try:
            answer = question()
        except ProviderError as error:
            most = _most(error)
            self._row = self._row + 1 if most else 0
            if most and self._row >= most:
                self._stopped = error
            raise
        self._row = 0
        return answer


def read_groups(
    api: AlicloudApi, asking: Asking, ids: Sequence[str], pages: int
) -> tuple[dict[str, ScalingGroup], dict[str, str]]:
    """Return the groups by id, and the reason for each that could not be read. Raises ProviderError if none could be
    read.

    pages: expected pages of instances, from the number of nodes, so that one reservation (rate_limit.py) covers the
    whole pass."""
    lots = [ids[at : at + IDS] for at in range(0, len(ids), IDS)]
    api.expect(len(lots) + min(len(ids), _WORTH) + pages)
    found: dict[str, ScalingGroup] = {}
    unread: dict[str, str] = {}
    for lot in lots:
        try:
            found |= asking.ask(lambda lot=lot: api.groups(lot))  # type: ignore[misc]
        except ProviderError as error:
            unread |= dict.fromkeys(lot, f"could not be read: {error.error_class}: {error.message}")
            if len(unread) == len(ids):
                raise
    return found, unread


def read_instances(
    api: AlicloudApi, asking: Asking, groups: Sequence[ScalingGroup]
) -> dict[str, list[ScalingInstance]]:
    """Return the instances of many small groups from one list of the whole account, if that takes fewer calls.

    Contains only groups for which the list agrees with the group's own count; the caller reads the others one by one.
    Never raises: an error here recurs, and is reported, when the groups are read one by one.
    """
    one_by_one = sum(pages_of(each.total_capacity) for each in groups)
    if one_by_one <= _WORTH:
        return {}
    try:
        listed = asking.ask(lambda: api.all_instances(one_by_one // 2))
    except ProviderError:
        listed = None
    found: dict[str, list[ScalingInstance]] = {each.scaling_group_id: [] for each in groups}
    for instance in listed or ():
        if instance.scaling_group_id in found:
            found[instance.scaling_group_id].append(instance)
    agreed = {
        each.scaling_group_id: found[each.scaling_group_id]
        for each in groups
        if listed is not None and _agrees(each, found[each.scaling_group_id])
    }
    api.expect(sum(pages_of(each.total_capacity) for each in groups if each.scaling_group_id not in agreed))
    return agreed


def _agrees(group: ScalingGroup, instances: Sequence[ScalingInstance]) -> bool:
    """Whether the list has as many instances as the group reports.

    They differ if instances appear or disappear between the two responses, or if the group reports no count. Whether
    TotalCapacity includes stopped instances is not documented."""
    stopped = sum(each.lifecycle_state == STOPPED for each in instances)
    return stopped == group.stopped_capacity and len(instances) - group.total_capacity in {0, stopped}


def _most(error: ProviderError) -> int:
    """Return how many consecutive failures of this kind stop the remaining requests; 0 for any number.

    Permissions may be granted per group, and one inconsistent list does not predict the next."""
    rows = (
        (is_denied(error), 5),
        (isinstance(error, Throttled | Unauthorized), 1),
        (isinstance(error, Transient) and error.code != MOVED, 3),
    )
    return next((most for applies, most in rows if applies), _ANY_NUMBER)


_SHOWN = 5


def observe(api: AlicloudApi, settings: AlicloudSettings, nodes: Sequence[Node]) -> Observation:
    """Return all groups of the policy, in its order; raises ProviderError if no group can be read."""
    names = AlicloudGroupNames(nodes, settings.region)
    asking = Asking()
    found, unread = read_groups(api, asking, [each.id for each in settings.groups], len(names) // SIZE)
    usable = [group for group in found.values() if group.group_type in {"", "ECS"} and not group.problem]
    blueprints = read_blueprints(api, usable)
    maker = _AlicloudGroupBuilder(api, asking, settings, names, blueprints, read_instances(api, asking, usable))
    maker.know_types(usable)
    groups = tuple(
        maker.broken(bounds, unread[bounds.id]) if bounds.id in unread else maker.make(bounds, found.get(bounds.id))
        for bounds in settings.groups
    )
    return Observation(groups, tuple(maker.gaps))


class _AlicloudGroupBuilder:
    """Builds one group after another and collects the gaps."""

    def __init__(
        self,
        api: AlicloudApi,
        asking: Asking,
        settings: AlicloudSettings,
        names: AlicloudGroupNames,
        blueprints: Mapping[str, Blueprint],
        listed: Mapping[str, list[ScalingInstance]],
    ) -> None:
        self._api, self._asking, self._settings, self._listed = api, asking, settings, listed
        self._names, self._blueprints = names, blueprints
        self._types: dict[str, InstanceType] = {}
        self._types_problem = ""
        self.gaps: list[MissingData] = []

    def know_types(self, groups: Sequence[ScalingGroup]) -> None:
        """Read the instance types of all groups at once."""
        names = {name for group in groups for name in candidates(group, self._blueprints[group.scaling_group_id])}
        try:
            self._types = self._api.instance_types(sorted(names)) if names else {}
        except ProviderError as error:
            self._types_problem = f"instance types could not be read: {error.message}"

    def make(self, bounds: AlicloudBounds, group: ScalingGroup | None) -> NodeGroup:
        """Build the node group of one policy entry, whatever the state of its scaling group."""
        if group is None:
            return self.broken(
                bounds,
                (
                    f"there is no scaling group {bounds.id} in {self._settings.region} "
                    f"(ESS does not list inactive ones "
                    "either); check the id and the region, or take it out of the policy"
                ),
            )
        if group.problem or group.group_type not in {"", "ECS"}:
            return self.broken(bounds, off(group))
        try:
            instances = self._instances(bounds.id)
        except ProviderError as error:
            return msgspec.structs.replace(
                self.broken(bounds, f"its instances could not be read: {error.error_class}: {error.message}"),
                target=target_of(group),
            )
        return self._group(bounds, group, instances)

    def broken(self, bounds: AlicloudBounds, error: str) -> NodeGroup:
        """Build the node group of an entry about which nothing more is known."""
        return NodeGroup(
            id=bounds.id, provider=PROVIDER, min=bounds.min, max=bounds.max, error=error, priority=bounds.priority
        )

    def _instances(self, group: str) -> list[ScalingInstance]:
        return self._listed[group] if group in self._listed else self._asking.ask(lambda: self._api.instances(group))

    def _group(self, bounds: AlicloudBounds, group: ScalingGroup, instances: list[ScalingInstance]) -> NodeGroup:
        within = range_of(bounds, group)
        for text in (within.doubt, self._kept(instances)):
            if text:
                self._warn(bounds.id, text)
        template, options, problem = self._template(group, instances)
        return NodeGroup(
            id=bounds.id,
            provider=PROVIDER,
            min=within.min,
            max=within.max,
            target=target_of(group),
            instances=(*classify(instances, self._names), *self._missing(group, instances)),
            template=template,
            template_error=problem,
            error=off(group) or within.error,
            options=options,
            priority=bounds.priority,
            scale_down_held=held(group),
        )

    def _missing(self, group: ScalingGroup, instances: list[ScalingInstance]) -> tuple[Instance, ...]:
        """Return placeholders for instances that are desired, do not exist and are known to have failed.

        Instances below the group's own minimum get none, because the desired capacity cannot be lowered for them."""
        there = max(occupied(group, instances), group.min_size)
        missing = group.desired_capacity - there if group.enable_desired_capacity else 0
        if missing <= 0:
            return ()
        try:
            error = last_failure(self._api.activities(group.scaling_group_id))
        except ProviderError as trouble:
            self._warn(group.scaling_group_id, f"why machines are missing could not be read: {trouble.message}")
            return ()
        return placeholders(self._settings.region, group.scaling_group_id, missing, error) if error else ()

    def _template(self, group: ScalingGroup, instances: list[ScalingInstance]) -> tuple[Node | None, GroupOptions, str]:
        name = group.scaling_group_id
        blueprint = self._blueprints[name]
        said = read_tags((tag.pair for tag in group.tags or ()), blueprint.tags)
        made = make_template(
            group, instances, blueprint, said, self._types, self._settings.region, self._settings.reserve
        )
        for warning in (*said.warnings, *made.warnings):
            self._warn(name, warning)
        problem = self._types_problem if made.problem and candidates(group, blueprint) else ""
        return made.node, said.options, problem or made.problem

    def _kept(self, instances: list[ScalingInstance]) -> str:
        """Describe the instances that scale-down cannot remove, so that a warning precedes the attempt; empty if
        none."""
        kept = sorted(each.instance_id for each in instances if unremovable(each))
        more = ", …" if len(kept) > _SHOWN else ""
        return f"protected or attached manually, so not removed: {', '.join(kept[:_SHOWN])}{more}" if kept else ""

    def _warn(self, group: str, detail: str) -> None:
        self.gaps.append(
            MissingData("NodeGroup", detail, name=group, place=f"spec.nodeGroups[provider={PROVIDER}, id={group}]")
        )
