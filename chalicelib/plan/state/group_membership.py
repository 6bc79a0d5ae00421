"""How far it is known that a group's machines are this cluster's.

A group that the policy names, or that the vendor lists as the cluster's, is the cluster's own. A group that was only
discovered through Nodes rests on what kubelets say of themselves: one Node with the providerID of another cluster's
machine makes that cluster's group look like one of ours, with all its other machines as if they had never joined. Three
rules keep such a group as it is.

    a discovered group, until most of its machines have been seen as Nodes    nothing is changed in it
    a discovered group, whenever most of its machines are no Nodes            nothing is discarded, no size is lowered
    a machine that the vendor made before the group was first seen            never discarded as one that did not join

The last rule holds in every discovered group, and in a named group of which not most machines are Nodes: a policy may
name the wrong group.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.memory import GroupMemory

_FEW = (
    "only {} of {} machines of this discovered group are nodes of this cluster; name the group in the policy if it "
    "is this cluster's"
)
_OLDER = (
    "the vendor made it before this group was first seen, so it may be in use elsewhere; delete it at the vendor "
    "if it is not"
)


class Shares(msgspec.Struct, frozen=True):
    """How many machines a group has, and how many of them are Nodes of the cluster, each known to be one."""

    ours: int
    machines: int

    @property
    def most(self) -> bool:
        """Whether more than half of the machines are Nodes; of none, none are strangers."""
        return 2 * self.ours > self.machines or not self.machines


def shares(group: NodeGroup, joined: Collection[str], doubtful: Collection[str]) -> Shares:
    """joined: names and provider ids of the cluster's Nodes; doubtful: instances whose Node cannot be known. Machines
    that are being deleted count no more, and those that could not be made count not at all."""
    machines = {each.id: each for each in group.instances if exists(each)}
    ours = sum(
        name not in doubtful and bool({name, each.node}.intersection(joined) - {""}) for name, each in machines.items()
    )
    return Shares(ours, len(machines))


def exists(instance: Instance) -> bool:
    """Whether there is a machine, and it stays."""
    unmade = instance.state is InstanceState.CREATING and instance.error is not None and not instance.created
    return instance.state is not InstanceState.DELETING and not unmade


def trusted(group: NodeGroup, memory: GroupMemory, joined: Collection[str], doubtful: Collection[str]) -> NodeGroup:
    """The group; with an error where it was only discovered and nothing has shown yet that it is this cluster's."""
    if group.error or not group.discovered or memory.first_seen > 0.0:
        return group
    found = shares(group, joined, doubtful)
    if found.most:
        return group
    return msgspec.structs.replace(
        group,
        error=(
            f"only {found.ours} of its {found.machines} machines are nodes of this "
            f"cluster, so it may be another's; name "
            "the group in the policy if it is this cluster's"
        ),
    )


def why_kept(group: NodeGroup, instance: Instance, found: Shares, first_seen: float) -> str:
    """Why a machine that is no Node is not discarded; "" where it may be. first_seen: of the group, epoch seconds. What
    was made at that very instant was there when the group was seen."""
    unknown = exists(instance) and not instance.created
    older = 0.0 < instance.created <= first_seen
    rows = (
        (group.discovered and not found.most, _FEW.format(found.ours, found.machines)),
        (older and (group.discovered or not found.most), _OLDER),
        (unknown and group.discovered, "the vendor does not say when it was made; name the group in the policy"),
    )
    return next((text for applies, text in rows if applies), "")
