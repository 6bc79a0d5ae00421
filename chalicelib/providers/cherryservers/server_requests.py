"""The servers that one scale-up buys, with names derived from the operation's id.

The vendor supports no idempotency key. Therefore server n of an operation has the same host name in every attempt, and
a tag with the operation's id. A repeated operation finds its servers in the list, even if a user has renamed one or
removed its tags.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation
from chalicelib.providers.cherryservers.hostnames import hostname, letters_for
from chalicelib.providers.cherryservers.instances import ServerList, belongs
from chalicelib.providers.cherryservers.models import CherryServer, CreateServer
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.cherryservers.provider_ids import CLUSTER_TAG, OPERATION_TAG, POOL_TAG


class Order:
    """Servers 0 … count-1 of an operation."""

    def __init__(self, definition: Definition, operation: Operation) -> None:
        self.definition, self._operation = definition, operation
        self.count = operation.spec.to_size - operation.spec.from_size

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The servers' host names."""
        return tuple(
            hostname(self.definition, letters_for(f"{self._operation.spec.id}/{number}"))
            for number in range(self.count)
        )

    @property
    def tags(self) -> dict[str, str]:
        """The tags of each server."""
        return {
            CLUSTER_TAG: self.definition.cluster_name,
            POOL_TAG: self.definition.pool,
            OPERATION_TAG: self._operation.spec.id,
        }

    def bodies(self, numbers: Iterable[int], user_data: str) -> tuple[CreateServer, ...]:
        """Return the requests for these servers."""
        of = self.definition
        return tuple(
            CreateServer(
                project_id=of.project_id,
                plan=of.plan,
                hostname=self.names[number],
                image=of.os,
                region=of.region,
                ssh_keys=of.ssh_key_ids or None,
                user_data=user_data,
                tags=self.tags,
                os_partition_size=of.os_partition_size,
                spot_market=of.spot,
            )
            for number in numbers
        )

    def found(self, roll: ServerList, made: dict[int, int]) -> dict[int, CherryServer]:
        """Return the existing servers by number, including leaving ones, because they were bought.

        Servers are found by name (of two, one that is not leaving, then the elder), by id, and renamed ones by their
        tag. made: the ids that the vendor has reported so far."""
        ours = self._ours(roll)
        listed = {server.id: server for servers in ours.values() for server in servers}
        found = {number: listed[server] for number, server in made.items() if server in listed}
        for number, name in enumerate(self.names):
            if bearing := ours.get(name.casefold()):
                found[number] = min(bearing, key=lambda each: (roll.leaves(each), each.id))
        taken = {server.id for server in found.values()} | set(made.values())
        renamed = [
            server
            for name, servers in sorted(ours.items())
            for server in servers
            if server.id not in taken and name not in self._known
        ]
        free = [number for number in range(self.count) if number not in found and number not in made]
        return found | dict(zip(free, renamed, strict=False))

    def surplus(self, roll: ServerList, found: dict[int, CherryServer]) -> tuple[CherryServer, ...]:
        """Return second servers of one name that are still being deployed.

        They exist if an order that seemed lost was executed after all. Two servers of one name cannot both become
        nodes."""
        kept = {server.id for server in found.values()}
        ours = [server for name, servers in self._ours(roll).items() if name in self._known for server in servers]
        return tuple(
            server
            for server in sorted(ours, key=lambda each: each.id)
            if server.id not in kept
            and not roll.leaves(server)
            and self._is_marked(server)
            and roll.standing(server).state is InstanceState.CREATING
        )

    def untagged(self, servers: ServerList, found: dict[int, CherryServer]) -> tuple[CherryServer, ...]:
        """Return the found servers that no pool would count."""
        return tuple(
            server
            for _, server in sorted(found.items())
            if not belongs(server, self.definition) and not servers.leaves(server)
        )

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(name.casefold() for name in self.names)

    def _is_marked(self, server: CherryServer) -> bool:
        return server.tags.get(OPERATION_TAG) == self._operation.spec.id

    def _ours(self, servers: ServerList) -> dict[str, list[CherryServer]]:
        """Return the operation's servers by host name, the elder first."""
        ours: dict[str, list[CherryServer]] = {}
        for _, server in sorted(servers.by_id.items()):
            name = server.hostname.casefold()
            if name in self._known or self._is_marked(server):
                ours.setdefault(name, []).append(server)
        return ours
