"""Alibaba Cloud as a provider: connects the modules of this package.

A running scaling activity does not count as a failed scale-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from chalicelib.model.node import Node
from chalicelib.providers.alicloud import node_groups
from chalicelib.providers.alicloud.api import AlicloudApi, Line
from chalicelib.providers.alicloud.credentials import (
    LIMITS,
    AlicloudCredentials,
    AlicloudCredentialSource,
    Sessions,
    StsAnswer,
    of_this_process,
)
from chalicelib.providers.alicloud.delete_nodes import (
    cancel_delete,
    decrease_target,
    delete_nodes,
    delete_together,
)
from chalicelib.providers.alicloud.restart import restart
from chalicelib.providers.alicloud.scale_up import (
    AlicloudContext,
    has_requested,
    poll_growth,
    scale_up,
)
from chalicelib.providers.alicloud.settings import (
    PROVIDER,
    AlicloudSettings,
    Service,
    read_settings,
)
from chalicelib.providers.alicloud.signing import (
    new_nonce,
)
from chalicelib.providers.kit import price_reader
from chalicelib.providers.kit.base import (
    BaseProvider,
    Connection,
    Observation,
    change,
    joint_change,
    question,
)
from chalicelib.providers.kit.http import Limits
from chalicelib.providers.kit.rate_limit import CallPace, WaitLimit


def open_api(
    connection: Connection,
    settings: AlicloudSettings,
    *,
    sessions: Sessions | None = None,
    nonce: Callable[[], str] = new_nonce,
) -> AlicloudApi:
    """Return the vendor's API for one pass. sessions: store of temporary credentials, by
    default that of this process.

    Sends nothing and reads no secret before the first call, so a provider can be built while AWS or
    STS is unavailable. Every call of the API raises ProviderError, also if the secret cannot be
    read (Transient) or its contents are unusable (Unauthorized).
    """
    services, now, limit = connection.means, connection.now, WaitLimit()
    store = of_this_process() if sessions is None else sessions

    def sts_caller(
        source: AlicloudCredentialSource,
    ) -> Callable[[str, Mapping[str, str], type[StsAnswer]], StsAnswer]:
        return Line(
            Service.STS, settings.endpoints.url(Service.STS), source, services, now, new_nonce=nonce
        ).call

    credentials = AlicloudCredentials(connection, settings, store, nonce, sts_caller)

    def cache_key(kind: str) -> str:
        return f"alicloud/{credentials.account()}/{settings.region}/{kind}"

    def line(service: Service, limits: Limits = LIMITS) -> Line:
        pace = CallPace(services, lambda: cache_key(service), settings.calls_per_second, limit)
        return Line(
            service,
            settings.endpoints.url(service),
            credentials,
            services,
            now,
            pace,
            nonce,
            limits,
        )

    ess, ecs, prices = line(Service.ESS), line(Service.ECS), line(Service.ECS, price_reader.LIMITS)
    vpc = line(Service.VPC, price_reader.LIMITS)
    return AlicloudApi(
        settings.region, ess, ecs, prices, vpc, cache=services.cache, key=cache_key, now=now
    )


class AliCloud(BaseProvider[AlicloudContext]):
    """The scaling groups of one region that a policy names, for one pass."""

    name = PROVIDER
    scale_up = change(scale_up)
    poll_scale_up = change(poll_growth)
    delete_nodes = change(delete_nodes)
    delete_together = joint_change(delete_together)
    decrease_target = change(decrease_target)
    restart = change(restart)
    has_requested = question(has_requested)
    cancel_delete = question(cancel_delete)

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read all groups, with one call per twenty groups and one per fifty
        instances of each group."""
        return node_groups.observe(self.context.api, self.context.settings, nodes)


def build(connection: Connection) -> AliCloud:
    """Return a provider for one pass. Sends nothing; raises BadInput for invalid settings."""
    settings = read_settings(connection.settings, connection.groups)
    api = open_api(connection, settings)
    return AliCloud(AlicloudContext(api, settings, connection.joined))
