"""The shared context of all calls: settings, definitions, the vendor's API and the cluster, each created on first use.

The project is named in the definitions, and those may be in a secret, so even the API is unknown before the first call.
An error in them is an error of that call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.policy.vendors.cherryservers import PROVIDER, CherryBounds, CherrySettings
from chalicelib.providers.cherryservers.api import CherryApi
from chalicelib.providers.cherryservers.decoding import UnreadableServer
from chalicelib.providers.cherryservers.definition_reader import Definitions
from chalicelib.providers.cherryservers.instances import Lister, ServerList
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.cherryservers.tokens import Tokens
from chalicelib.providers.errors import InvalidRequest, ProviderError, Transient, Unknown
from chalicelib.providers.services import Cache, TtlCache

KEPT = 3600.0  # seconds for which a deleted server is remembered
_TRIES = 3


class CherryContext:
    """open_api and open_gone: by the project's number. nodes: None if the cluster cannot be reached."""

    def __init__(
        self,
        settings: CherrySettings,
        *,
        read_definitions: Callable[[], Definitions],
        open_api: Callable[[int], CherryApi],
        open_gone: Callable[[int], DeletedServers],
        open_tokens: Callable[[], Tokens],
        nodes: Lister | None,
    ) -> None:
        self.settings, self.nodes = settings, nodes
        self._read_definitions, self._open_api, self._open_gone = read_definitions, open_api, open_gone
        self._open_tokens = open_tokens

    @cached_property
    def definitions(self) -> Definitions:
        """Return the definitions. Raises InvalidRequest for an error that affects every pool, Transient if they cannot
        be read now."""
        try:
            return self._read_definitions()
        except ProviderError:
            raise
        except BadInput as mistake:
            raise InvalidRequest(str(mistake), code="Definitions") from None
        except OutscalerError as error:
            raise Transient(str(error), code="Definitions") from None

    @cached_property
    def api(self) -> CherryApi:
        """Return the vendor's API for the project."""
        return self._open_api(self.definitions.project)

    @cached_property
    def gone(self) -> DeletedServers:
        """Return the servers of the project that Outscaler has deleted recently."""
        return self._open_gone(self.definitions.project)

    @cached_property
    def tokens(self) -> Tokens:
        """Return the source of bootstrap tokens."""
        return self._open_tokens()

    def bounds(self, group: str) -> CherryBounds:
        """Return the policy's bounds of a pool. Raises InvalidRequest for a pool that the policy does not name, whose
        servers must not be changed."""
        for bounds in self.settings.groups:
            if bounds.name == group:
                return bounds
        raise InvalidRequest(f"the policy names no pool {group} of {PROVIDER}")

    def definition(self, group: str) -> Definition:
        """Return the definition of one pool; raises InvalidRequest, which affects this pool only."""
        try:
            return self.definitions.of(group)
        except BadInput as mistake:
            raise InvalidRequest(str(mistake), code="Definition") from None

    def servers(self, definition: Definition | None = None) -> ServerList:
        """Return the current servers of the project; raises ProviderError. definition: the pool that is to be changed;
        raises Unknown if an unreadable row of the list may be one of its servers."""
        odd: list[UnreadableServer] = []
        servers = self.api.servers(odd)
        if definition is not None:
            for row in odd:
                if row.may_be_of(definition, untagged=True):
                    raise Unknown(row.why)
        return ServerList(servers, self.gone.among(server.id for server in servers), odd)


class DeletedServers:
    """The recently deleted servers of one project, which do not count while a list still reports them as `active`. now:
    epoch seconds. One row per project in the cache shared by all functions. It is written after the deletion: a crash
    in between leaves a server that is deleted once more, which is harmless. The reverse order could leave out a running
    server."""

    def __init__(self, cache: Cache, project: int, now: Callable[[], float]) -> None:
        self._cache, self._key, self._now = cache, f"cherryservers/deleted/{project}", now

    def among(self, servers: Iterable[int]) -> frozenset[int]:
        """Return those of the ids that Outscaler has deleted within the hour."""
        return frozenset(int(number) for number in self._row().get(str(server) for server in servers))

    def add(self, servers: Iterable[int]) -> None:
        """Add ids to the row. Other functions write the same row and the last write wins, so it is read again
        afterwards. An id that is still lost counts as running until the list reports otherwise."""
        missing = frozenset(servers)
        for _ in range(_TRIES):
            if not missing:
                return
            self._row().put({str(number): True for number in sorted(missing)}, known=KEPT, unknown=0.0)
            missing -= self.among(missing)

    def _row(self) -> TtlCache[bool]:
        """Return the row, read each time to include writes by other functions."""
        return TtlCache(self._cache, lambda: self._key, bool, self._now)
