"""What the cluster itself says of its nodes while a change is made: who has joined, and who controls it.

A node whose providerID is still empty is known by its name (cherryservers.md §2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chalicelib.providers.cherryservers.final import Final
from chalicelib.providers.cherryservers.naming import alike, parse
from chalicelib.providers.cherryservers.wire import Server
from chalicelib.providers.kube_api import KubeLists
from chalicelib.providers.workload import Seen, nodes

Lister = Callable[[str], tuple[Seen, ...]]


def lister(kube: KubeLists) -> Lister:
    """Label selector ("" for all) -> the nodes; raises Transient where they cannot be read."""
    return lambda selector: nodes(kube, selector)


def spare_the_joined(listed: Lister | None, servers: Iterable[Server]) -> None:
    """Raises Final if one of the servers is a node by now; where there is no way to the cluster nobody can say, and
    the caller has looked by name (execute/discard.py)."""
    if listed is None:
        return
    seen = listed("")
    joined = sorted(f"{node.name} (server {server.id})" for server in servers for node in seen if _is_of(node, server))
    if joined:
        raise Final(f"{', '.join(joined)} has joined the cluster meanwhile")


def controllers(listed: Lister | None, labels: Iterable[str], servers: Iterable[Server]) -> frozenset[int]:
    """Those of the servers that are nodes with one of these labels: they control the cluster and are in no pool."""
    if listed is None:
        return frozenset()
    seen = [node for label in labels for node in listed(label) if label in node.labels]
    return frozenset(server.id for server in servers if any(_is_of(node, server) for node in seen))


def _is_of(node: Seen, server: Server) -> bool:
    """Whether the server has become this node: by id, or by name where the node has none yet. A node of another cloud
    that bears the name counts as well: names that mean two things are no ground to delete on."""
    number = parse(node.provider_id)
    return number == server.id if number is not None else alike(node.name, server.hostname)
