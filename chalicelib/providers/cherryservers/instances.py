"""The servers of a project, listed at one instant, and their assignment to pools.

The members of a pool are the servers with both tags, the name of its cluster and its own name; node labels do not
matter. Sizes are counted from every new list, without leaving servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chalicelib.model.group import InstanceState
from chalicelib.providers.cherryservers.instance_states import ServerState, is_leaving, server_state
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.cherryservers.provider_ids import CLUSTER_TAG, POOL_TAG
from chalicelib.providers.cherryservers.server_list import UnreadableServer


class ServerList:
    """One list. gone: ids that Outscaler has deleted, even if the list contains them. odd: rows that cannot be read."""

    def __init__(
        self,
        servers: Iterable[CherryServer],
        gone: frozenset[int] = frozenset(),
        odd: Iterable[UnreadableServer] = (),
    ) -> None:
        self._odd = tuple(odd)
        self.by_id = {each.id: each for each in servers}
        self._gone = gone
        self._pools: dict[tuple[str, str], list[CherryServer]] = {}
        for _, each in sorted(self.by_id.items()):
            self._pools.setdefault((each.tags.get(CLUSTER_TAG, ""), each.tags.get(POOL_TAG, "")), []).append(each)
        self._names = Counter(each.hostname.casefold() for each in self.by_id.values() if not self.leaves(each))

    def members(self, definition: Definition) -> tuple[CherryServer, ...]:
        """Return the servers of a pool by id, including leaving ones."""
        return tuple(self._pools.get((definition.cluster_name, definition.pool), ()))

    def tagged_otherwise(self, definition: Definition) -> tuple[CherryServer, ...]:
        """Return the servers that bear the tags of a pool in the form of the vendor's guide, `k8s-cluster-NAME` and
        `k8s-nodepool-NAME`, and not as key and value. They are no members: every upstream release counts the latter."""
        names = {f"{CLUSTER_TAG}-{definition.cluster_name}", f"{POOL_TAG}-{definition.pool}"}
        return tuple(
            each
            for _, each in sorted(self.by_id.items())
            if names <= each.tags.keys() | set(each.tags.values()) and not belongs(each, definition)
        )

    def doubt(self, definition: Definition) -> str:
        """Return why the members of a pool are uncertain; "" if they are known."""
        return next((each.why for each in self._odd if each.may_be_of(definition)), "")

    def crew(self, definition: Definition) -> tuple[CherryServer, ...]:
        """Return the servers of a pool that count towards its size."""
        return tuple(each for each in self.members(definition) if not self.leaves(each))

    def leaves(self, server: CherryServer) -> bool:
        """Whether the server is being deleted, according to the vendor or because Outscaler has deleted it."""
        return server.id in self._gone or is_leaving(server)

    def lives(self, server: int) -> bool:
        """Whether the server is listed and not being deleted."""
        return server in self.by_id and not self.leaves(self.by_id[server])

    def standing(self, server: CherryServer) -> ServerState:
        """Return its state; a recent deletion by Outscaler overrides the list."""
        return ServerState(InstanceState.DELETING) if server.id in self._gone else server_state(server)

    def is_only(self, hostname: str) -> bool:
        """Whether exactly one server of the project has this name. Only then does the name identify it."""
        return self._names[hostname.casefold()] == 1


def belongs(server: CherryServer, definition: Definition) -> bool:
    """Whether the server has both tags of the pool."""
    return (server.tags.get(CLUSTER_TAG), server.tags.get(POOL_TAG)) == (definition.cluster_name, definition.pool)
