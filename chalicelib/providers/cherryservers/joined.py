"""What the cluster itself says of its nodes while a change is made: who has joined, and who controls it.

A pass has listed the nodes and hands them over; a change comes minutes later and asks for itself. A node whose
providerID is still empty is known by its name (cherryservers.md §2), so names are read too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.cherryservers.final import Final
from chalicelib.providers.cherryservers.naming import alike, parse
from chalicelib.providers.cherryservers.wire import Server
from chalicelib.providers.errors import Transient
from chalicelib.providers.kube_api import KubeLists

Lister = Callable[[str], "tuple[Seen, ...]"]


class Seen(msgspec.Struct, frozen=True):
    """A node as it is now."""

    name: str
    provider_id: str = ""
    labels: dict[str, str] = {}

    def is_of(self, server: Server) -> bool:
        """Whether the server has become this node: by id, or by name where the node has none yet. A node of another
        cloud that bears the name counts as well: names that mean two things are no ground to delete on."""
        number = parse(self.provider_id)
        return number == server.id if number is not None else alike(self.name, server.hostname)


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True):
    provider_id: str | None = msgspec.field(default=None, name="providerID")


class _Node(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _List(msgspec.Struct, frozen=True):
    items: list[_Node] | None = None


def lister(kube: KubeLists) -> Lister:
    """Label selector ("" for all) -> the nodes; raises Transient where they cannot be read: who cannot see the nodes
    must not delete a machine that may be one."""
    def read(selector: str) -> tuple[Seen, ...]:
        found: list[Seen] = []
        try:
            for page in kube.list_pages("/api/v1/nodes", query={"labelSelector": selector} if selector else None):
                if page.first:
                    found.clear()
                items = msgspec.json.decode(page.body, type=_List).items or ()
                found += [Seen(each.metadata.name, each.spec.provider_id or "", each.metadata.labels or {})
                          for each in items]
        except (OutscalerError, msgspec.MsgspecError, UnicodeError) as error:
            raise Transient(f"the cluster's nodes could not be read: {error}") from None
        return tuple(found)

    return read


def spare_the_joined(nodes: Lister | None, servers: Iterable[Server]) -> None:
    """Raises Final if one of the servers is a node by now; where there is no way to the cluster nobody can say, and
    the caller has looked by name (execute/discard.py)."""
    if nodes is None:
        return
    seen = nodes("")
    joined = sorted(f"{node.name} (server {server.id})" for server in servers for node in seen if node.is_of(server))
    if joined:
        raise Final(f"{', '.join(joined)} has joined the cluster meanwhile")


def controllers(nodes: Lister | None, labels: Iterable[str], servers: Iterable[Server]) -> frozenset[int]:
    """Those of the servers that are nodes with one of these labels: they control the cluster and are in no pool."""
    if nodes is None:
        return frozenset()
    seen = [node for label in labels for node in nodes(label) if label in node.labels]
    return frozenset(server.id for server in servers if any(node.is_of(server) for node in seen))
