"""Converts ESS instances to the instances of the model.

A failed creation leaves no instance at ESS. Placeholders stand for the missing instances, so the planner sees the
failure in the same pass, backs the group off, and lowers the target by deleting them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.timestamps import instant
from chalicelib.providers.alicloud.models import ScalingInstance
from chalicelib.providers.alicloud.provider_ids import AlicloudGroupNames, placeholder_handle, placeholder_id
from chalicelib.providers.alicloud.size_bounds import STOPPED

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
