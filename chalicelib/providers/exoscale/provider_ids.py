"""Conversions between the vendor's machine ids, nodes' providerIDs and our handles.

A providerID that is not `exoscale://` and a UUID belongs to another provider, or is not set yet;
neither is an error. The planner matches instances and nodes by exact text, so each machine is
written as its own node writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from chalicelib.model.node import Node
from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.group_builder import placeholder_group
from chalicelib.providers.kit.node_identity import Identity, N

NODEPOOL_LABEL = "node.exoscale.net/nodepool-id"
"""What a Nodepool's kubelets write on their nodes."""
_SCHEME = "exoscale://"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.ASCII | re.IGNORECASE)


def is_id(text: str) -> bool:
    """Whether this is a UUID as the vendor writes it; capitals are as good as small letters."""
    return _UUID.match(text) is not None


def checked(text: str, what: str) -> str:
    """The id in small letters; raises InvalidRequest, so that nothing is
    sent. what: `instance pool`."""
    if not is_id(text):
        raise InvalidRequest(f"{text[:80]!r} is not the id of an {what}", code="Id")
    return text.lower()


def parse(provider_id: str) -> str:
    """Return the machine's id in lower case; "" for an empty providerID and
    for those of other clouds."""
    name = provider_id.removeprefix(_SCHEME)
    return name.lower() if provider_id.startswith(_SCHEME) and is_id(name) else ""


def identify(nodes: Iterable[N], ids_by_name: Mapping[str, str] | None = None) -> Identity[str, N]:
    """Return the nodes by machine. ids_by_name: names of machines -> their ids. A node is
    contradictory if its name is that of a machine other than the one its providerID names, or of a
    machine that another node names. A kubelet can choose its providerID and cannot change its
    node's name."""
    nodes = tuple(nodes)
    claimed = {parse(node.provider_id) for node in nodes} - {""}

    def claims(node: N) -> frozenset[str]:
        return frozenset({parse(node.provider_id)} - {""})

    def hints(node: N) -> tuple[str, ...]:
        tail = node.provider_id.strip().rpartition("/")[2]
        namesake = (ids_by_name or {}).get(node.name, "")
        return (
            *((tail.lower(),) if is_id(tail) else ()),
            *((namesake,) if namesake and (node.provider_id or namesake in claimed) else ()),
        )

    return Identity(nodes, claims, hints)


class ExoscaleGroupNames:
    """The cluster's nodes in this cloud, by machine. ids_by_name: names of machines -> their ids,
    according to the vendor; empty before the vendor's list has been read."""

    def __init__(self, nodes: Iterable[Node], ids_by_name: Mapping[str, str] | None = None) -> None:
        self._nodes = tuple(nodes)
        self._identity = identify(self._nodes, ids_by_name)
        self._without_provider_id = {node.name for node in self._nodes if not node.provider_id}

    def knowing(self, ids_by_name: Mapping[str, str]) -> ExoscaleGroupNames:
        """Return the same nodes, checked against the machines' names."""
        return ExoscaleGroupNames(self._nodes, ids_by_name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the machines that are nodes."""
        return iter(self._identity.machines())

    def node_of(self, instance: str) -> Node | None:
        """Return the node of a machine; None if it has not joined or its node is ambiguous."""
        return self._identity.node_of(instance)

    def claimants(self, instance: str) -> tuple[str, ...]:
        """Return the nodes that claim a machine whose node is ambiguous."""
        return self._identity.claimants(instance)

    def may_be(self, name: str) -> bool:
        """Whether a node without a providerID has the machine's name. Without the vendor's cloud
        controller no node has a providerID, and every machine would seem never to have joined."""
        return name in self._without_provider_id

    def nodepools(self) -> frozenset[str]:
        """Return the Nodepools that the nodes name."""
        return frozenset(
            node.labels[NODEPOOL_LABEL].lower()
            for machine in self
            if (node := self.node_of(machine)) is not None and NODEPOOL_LABEL in node.labels
        )

    def spell(self, instance: str) -> str:
        """Return the provider id of a machine in the form that its node uses or would use."""
        node = self.node_of(instance)
        return node.provider_id if node is not None else f"{_SCHEME}{instance}"


def placeholder_id(handle: str) -> str:
    """Return a placeholder's provider id, which no machine has."""
    return f"{_SCHEME}{handle}"


def handle_of(target: RemovalTarget) -> str:
    """Return the machine's id or the placeholder of a target; "" if neither its handle nor its
    provider id contains one."""
    handle = target.handle or target.instance.removeprefix(_SCHEME)
    if placeholder_group(handle) is not None:
        return handle
    if target.handle:
        return handle.lower() if is_id(handle) else ""
    return parse(target.instance)
