"""The shared context of all calls: settings, definitions, the vendor's API and the cluster, each created on first use.

The project is named in the definitions, and those may be in a secret, so even the API is unknown before the first call.
An error in them is an error of that call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.policy.vendors.cherryservers import PROVIDER, CherryBounds, CherrySettings
from chalicelib.providers.cherryservers.api import CherryApi
from chalicelib.providers.cherryservers.definition_reader import Definition, Definitions
from chalicelib.providers.cherryservers.deleted_servers import DeletedServers
from chalicelib.providers.cherryservers.instances import ServerList
from chalicelib.providers.cherryservers.joined_servers import Lister
from chalicelib.providers.cherryservers.server_list import UnreadableServer
from chalicelib.providers.cherryservers.token_source import Tokens
from chalicelib.providers.errors import InvalidRequest, ProviderError, Transient, Unknown


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
        """Return the definitions.

        Raises InvalidRequest for an error that affects every pool, Transient if they cannot be read now."""
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
        """Return the policy's bounds of a pool.

        Raises InvalidRequest for a pool that the policy does not name, whose servers must not be changed."""
        for each in self.settings.groups:
            if each.name == group:
                return each
        raise InvalidRequest(f"the policy names no pool {group} of {PROVIDER}")

    def definition(self, group: str) -> Definition:
        """Return the definition of one pool; raises InvalidRequest, which affects this pool only."""
        try:
            return self.definitions.of(group)
        except BadInput as mistake:
            raise InvalidRequest(str(mistake), code="Definition") from None

    def roll(self, definition: Definition | None = None) -> ServerList:
        """Return the current servers of the project; raises ProviderError.

        definition: the pool that is to be changed; raises Unknown if an unreadable row of the list may be one of its
        servers."""
        odd: list[UnreadableServer] = []
        servers = self.api.servers(odd)
        if definition is not None:
            for each in odd:
                if each.may_be_of(definition, untagged=True):
                    raise Unknown(each.why)
        return ServerList(servers, self.gone.among(each.id for each in servers), odd)
