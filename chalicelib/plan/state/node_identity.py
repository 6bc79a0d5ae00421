"""Finds instances that more than one Node claims to be, or whose only Node claims two instances.

A kubelet writes the providerID of its own Node. An untrusted kubelet can name another instance there; if that were
believed, that instance would be removed as the idle Node that the kubelet serves. An instance therefore belongs to a
Node only if no other Node names it. If two do, the planner knows only that the instance exists: neither Node belongs to
the group, and the instance is neither missing nor one that never joined.

Providers know the spellings of their ids and report the matching Nodes (Instance.claimants); Nodes with exactly equal
providerIDs are found here for all providers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.node import Node

SHOWN = 5
"""Maximum nodes named in a message; a cluster may have thousands with one id."""


def contested(groups: Iterable[NodeGroup], nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """Return instance id -> sorted names of the Nodes that claim the instance, for instances whose Node cannot be
    determined. An instance that the vendor is deleting is left out: its Nodes go with it."""
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
    """Return the Nodes that claim an instance, none if its Node is known."""
    if instance.claimants:
        return set(instance.claimants)
    claiming = bearers.get(instance.id, set()) | ({instance.node} & listed)
    return claiming if len(claiming) > 1 else set()


def some(names: Iterable[str]) -> str:
    """Return the names for a message, at most SHOWN of them."""
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
