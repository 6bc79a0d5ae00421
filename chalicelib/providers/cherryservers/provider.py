"""The Provider protocol over servers with tags: connects the modules of this package.

A configuration error is a failure that names it; the base class (providers/kit/base.py)
converts the vendor's errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from chalicelib.model.catalogue import Catalogue
from chalicelib.model.node import Node
from chalicelib.policy.vendors.cherryservers import PROVIDER, CherrySettings, read_settings
from chalicelib.providers.cherryservers import node_groups
from chalicelib.providers.cherryservers.api import open_api
from chalicelib.providers.cherryservers.catalogue import CURRENCY, read_catalogue
from chalicelib.providers.cherryservers.definition_reader import Definitions, read_definitions
from chalicelib.providers.cherryservers.delete_nodes import (
    cancel_delete,
    delete_nodes,
    own_marks,
    remove_group,
    restart,
)
from chalicelib.providers.cherryservers.instances import CherryContext, DeletedServers, lister
from chalicelib.providers.cherryservers.managed_groups import source_of
from chalicelib.providers.cherryservers.scale_up import decrease_target, has_requested, scale_up
from chalicelib.providers.cherryservers.tokens import open_tokens, parse_api_token
from chalicelib.providers.kit.base import BaseProvider, Connection, Observation, change, question
from chalicelib.providers.kit.catalogue_shelf import CatalogueShelf
from chalicelib.providers.kit.credential_source import SecretSource, account_digest
from chalicelib.providers.kit.managed_pools import ManagedPools, cluster_uid
from chalicelib.providers.kit.services import KubeLists, OneTimeRequests


class CherryServers(BaseProvider[CherryContext]):
    """The pools that a policy names, in one project, for one pass."""

    name = PROVIDER
    scale_up = change(scale_up)
    poll_scale_up = scale_up
    delete_nodes = change(delete_nodes)
    decrease_target = change(decrease_target)
    restart = change(restart)
    remove_group = change(remove_group)
    has_requested = question(has_requested)
    cancel_delete = question(cancel_delete)

    def __init__(self, context: CherryContext) -> None:
        super().__init__(context)

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read all pools, with one list of servers, and one plan per kind of server and hour."""
        return node_groups.observe(self.context, nodes)

    def catalogue(self, currency: str) -> Catalogue:
        """See CatalogueReader."""
        return read_catalogue(self.context.api, currency)

    def refresh_catalogue(self, *, buying: bool) -> bool:
        """See PoolMaker."""
        return self.context.managed.shelf.refresh(
            lambda: read_catalogue(self.context.api, CURRENCY), buying=buying
        )

    def own_marks(self) -> Mapping[str, Callable[[], None]]:
        """See PoolMaker."""
        return own_marks(self.context)


def _open_pools(
    connection: Connection, settings: CherrySettings, definitions: Callable[[], Definitions]
) -> ManagedPools:
    """Return the declarations of a policy. definitions: returns the pools' definitions."""
    credential = SecretSource(connection.read_secret, settings.credentials_secret, parse_api_token)
    shelf = CatalogueShelf(
        connection.means.cache,
        lambda: f"{PROVIDER}/{account_digest(credential.current())}/catalogue",
        connection.now,
    )
    return ManagedPools(
        connection.pools,
        shelf,
        lambda: cluster_uid(cast(KubeLists | None, connection.kube)),
        lambda pool: source_of(definitions(), pool),
    )


def build(connection: Connection) -> CherryServers:
    """Return a provider for one pass; raises BadInput for invalid settings. Nothing is read or
    sent, not even the definitions, which may be in a secret."""
    settings = read_settings(connection.settings, connection.groups, managed=bool(connection.pools))
    return CherryServers(
        CherryContext(
            settings,
            read_definitions=lambda: read_definitions(settings, connection.read_secret),
            open_api=lambda project: open_api(connection, settings, project),
            open_gone=lambda project: DeletedServers(
                connection.means.cache, project, connection.now
            ),
            open_tokens=lambda: open_tokens(connection, settings),
            open_pools=partial(_open_pools, connection, settings),
            nodes=None if connection.kube is None else lister(cast(KubeLists, connection.kube)),
            requests=OneTimeRequests(connection.means.cache, PROVIDER, connection.now),
            now=connection.now,
        )
    )
