"""Exoscale as a provider: connects the modules of this package.

A pool that is being changed does not count as a failed scale-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from chalicelib.model.catalogue import Catalogue
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.net.vendor_hosts import EXOSCALE_PRICES
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.policy.vendors.exoscale import PROVIDER, ExoscaleSettings, read_settings
from chalicelib.providers.exoscale import node_groups, opening
from chalicelib.providers.exoscale.api import PRICE_LIST, ExoscaleApi
from chalicelib.providers.exoscale.catalogue import catalogue_currency, read_catalogue
from chalicelib.providers.exoscale.closing import own_marks, remove_group
from chalicelib.providers.exoscale.credentials import parse_secret, signed
from chalicelib.providers.exoscale.delete_nodes import (
    cancel_delete,
    decrease_target,
    delete_nodes,
    delete_together,
    restart,
)
from chalicelib.providers.exoscale.error_mapping import error_for
from chalicelib.providers.exoscale.managed_groups import ListedClusters, copied, source_of
from chalicelib.providers.exoscale.scale_up import (
    ExoscaleContext,
    has_requested,
    poll_growth,
    scale_up,
)
from chalicelib.providers.kit.base import (
    BaseProvider,
    Connection,
    Observation,
    change,
    joint_change,
    question,
)
from chalicelib.providers.kit.catalogue_shelf import CatalogueShelf
from chalicelib.providers.kit.credential_source import SecretSource, account_digest
from chalicelib.providers.kit.http import Http
from chalicelib.providers.kit.managed_pools import CopySource, ManagedPools, cluster_uid
from chalicelib.providers.kit.price_reader import LIMITS
from chalicelib.providers.kit.rate_limit import CallPace, WaitLimit
from chalicelib.providers.kit.services import KubeLists, OneTimeRequests


def open_api(connection: Connection, settings: ExoscaleSettings) -> ExoscaleApi:
    """Return the vendor's API for one pass. Sends nothing and reads no secret before the first
    call, so a provider can be built while AWS is unavailable. Every call of the API raises
    ProviderError, also if the secret cannot be read (Transient) or its contents are unusable
    (Unauthorized)."""
    services, now = connection.means, connection.now
    source = SecretSource(connection.read_secret, settings.credentials_secret, parse_secret)

    def cache_key(kind: str) -> str:
        credential = source.current()
        account = account_digest(credential.secret, credential.key.reveal())
        return f"{PROVIDER}/{account}/{settings.zone}/{kind}"

    rest = Http(
        PROVIDER,
        services,
        now,
        source=source,
        sign=lambda call: signed(call, source.current(), now()),
        secrets=lambda: (source.current().secret, source.current().key),
        explain=error_for,
        pace=CallPace(services, lambda: cache_key("api"), settings.calls_per_second, WaitLimit()),
    )
    return ExoscaleApi(
        settings.zone,
        settings.root,
        rest,
        cache=services.cache,
        key=cache_key,
        now=now,
        price_list=settings.price_list or PRICE_LIST,
        public_http=Http(EXOSCALE_PRICES, services, now, limits=LIMITS),
    )


class Exoscale(BaseProvider[ExoscaleContext]):
    """The Nodepools and Instance Pools of one zone that belong to the cluster, for one pass."""

    name = PROVIDER
    scale_up = change(scale_up, opening.scale_up)
    poll_scale_up = change(poll_growth, opening.poll)
    delete_nodes = change(delete_nodes)
    delete_together = joint_change(delete_together)
    decrease_target = change(decrease_target)
    restart = change(restart)
    remove_group = change(remove_group)
    has_requested = question(has_requested, opening.has_requested)
    cancel_delete = question(cancel_delete)

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read all groups, with at most four calls, and one per instance
        type that is not cached."""
        context = self.context
        return node_groups.observe(
            context.api, context.settings, nodes, context.managed, context.listed
        )

    def remaining(self) -> int | None:
        """Return how many instances the organisation's quota leaves; None without a limit."""
        left = self.context.api.quota_now().left
        return None if left is None else max(0, left)

    def catalogue(self, currency: str) -> Catalogue:
        """See CatalogueReader."""
        return read_catalogue(self.context.api, currency)

    def refresh_catalogue(self, *, buying: bool) -> bool:
        """See PoolMaker."""
        return self.context.managed.shelf.refresh(
            lambda: read_catalogue(self.context.api, self.context.currency), buying=buying
        )

    def own_marks(self) -> Mapping[str, Callable[[], None]]:
        """See PoolMaker."""
        return own_marks(self.context)

    def addons(self, groups: Sequence[NodeGroup]) -> frozenset[str]:
        """Return the add-ons of the SKS clusters that own these groups, or that the settings
        name."""
        pools = {group.id for group in groups if group.provider == PROVIDER}
        setting = self.context.settings.sks_cluster
        addons: set[str] = set()
        for cluster in self.context.api.clusters():
            is_named = bool(setting) and setting in (cluster.id, cluster.name)
            if is_named or any(pool.instance_pool.id in pools for pool in cluster.nodepools):
                addons |= cluster.addon_names
        return frozenset(addons)


def build(connection: Connection) -> Exoscale:
    """Return a provider for one pass. Sends nothing; raises BadInput for invalid settings."""
    settings = read_settings(connection.settings, connection.groups)
    requests = OneTimeRequests(connection.means.cache, PROVIDER, connection.now)
    api = open_api(connection, settings)
    listed = ListedClusters(api.clusters)
    managed = _managed_pools(connection, settings, api, listed)
    return Exoscale(
        ExoscaleContext(
            api,
            settings,
            requests,
            managed,
            listed,
            connection.joined,
            catalogue_currency(connection.currency),
        )
    )


def _managed_pools(
    connection: Connection, settings: ExoscaleSettings, api: ExoscaleApi, listed: ListedClusters
) -> ManagedPools:
    """Return the declarations of a policy."""
    currency = catalogue_currency(connection.currency)

    def source(pool: ManagedPool) -> CopySource:
        original = copied(pool, listed.get(), settings, managed)
        return source_of(pool, settings.zone, original)

    shelf = CatalogueShelf(
        connection.means.cache, lambda: api.key(f"catalogue/{currency}"), connection.now
    )
    kube = cast(KubeLists | None, connection.kube)
    managed = ManagedPools(connection.pools, shelf, lambda: cluster_uid(kube), source)
    return managed
