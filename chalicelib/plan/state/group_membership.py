"""Determines how certain it is that a group's instances belong to this cluster,
and an instance to a Node.

A group that the policy names, or that the vendor lists for the cluster, belongs to the cluster. A
group that was only discovered through Nodes depends on what kubelets report about themselves: one
Node with the providerID of another cluster's instance makes that cluster's group look like one of
ours, and all its other instances look as if they had never joined. Three rules protect such a
group.

    a discovered group, until most of its instances have been seen as Nodes    nothing is changed in
                                                                               it
    a discovered group, whenever most of its instances are not Nodes           nothing is deleted,
                                                                               no size is lowered
    an instance that the vendor made before the group was first seen           never deleted as one
                                                                               that did not join

The last rule applies to every discovered group, and to a named group of which not most instances
are Nodes: a policy may name the wrong group. See docs/reference/node-groups.md "Group ownership".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.memory import GroupMemory
from chalicelib.model.node import Node
from chalicelib.reasons.words import some

_FEW = (
    "only {} of {} machines of this discovered group are nodes of this cluster; name the group in "
    "the policy if it "
    "is this cluster's"
)
_OLDER = (
    "the vendor made it before this group was first seen, so it may be in use elsewhere; delete it "
    "at the vendor "
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
    """Return how many of a group's instances are Nodes. Those being deleted or that could not be
    created do not count. joined: names and provider ids of the cluster's Nodes; doubtful: instances
    whose Node cannot be determined.
    """
    machines = {instance.id: instance.node for instance in group.instances if exists(instance)}
    ours = sum(
        name not in doubtful and bool({name, node}.intersection(joined) - {""})
        for name, node in machines.items()
    )
    return Shares(ours, len(machines))


def exists(instance: Instance) -> bool:
    """Return whether the instance exists and is not being deleted."""
    unmade = (
        instance.state is InstanceState.CREATING
        and instance.error is not None
        and not instance.created
    )
    return instance.state is not InstanceState.DELETING and not unmade


def trusted(
    group: NodeGroup, memory: GroupMemory, joined: Collection[str], doubtful: Collection[str]
) -> NodeGroup:
    """Return the group, with an error if it was only discovered and nothing has shown yet that it
    belongs to this cluster."""
    if group.error or not group.discovered or memory.first_seen > 0.0:
        return group
    share = shares(group, joined, doubtful)
    error = (
        f"only {share.ours} of its {share.machines} machines are nodes of this cluster, so it may "
        "be another's; name "
        "the group in the policy if it is this cluster's"
    )
    return group if share.most else msgspec.structs.replace(group, error=error)


def why_kept(group: NodeGroup, instance: Instance, shares: Shares, first_seen: float) -> str:
    """Return why an instance that is not a Node is not deleted; "" if it may be. first_seen: of the
    group, epoch seconds. An instance created at exactly that time counts as existing before. All
    machines of a group with our mark are this cluster's."""
    if group.managed is not None:
        return ""
    unknown = exists(instance) and not instance.created
    older = 0.0 < instance.created <= first_seen
    rows = (
        (group.discovered and not shares.most, _FEW.format(shares.ours, shares.machines)),
        (older and (group.discovered or not shares.most), _OLDER),
        (
            unknown and group.discovered,
            "the vendor does not say when it was made; name the group in the policy",
        ),
    )
    return next((text for applies, text in rows if applies), "")


SHOWN = 5
"""Maximum nodes named in a message; a cluster may have thousands with one id."""


def contested_instances(
    groups: Iterable[NodeGroup], nodes: Collection[Node]
) -> dict[str, tuple[str, ...]]:
    """Return instance id -> sorted names of the Nodes that claim the instance, for instances whose
    Node is not known, because more than one Node claims it, or its only Node claims two. An
    instance that the vendor is deleting is omitted, because its Nodes go with it.

    A kubelet writes the providerID of its own Node. An untrusted kubelet can name another instance
    there; if that were believed, that instance would be removed as the idle Node that the kubelet
    serves. An instance therefore belongs to a Node only if no other Node names it. If two do, the
    planner knows only that the instance exists: neither Node belongs to the group, and the instance
    is neither missing nor one that never joined. Providers know the spellings of their ids and
    report the matching Nodes (Instance.claimants); Nodes with exactly equal providerIDs are found
    here.
    """
    names = {node.name for node in nodes}
    bearers: dict[str, set[str]] = {}
    for node in nodes:
        if node.provider_id:
            bearers.setdefault(node.provider_id, set()).add(node.name)
    contested: dict[str, tuple[str, ...]] = {}
    for group in groups:
        for instance in group.instances:
            claimants = set(instance.claimants)
            if not claimants:
                claimants = bearers.get(instance.id, set()) | ({instance.node} & names)
                claimants = claimants if len(claimants) > 1 else set()
            if instance.state is not InstanceState.DELETING and claimants:
                contested[instance.id] = tuple(
                    sorted(claimants.union(contested.get(instance.id, ())))
                )
    return contested


def names_for_message(names: Iterable[str]) -> str:
    """Return the names for a message, at most SHOWN of them."""
    return some(sorted(names), SHOWN)
