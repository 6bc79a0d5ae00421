"""Machines that more than one Node says it is, or whose only Node says that it is two machines.

A kubelet writes its own Node's providerID. A kubelet that is not to be trusted can name another machine there: taken at
its word, that machine would be removed as the idle Node that the kubelet serves. So a machine belongs to a Node only
where no other Node names it. Where two do, the planner knows only that the machine exists: neither Node is one of the
group's, and the machine is neither missing nor one that never joined.

Providers know the spellings of their ids and say whom they found (Instance.claimants); Nodes with exactly the same
providerID are found here for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.node import Node

SHOWN = 5
"""Nodes that a sentence names; a cluster may have thousands with one id."""


def contested(groups: Iterable[NodeGroup], nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """Instance id -> names of the Nodes that claim the machine, sorted; only for machines whose Node cannot be known.
    A machine that the vendor is deleting is left out: its Nodes go with it."""
    listed, bearers = set[str](), dict[str, set[str]]()
    for node in nodes:
        listed.add(node.name)
        if node.provider_id:
            bearers.setdefault(node.provider_id, set()).add(node.name)
    found: dict[str, tuple[str, ...]] = {}
    for group in groups:
        for instance in group.instances:
            if instance.state is not InstanceState.DELETING and (names := _claimants(instance, bearers, listed)):
                found[instance.id] = tuple(sorted(names.union(found.get(instance.id, ()))))
    return found


def _claimants(instance: Instance, bearers: Mapping[str, set[str]], listed: set[str]) -> set[str]:
    """The Nodes that claim an instance, none where one Node is known to be it."""
    if instance.claimants:
        return set(instance.claimants)
    claiming = bearers.get(instance.id, set()) | ({instance.node} & listed)
    return claiming if len(claiming) > 1 else set()


def some(names: Iterable[str]) -> str:
    """The names for a sentence, SHOWN of them at most."""
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
