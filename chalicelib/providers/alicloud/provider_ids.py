"""Ids: how an ECS instance is called by ESS, by the cluster's nodes and by us (alicloud.md §2, defects 9 and 10).

The core matches instances and nodes letter by letter, and there are two spellings in the world: `cn-hangzhou.i-…` and
`alicloud://cn-hangzhou.i-…`. So each instance is spelled as its own node spells it, and one that has no node yet as
most of the cluster's nodes are. Nothing is remembered beyond one pass, so that a miss is never for ever.

An instance that two Nodes name, in whatever spelling, has no Node that is known (providers/identity.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.node import Node
from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.node_identity import Identity, N

_SCHEME = "alicloud://"
_PLACEHOLDER = "placeholder-"


def parse(provider_id: str) -> tuple[str, str] | None:
    """(region, instance id) of a node's providerID; None for an empty one and for those of other clouds."""
    text = provider_id.removeprefix(_SCHEME)
    region, _, instance = text.partition(".")
    foreign = "/" in text or ":" in text
    return (region, instance) if region and instance and not foreign else None


def identify(nodes: Iterable[N], region: str) -> Identity[str, N]:
    """The nodes by instance id. A listed id after another region or a path gives an instance no node, and is no
    chance."""

    def claimed(node: N) -> tuple[str, ...]:
        place = parse(node.provider_id)
        return (place[1],) if place is not None and place[0] == region else ()

    def hinted(node: N) -> tuple[str, ...]:
        instance = node.provider_id.strip().rpartition("/")[2].rpartition(".")[2].lower()
        return (instance,) if instance else ()

    return Identity(nodes, claimed, hinted)


class AlicloudGroupNames:
    """The cluster's nodes by instance id, and the spelling that they use. Only nodes of this region count."""

    def __init__(self, nodes: Iterable[Node], region: str) -> None:
        self._region = region
        ours = tuple(nodes)
        self._identity = identify(ours, region)
        places = [
            each.provider_id.startswith(_SCHEME)
            for each in ours
            if (place := parse(each.provider_id)) is not None and place[0] == region
        ]
        self._count = len(places)
        self._scheme = _SCHEME if 2 * sum(places) > len(places) else ""

    def __len__(self) -> int:
        """How many nodes of the region there are."""
        return self._count

    def node_of(self, instance: str) -> Node | None:
        """The node that an instance has become; None while it has not joined, and where that cannot be known."""
        return self._identity.node_of(instance)

    def claimants(self, instance: str) -> tuple[str, ...]:
        """The nodes that claim an instance whose node cannot be known."""
        return self._identity.claimants(instance)

    def spell(self, instance: str) -> str:
        """The provider id of an instance, as its node has it or would have it."""
        node = self._identity.node_of(instance)
        return node.provider_id if node is not None else f"{self._scheme}{self._region}.{instance}"


def placeholder_handle(group: str, number: int) -> str:
    """`placeholder-{asg}-{n}`: a machine that was asked for and could not be made (§5)."""
    return f"{_PLACEHOLDER}{group}-{number}"


def placeholder_id(region: str, group: str, number: int) -> str:
    """`{region}.placeholder-{asg}-{n}`; no instance id begins so."""
    return f"{region}.{placeholder_handle(group, number)}"


def is_placeholder(handle: str) -> bool:
    """Whether it stands for a machine that there is not."""
    return handle.startswith(_PLACEHOLDER)


def placeholder_group(handle: str) -> str:
    """The group of a placeholder's handle."""
    return handle.removeprefix(_PLACEHOLDER).rpartition("-")[0]


def handle_of(target: RemovalTarget) -> str:
    """The instance id (or placeholder) of a target; empty where neither its handle nor its provider id says it."""
    place = parse(target.instance)
    return target.handle or (place[1] if place is not None else "")
