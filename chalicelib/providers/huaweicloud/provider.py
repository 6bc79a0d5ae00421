"""Huawei Cloud CCE as a provider: connects the modules of this package.

A cluster that is busy with another change does not count as a failed scale-up."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.model.node import Node
from chalicelib.policy.vendors.huaweicloud import PROVIDER, CceSettings, read_settings
from chalicelib.providers.huaweicloud import node_groups
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.credentials import (
    Assumed,
    CceCredential,
    Projects,
    Sessions,
    granted,
    of_this_process,
    parse_secret,
    signed,
)
from chalicelib.providers.huaweicloud.delete_nodes import (
    cancel_delete,
    decrease_target,
    delete_nodes,
    restart,
)
from chalicelib.providers.huaweicloud.error_mapping import error_for
from chalicelib.providers.huaweicloud.models import Service, url_of
from chalicelib.providers.huaweicloud.node_groups import Switches
from chalicelib.providers.huaweicloud.scale_up import (
    CceContext,
    has_requested,
    poll_growth,
    scale_up,
)
from chalicelib.providers.kit import price_reader
from chalicelib.providers.kit.base import BaseProvider, Connection, Observation, change, question
from chalicelib.providers.kit.credential_source import SecretSource, account_digest
from chalicelib.providers.kit.http import LIMITS, Http, Limits
from chalicelib.providers.kit.rate_limit import CallPace, WaitLimit
from chalicelib.providers.kit.services import TtlCache


def open_api(
    connection: Connection, settings: CceSettings, *, sessions: Sessions | None = None
) -> CceApi:
    """Return the vendor's API for one pass. sessions: store of temporary keys, by
    default that of this process.

    Sends nothing and reads no secret before the first call, so a provider can be built while AWS or
    IAM is unavailable. Every call of the API raises ProviderError, also if the secret cannot be
    read (Transient), if its contents are unusable, or if IAM refuses a request (Unauthorized).
    """
    services = connection.means
    now = connection.now
    limit = WaitLimit()
    agency = settings.agency
    keys = SecretSource(connection.read_secret, settings.credentials_secret, parse_secret)

    def root(service: Service) -> str:
        return settings.endpoints.get(service) or url_of(service, settings.region)

    iam_root = root(Service.IAM)

    def cache_key(kind: str) -> str:
        """Return a row of what signs: the long-lived key, and the agency that it assumes. A key
        with a token is itself temporary; the secret in which it is written stands for it."""
        key = keys.current()
        role = (agency.domain, agency.name) if agency else ()
        if key.token:
            account = account_digest(None, connection.cluster, settings.credentials_secret, *role)
        else:
            account = account_digest(key.secret, key.key.reveal(), *role)
        return f"{PROVIDER}/{account}/{settings.region}/{kind}"

    def call_pace(kind: str) -> CallPace:
        return CallPace(services, lambda: cache_key(kind), settings.calls_per_second, limit)

    def client(source: SecretSource[CceCredential], kind: str, limits: Limits = LIMITS) -> Http:
        return Http(
            PROVIDER,
            services,
            now,
            source=source,
            sign=lambda call: signed(call, source.current(), now()),
            secrets=lambda: source.current().secrets,
            explain=error_for,
            pace=call_pace(kind),
            limits=limits,
        )

    source: SecretSource[CceCredential] = keys
    if agency:
        by_key = client(keys, "agencies")
        store = of_this_process() if sessions is None else sessions

        def request() -> CceCredential:
            return granted(by_key, iam_root, agency, now())

        source = Assumed(keys, agency, iam_root, request, store, now)
    projects = Projects(
        client(source, "iam"),
        iam_root,
        settings.region,
        cache=services.cache,
        key=lambda: cache_key("project"),
        now=now,
    )
    has_price_service = Service.BSS in settings.endpoints or Service.CCE not in settings.endpoints
    prices = None
    if settings.read_prices and has_price_service:
        prices = (root(Service.BSS), client(source, Service.BSS, price_reader.LIMITS))
    return CceApi(
        settings.cluster_id,
        (root(Service.CCE), client(source, Service.CCE)),
        (root(Service.ECS), client(source, Service.ECS)),
        prices,
        project=(lambda: settings.project_id) if settings.project_id else projects.id,
        cache=services.cache,
        key=cache_key,
        now=now,
    )


class HuaweiCloud(BaseProvider[CceContext]):
    """The scale groups of one CCE cluster's node pools, for one pass. cache: of the
    vendor's own autoscaler's state."""

    name = PROVIDER
    scale_up = change(scale_up)
    poll_scale_up = change(poll_growth)
    delete_nodes = change(delete_nodes)
    decrease_target = change(decrease_target)
    restart = change(restart)
    has_requested = question(has_requested)
    cancel_delete = question(cancel_delete)

    def __init__(self, context: CceContext, cache: TtlCache[Switches]) -> None:
        super().__init__(context)
        self._cache = cache

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read all groups, with one list of pools, one of nodes, and whatever is not cached."""
        return node_groups.observe(self.context.api, self.context.settings, nodes, self._cache)


def build(connection: Connection) -> HuaweiCloud:
    """Return a provider for one pass. Sends nothing; raises BadInput for invalid settings."""
    settings = read_settings(connection.settings, connection.groups)
    row = f"{PROVIDER}/addons/{settings.region}/{settings.cluster_id}"
    cache = TtlCache(connection.means.cache, lambda: row, Switches, connection.now)
    api = open_api(connection, settings)
    return HuaweiCloud(CceContext(api, settings, connection.joined), cache)
