"""Conversions between the ids of ESS instances, the providerIDs of nodes and our handles.

The planner matches instances and nodes by exact text, and two forms are in use: `cn-hangzhou.i-…`
and `alicloud://cn-hangzhou.i-…`. Each instance is therefore written as its own node writes it. An
instance without a node uses the form of most nodes. Nothing is stored beyond one pass, so a
mismatch is never permanent.

An instance that two Nodes name, in either form, has no known node (kit/node_identity.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.node import Node
from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.kit.node_identity import Identity, N

_SCHEME = "alicloud://"


def parse(provider_id: str) -> tuple[str, str] | None:
    """Return (region, instance id) of a node's providerID; None if it is empty or
    belongs to another cloud."""
    text = provider_id.removeprefix(_SCHEME)
    region, _, instance = text.partition(".")
    foreign = "/" in text or ":" in text
    return (region, instance) if region and instance and not foreign else None


def identify(nodes: Iterable[N], region: str) -> Identity[str, N]:
    """Return the nodes by instance id. If a listed id follows another region or a path, its
    instance gets no node. Such a match is not a coincidence."""

    def claimed(node: N) -> tuple[str, ...]:
        place = parse(node.provider_id)
        return (place[1],) if place is not None and place[0] == region else ()

    def hinted(node: N) -> tuple[str, ...]:
        instance = node.provider_id.strip().rpartition("/")[2].rpartition(".")[2].lower()
        return (instance,) if instance else ()

    return Identity(nodes, claimed, hinted)


class AlicloudGroupNames:
    """The cluster's nodes by instance id, and the providerID form that they use. Only
    nodes of this region count."""

    def __init__(self, nodes: Iterable[Node], region: str) -> None:
        self._region = region
        nodes = tuple(nodes)
        self._identity = identify(nodes, region)
        places = [(node.provider_id, parse(node.provider_id)) for node in nodes]
        ours = [
            provider_id for provider_id, place in places if place is not None and place[0] == region
        ]
        self._count = len(ours)
        self._scheme = (
            _SCHEME if 2 * sum(name.startswith(_SCHEME) for name in ours) > len(ours) else ""
        )

    def __len__(self) -> int:
        """Return the number of nodes in the region."""
        return self._count

    def node_of(self, instance: str) -> Node | None:
        """Return the node of an instance; None if it has not joined or its node is ambiguous."""
        return self._identity.node_of(instance)

    def claimants(self, instance: str) -> tuple[str, ...]:
        """Return the nodes that claim an instance whose node is ambiguous."""
        return self._identity.claimants(instance)

    def spell(self, instance: str) -> str:
        """Return the provider id of an instance in the form that its node uses or would use."""
        node = self._identity.node_of(instance)
        return node.provider_id if node is not None else f"{self._scheme}{self._region}.{instance}"


def placeholder_id(region: str, handle: str) -> str:
    """Return the provider id of a placeholder, `{region}.placeholder-{asg}-{n}`."""
    return f"{region}.{handle}"


def handle_of(target: RemovalTarget) -> str:
    """Return the instance id or placeholder of a target; empty if neither its handle nor its
    provider id contains one."""
    place = parse(target.instance)
    return target.handle or (place[1] if place is not None else "")
