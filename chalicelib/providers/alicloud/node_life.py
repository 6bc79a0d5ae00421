"""What happens to running instances, as ESS and ECS state it: outdated, being changed,
replaced, or taken back.

    outdated      made of another scaling configuration, or another launch template or version of
                  it, than the group's own one. ESS leaves such instances as they are
    busy          instances are being added or removed, by whomever; a scaling activity runs that
                  has none yet; the group is locked
    repaired_by   ESS has found the instance unhealthy, and its health check replaces it
    leaves_at     ECS takes the preemptible instance back. ECS says so five
                  minutes before, without a time

The health check alone says nothing: it is on in every group unless turned off, and
only asks whether the instance runs. The vendor therefore leaves an instance that runs
and is broken to Outscaler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.snapshot import MissingData
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.decoding import ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.settings import PROVIDER
from chalicelib.providers.kit.errors import ProviderError

NOTICE = 300.0
"""Seconds between the announcement and the release (ECS, "Preemptible
instance interruption events")."""
_HEALTH_CHECK = "the health check of Auto Scaling"
_LONGEST = 60  # of an id in a text
_ADDED, _REMOVED = ("Pending", "Pending:Wait"), ("Removing", "Removing:Wait")


def outdated(instance: ScalingInstance, group: ScalingGroup, version: int) -> str:
    """Return in what the instance differs from one that the group would create now; "" if
    in nothing that is known. version: of the group's launch template, a number that is
    never `Default`; 0: unknown."""
    template = instance.launch_template_id
    its = _source(template if isinstance(template, str) else "", instance.scaling_configuration_id)
    groups = _source(group.launch_template_id, group.active_scaling_configuration_id)
    if its != groups:
        return f"{its}, the group's is {groups}" if its and groups else ""
    number = str(instance.launch_template_version)
    numbered = number.isascii() and number.isdecimal() and len(number) < _LONGEST
    if not (group.launch_template_id and version and numbered) or int(number) == version:
        return ""
    return f"version {number} of {its}, the group's is {version}"


def _source(template: str, configuration: str) -> str:
    """Return what an instance is made of; the launch template takes precedence, as at ESS."""
    if template:
        return f"launch template {_shown(template)}"
    return f"scaling configuration {_shown(configuration)}" if configuration else ""


def _shown(name: str) -> str:
    return name[:_LONGEST]


def busy_group(
    group: ScalingGroup, instances: Iterable[ScalingInstance], activity: str = ""
) -> str:
    """Return who changes the group's instances now; "" if nobody does. activity:
    one that is known to run."""
    states = Counter(instance.lifecycle_state for instance in instances)
    added, removed = (sum(states[state] for state in several) for several in (_ADDED, _REMOVED))
    rows = (
        (group.lifecycle_state == "Locked", "Auto Scaling has locked the scaling group"),
        (bool(activity), f"scaling activity {_shown(activity)} is running"),
        (
            bool(added or removed),
            f"Auto Scaling is adding {added} and removing {removed} instances",
        ),
    )
    return next((text for applies, text in rows if applies), "")


def busy_instance(instance: ScalingInstance) -> str:
    """Return what ESS changes on the instance now; "" for nothing."""
    if instance.lifecycle_state in _ADDED:
        return f"Auto Scaling is adding it to its group ({instance.lifecycle_state})"
    return "Auto Scaling is removing it" if instance.lifecycle_state in _REMOVED else ""


def repairer(instance: ScalingInstance, group: ScalingGroup) -> str:
    """Return who replaces the instance because it is sick; "" for nobody."""
    several = group.health_check_types
    checks = [
        each
        for each in (several if isinstance(several, list) else [group.health_check_type])
        if each != "NONE"
    ]
    suspended = frozenset(group.suspended_processes or ()) & {"HealthCheck", "health-check"}
    return (
        _HEALTH_CHECK
        if instance.health_status == "Unhealthy" and any(checks) and not suspended
        else ""
    )


def with_notices(
    api: AlicloudApi, groups: Sequence[NodeGroup], gaps: list[MissingData]
) -> tuple[NodeGroup, ...]:
    """Return the groups with the deadlines of the instances that ECS takes back, read in one call
    for the region. A failure is a gap and changes nothing else.

    The deadline is the latest possible one, because ECS does not say when it has announced it: who
    has seen the notice before knows an earlier one."""
    place = f"spec.providers.{PROVIDER}"
    try:
        leaving = api.taken_back()
        if not leaving and (denied := api.instances_refusal()):
            text = f"{denied}, so preemptible instances leave without notice; grant it"
            gaps.append(MissingData("Interruption", text, place=place))
    except ProviderError as error:
        text = (
            f"which instances ECS takes back could not be read: {error.error_class}: "
            f"{error.message}"
        )
        gaps.append(MissingData("Interruption", text, place=place))
        return tuple(groups)
    deadline = api.now() + NOTICE
    return tuple(_with_deadline(group, leaving, deadline) if leaving else group for group in groups)


def _with_deadline(group: NodeGroup, leaving: frozenset[str], deadline: float) -> NodeGroup:
    if not any(instance.handle in leaving for instance in group.instances):
        return group
    instances = tuple(
        msgspec.structs.replace(instance, leaves_at=deadline)
        if instance.handle in leaving
        else instance
        for instance in group.instances
    )
    return msgspec.structs.replace(group, instances=instances)
