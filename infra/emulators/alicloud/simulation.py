"""Simulates scaling groups: one activity at a time, machines with start-up times, and
failures that appear later.

The rules follow the vendor's documentation. The result of a request is visible only in its
activity. A failed activity leaves the desired capacity unchanged, and ESS retries by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from infra.emulators.alicloud.models import (
    GONE_SOON,
    NO_STOCK,
    QUOTA,
    Activity,
    AlicloudDurations,
    AlicloudGroup,
    AlicloudMachine,
    AlicloudProvisioningFate,
    Released,
)

_MOST_EVENTS = 100_000
_REJECTED = AlicloudProvisioningFate(
    "ProcessSuspended", "the process is suspended for the scaling group"
)


class SimulatedAccount(Protocol):
    """The part of an AlicloudCloud that the simulation reads and changes; its fields
    have their meaning there."""

    groups: dict[str, AlicloudGroup]
    stock: dict[tuple[str, str], int]
    quota: int | None
    times: AlicloudDurations
    released: list[Released]

    def number(self, kind: str) -> str:
        """The next id of this kind."""

    def candidates(self, group: AlicloudGroup) -> tuple[str, ...]:
        """Instance types that the group may make."""

    def definition(self, group: AlicloudGroup) -> tuple[int, str]:
        """The version of the launch template, 0 for a configuration, and the spot
        strategy of a new machine."""


def advance(cloud: SimulatedAccount, now: float) -> None:
    """Process what is due in every group, each event at its own time."""
    for group in list(cloud.groups.values()):
        for _ in range(_MOST_EVENTS):
            at = _next(group)
            if at is None or at > now:
                break
            _play(cloud, group, at)


def _next(group: AlicloudGroup) -> float | None:
    if group.gone_at is not None:
        return group.gone_at
    activity = group.running
    checks = (
        [activity.due]
        if activity is not None
        else [each for each in (group.check_at, group.health_at) if each]
    )
    return min((*checks, *(machine.released_at for machine in _to_release(group))), default=None)


def _to_release(group: AlicloudGroup) -> list[AlicloudMachine]:
    return [each for each in group.machines.values() if each.announced and not each.released]


def _play(cloud: SimulatedAccount, group: AlicloudGroup, at: float) -> None:
    due = [each for each in _to_release(group) if each.released_at <= at]
    if group.gone_at is not None:
        _drop(cloud, group, at)
    elif due:
        for machine in due:
            machine.released = True
            sicken(cloud, group, machine, at)
    elif group.running is None and group.health_at is not None and group.health_at <= at:
        group.health_at = None
        _replace(cloud, group, at)
    elif group.running is not None:
        _proceed(cloud, group, group.running, at)
    else:
        group.check_at = None
        balance(cloud, group, at)


def _drop(cloud: SimulatedAccount, group: AlicloudGroup, at: float) -> None:
    group.gone_at = None
    cloud.groups.pop(group.id, None)
    for machine in group.machines.values():
        _release(cloud, machine, at)


def sicken(
    cloud: SimulatedAccount, group: AlicloudGroup, machine: AlicloudMachine, at: float
) -> None:
    """Let a machine not run any more. The next health check of its group finds it."""
    machine.health = "Unhealthy"
    if group.health_at is None:
        group.health_at = at + cloud.times.health


def _replace(cloud: SimulatedAccount, group: AlicloudGroup, at: float) -> None:
    """Remove the machines that do not run, as a health check does; ESS makes others where the
    group has a desired capacity."""
    sick = [
        each.id
        for each in group.machines.values()
        if each.health == "Unhealthy" and each.state == "InService"
    ]
    if not sick or group.health_check == "NONE" or "HealthCheck" in group.suspended:
        return
    cause = f"{len(sick)} ECS instance(s) were found unhealthy."
    activity = shrink(cloud, group, sick, at, cause, trigger="Ess")
    activity.replaces = True


def balance(cloud: SimulatedAccount, group: AlicloudGroup, at: float) -> None:
    """Perform ESS's own check: create or remove machines up to the desired capacity, if the
    group has one and is active."""
    if group.desired is None or group.state != "Active" or group.system_suspended:
        return
    total = group.staying
    if total == group.desired:
        return
    cause = f"The capacity {total} differs from the desired capacity {group.desired}."
    if total < group.desired:
        grow(cloud, group, group.desired - total, at, cause, trigger="Ess")
    else:
        shrink(cloud, group, victims(group, total - group.desired), at, cause, trigger="Ess")


def _new(
    cloud: SimulatedAccount,
    group: AlicloudGroup,
    at: float,
    *,
    grows: bool,
    wanted: int,
    cause: str,
    trigger: str,
    metadata: str,
) -> Activity:
    activity = Activity(
        cloud.number("asa"), group.id, grows, wanted, at, at, trigger, cause, metadata
    )
    group.activities.append(activity)
    if ("ScaleOut" if grows else "ScaleIn") in group.suspended:
        activity.problems.append(_REJECTED)
        _close(cloud, group, activity, at, "Rejected")
    return activity


def grow(
    cloud: SimulatedAccount,
    group: AlicloudGroup,
    count: int,
    at: float,
    cause: str,
    *,
    trigger: str = "APIs",
    metadata: str = "",
) -> Activity:
    """Start to add machines. Available ones are Pending at once; the reason for missing ones is
    reported when the activity ends."""
    activity = _new(
        cloud, group, at, grows=True, wanted=count, cause=cause, trigger=trigger, metadata=metadata
    )
    if not activity.running:
        return activity
    version, spot = cloud.definition(group)
    for _ in range(count):
        fate = group.fates.pop(0) if group.fates else None
        place = None if fate is not None and not fate.late else _place(cloud, group)
        if place is None or isinstance(place, AlicloudProvisioningFate):
            activity.problems.append(fate or place or NO_STOCK)
            continue
        machine = AlicloudMachine(
            cloud.number("i"),
            group.id,
            place[1],
            place[0],
            "Pending",
            at,
            activity.id,
            configuration=group.configuration,
            spot=spot,
            fate=fate,
            template_version=version,
        )
        group.machines[machine.id] = machine
        activity.machines.append(machine.id)
    activity.due = at + (cloud.times.create if activity.machines else cloud.times.fail)
    return activity


def _place(
    cloud: SimulatedAccount, group: AlicloudGroup
) -> tuple[str, str] | AlicloudProvisioningFate:
    """Take the first instance type and zone in stock, or return the reason why there is none."""
    if (
        cloud.quota is not None
        and sum(len(each.machines) for each in cloud.groups.values()) >= cloud.quota
    ):
        return QUOTA
    for kind in cloud.candidates(group):
        for zone in group.zones:
            left = cloud.stock.get((kind, zone))
            if left is None or left > 0:
                if left is not None:
                    cloud.stock[kind, zone] = left - 1
                return (kind, zone)
    return NO_STOCK


def victims(group: AlicloudGroup, count: int) -> list[str]:
    """Return the machines that ESS itself selects for removal: the oldest that are neither
    protected nor on standby."""
    return [
        each.id
        for each in group.machines.values()
        if each.state in {"InService", "Pending", "Pending:Wait"}
    ][:count]


def shrink(
    cloud: SimulatedAccount,
    group: AlicloudGroup,
    ids: Sequence[str],
    at: float,
    cause: str,
    *,
    trigger: str = "APIs",
    metadata: str = "",
    ignored: int = 0,
    keeps: bool = False,
) -> Activity:
    """Start to remove these machines."""
    activity = _new(
        cloud,
        group,
        at,
        grows=False,
        wanted=len(ids),
        cause=cause,
        trigger=trigger,
        metadata=metadata,
    )
    if not activity.running:
        return activity
    activity.machines, activity.ignored, activity.keeps = list(ids), ignored, keeps
    activity.waiting = group.hook_out > 0.0
    for each in ids:
        group.machines[each].state = "Removing:Wait" if activity.waiting else "Removing"
    activity.due = at + (group.hook_out if activity.waiting else cloud.times.remove)
    return activity


def _proceed(cloud: SimulatedAccount, group: AlicloudGroup, activity: Activity, at: float) -> None:
    """Continue or end an activity whose time has come."""
    present = [group.machines[each] for each in activity.machines if each in group.machines]
    if activity.grows and group.hook_in > 0.0 and present and not activity.waiting:
        activity.waiting, activity.due = True, at + group.hook_in
        _into(present, "Pending:Wait")
    elif not activity.grows and activity.waiting:
        activity.waiting, activity.due = False, at + cloud.times.remove
        _into(present, "Removing")
    elif activity.grows:
        _grown(cloud, group, activity, present, at)
    else:
        _shrunk(cloud, group, activity, present, at)


def _into(machines: Sequence[AlicloudMachine], state: str) -> None:
    for machine in machines:
        machine.state = state


def _grown(
    cloud: SimulatedAccount,
    group: AlicloudGroup,
    activity: Activity,
    present: Sequence[AlicloudMachine],
    at: float,
) -> None:
    for machine in present:
        if machine.fate is not None:
            activity.problems.append(machine.fate)
            activity.machines.remove(machine.id)
            del group.machines[machine.id]
            _release(cloud, machine, at)
        elif machine.state in {"Pending", "Pending:Wait"}:
            machine.state, machine.served = "InService", at
    whole = "Successful" if not activity.problems else "Warning" if activity.machines else "Failed"
    _close(cloud, group, activity, at, whole)


def _shrunk(
    cloud: SimulatedAccount,
    group: AlicloudGroup,
    activity: Activity,
    present: Sequence[AlicloudMachine],
    at: float,
) -> None:
    for machine in present:
        if activity.keeps:
            machine.state = "Stopped"
        else:
            del group.machines[machine.id]
            _release(cloud, machine, at)
    _close(cloud, group, activity, at, "Warning" if activity.ignored else "Successful")


def _close(
    cloud: SimulatedAccount, group: AlicloudGroup, activity: Activity, at: float, status: str
) -> None:
    activity.status, activity.ended, activity.total_after = status, at, group.total
    if group.desired is not None and group.staying != group.desired:
        group.check_at = at + (0.0 if activity.replaces else cloud.times.check)


def _release(cloud: SimulatedAccount, machine: AlicloudMachine, at: float) -> None:
    cloud.released.append(Released(machine, at, kept=machine.creation == "Attached"))
    left = None if machine.released else cloud.stock.get((machine.type, machine.zone))
    if left is not None and machine.fate is None and machine.state in GONE_SOON:
        cloud.stock[machine.type, machine.zone] = left + 1
