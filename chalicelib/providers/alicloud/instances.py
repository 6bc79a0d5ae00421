"""Instances of a scaling group as the core knows them (alicloud.md §5; defects 7, 10 and 11).

A creation that failed leaves no instance behind at ESS. Placeholders stand for what is missing, so that the core sees
the failure in the same pass, backs the group off, and takes the missing ones back by discarding them.
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
"""ESS makes no more in one step (§3.4); a number beyond it is no machine's."""


def classify(instances: Iterable[ScalingInstance], names: AlicloudGroupNames) -> tuple[Instance, ...]:
    """All instances but the stopped ones, each once, by id. A state nobody has heard of is running if it is a node,
    else on its way."""
    found = {each.instance_id: each for each in instances if each.instance_id and each.lifecycle_state != STOPPED}
    return tuple(_one(each, names) for _, each in sorted(found.items()))


def _one(instance: ScalingInstance, names: AlicloudGroupNames) -> Instance:
    node = names.node_of(instance.instance_id)
    unheard = InstanceState.RUNNING if node is not None else InstanceState.CREATING
    state = _STATES.get(instance.lifecycle_state, unheard)
    if node is not None and state is InstanceState.CREATING:
        state = InstanceState.RUNNING  # a life-cycle hook that is still waited for keeps no kubelet from joining
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
    """One for each missing machine. Only CREATING ones with an error are looked at by the core (§5)."""
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
    """Why we do not ask for this one's removal, empty where we do. What a person has protected stays; what a person has
    attached, and not entrusted to it, ESS would only let go of: it would run on, cost money, and be a node that nobody
    looks after (§3.5)."""
    name = instance.instance_id
    if instance.lifecycle_state == "Protected":
        return f"{name} is protected in the scaling group; take it out of protection to let it go"
    if instance.creation_type == "Attached" and not instance.entrusted:
        return f"{name} was attached by hand, so it would run on after its removal; remove it by hand"
    return ""
