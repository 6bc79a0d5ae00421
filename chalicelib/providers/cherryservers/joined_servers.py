"""Checks against the cluster's nodes during a change: which servers have joined, and which are control plane nodes.

A node whose providerID is still empty is identified by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.providers.cherryservers.instances import ServerList
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.node_matching import identify
from chalicelib.providers.cherryservers.provider_ids import alike, id_of, likely, parse
from chalicelib.providers.cluster_nodes import Seen, nodes
from chalicelib.providers.joined_nodes import refuse_changed, refuse_joined
from chalicelib.providers.kube_protocol import KubeLists

Lister = Callable[[str], tuple[Seen, ...]]


def lister(kube: KubeLists) -> Lister:
    """Return a function: label selector ("" for all) -> the nodes. It raises Transient if they cannot be read."""
    return lambda selector: nodes(kube, selector)


def spare_the_joined(listed: Lister | None, servers: Iterable[CherryServer]) -> None:
    """Raise Final if one of the servers is a node by now.

    Without access to the cluster this cannot be checked; the caller has already checked by name
    (operations/steps/repairs.py)."""
    if listed is None:
        return
    seen = listed("")
    refuse_joined(f"{node.name} (server {server.id})" for server in servers for node in seen if _is_of(node, server))


def controllers(listed: Lister | None, labels: Iterable[str], servers: Iterable[CherryServer]) -> frozenset[int]:
    """Return the servers that are nodes with one of these labels: they are control plane nodes and belong to no
    pool."""
    if listed is None:
        return frozenset()
    seen = [node for label in labels for node in listed(label) if label in node.labels]
    return frozenset(server.id for server in servers if any(_is_of(node, server) for node in seen))


def check_nodes(
    listed: Lister | None, operation: Operation, roll: ServerList, servers: Mapping[int, CherryServer]
) -> None:
    """Raise Final unless every server is still, without doubt, the node that was planned.

    servers: those to be deleted, by number. Without access to the cluster this cannot be checked."""
    if listed is None:
        return
    seen = listed("")
    identity = identify(seen, roll)

    def among(target: RemovalTarget) -> int | None:
        number = id_of(target)
        if number is None:
            number = next((each.id for each in servers.values() if alike(each.hostname, target.node)), None)
        return number if number in servers else None

    refuse_changed(operation.spec.targets, among, identity, seen)


def _is_of(node: Seen, server: CherryServer) -> bool:
    """Whether the server has become this node: by id, or by name if the node has no providerID yet.

    A node of another cloud with the same name counts as well, because an ambiguous name must not justify a deletion."""
    number = parse(node.provider_id)
    if number is not None:
        return number == server.id
    return likely(node.provider_id) == server.id or alike(node.name, server.hostname)
