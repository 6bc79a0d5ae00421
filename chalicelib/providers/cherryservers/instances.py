"""The servers of a project as listed at one instant, and which of them are a pool's (cherryservers.md §2).

A pool is nothing but its members: those that bear the name of its cluster and its own name, both (D5, D24). What a
node's label says makes nobody a member. Sizes are counted anew from every list (D11), without those that are leaving
(D12).
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
    """One list. gone: ids that we have deleted, whatever the list says of them. odd: rows that cannot be read."""

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
        """Of a pool, also the leaving ones, by id."""
        return tuple(self._pools.get((definition.cluster_name, definition.pool), ()))

    def doubt(self, definition: Definition) -> str:
        """Why it is not known which servers a pool has; "" where it is."""
        return next((each.why for each in self._odd if each.may_be_of(definition)), "")

    def crew(self, definition: Definition) -> tuple[CherryServer, ...]:
        """Of a pool, those that count."""
        return tuple(each for each in self.members(definition) if not self.leaves(each))

    def leaves(self, server: CherryServer) -> bool:
        """Whether it is being deleted: the vendor says so, or we have done it."""
        return server.id in self._gone or is_leaving(server)

    def lives(self, server: int) -> bool:
        """Whether it is listed and not being deleted."""
        return server in self.by_id and not self.leaves(self.by_id[server])

    def standing(self, server: CherryServer) -> ServerState:
        """Its state, with what we know better than the list."""
        return ServerState(InstanceState.DELETING) if server.id in self._gone else server_state(server)

    def is_only(self, hostname: str) -> bool:
        """Whether one server of the project bears that name, and no second: only then the name says who it is (D16)."""
        return self._names[hostname.casefold()] == 1


def belongs(server: CherryServer, definition: Definition) -> bool:
    """Whether it bears both tags."""
    return (server.tags.get(CLUSTER_TAG), server.tags.get(POOL_TAG)) == (definition.cluster_name, definition.pool)
