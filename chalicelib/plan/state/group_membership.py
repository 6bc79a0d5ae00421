"""Determines how certain it is that a group's instances belong to this cluster.

A group that the policy names, or that the vendor lists for the cluster, belongs to the cluster. A group that was only
discovered through Nodes depends on what kubelets report about themselves: one Node with the providerID of another
cluster's instance makes that cluster's group look like one of ours, and all its other instances look as if they had
never joined. Three rules protect such a group.

    a discovered group, until most of its instances have been seen as Nodes    nothing is changed in it
    a discovered group, whenever most of its instances are not Nodes           nothing is deleted, no size is lowered
    an instance that the vendor made before the group was first seen           never deleted as one that did not join

The last rule applies to every discovered group, and to a named group of which not most instances are Nodes: a policy
may name the wrong group. See docs/reference/node-groups.md "Group ownership".
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
    """How many instances a group has, and how many of them are known to be Nodes of the cluster."""

    ours: int
    machines: int

    @property
    def most(self) -> bool:
        """True if more than half of the instances are Nodes, or if there are no instances."""
        return 2 * self.ours > self.machines or not self.machines


def shares(group: NodeGroup, joined: Collection[str], doubtful: Collection[str]) -> Shares:
    """joined: names and provider ids of the cluster's Nodes; doubtful: instances whose Node cannot be determined.
    Instances that are being deleted or that could not be created do not count."""
    machines = {each.id: each for each in group.instances if exists(each)}
    ours = sum(
        name not in doubtful and bool({name, each.node}.intersection(joined) - {""}) for name, each in machines.items()
    )
    return Shares(ours, len(machines))


def exists(instance: Instance) -> bool:
    """Return whether the instance exists and is not being deleted."""
    unmade = instance.state is InstanceState.CREATING and instance.error is not None and not instance.created
    return instance.state is not InstanceState.DELETING and not unmade


def trusted(group: NodeGroup, memory: GroupMemory, joined: Collection[str], doubtful: Collection[str]) -> NodeGroup:
    """Return the group, with an error if it was only discovered and nothing has shown yet that it belongs to this
    cluster."""
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


def why_kept(group: NodeGroup, instance: Instance, shares: Shares, first_seen: float) -> str:
    """Return why an instance that is not a Node is not deleted; "" if it may be. first_seen: of the group, epoch
    seconds. An instance created at exactly that time counts as existing before."""
    unknown = exists(instance) and not instance.created
    older = 0.0 < instance.created <= first_seen
    rows = (
        (group.discovered and not shares.most, _FEW.format(shares.ours, shares.machines)),
        (older and (group.discovered or not shares.most), _OLDER),
        (unknown and group.discovered, "the vendor does not say when it was made; name the group in the policy"),
    )
    return next((text for applies, text in rows if applies), "")
