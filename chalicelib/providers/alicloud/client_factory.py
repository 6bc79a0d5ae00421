"""Builds an Api from a cluster's settings: credentials, hosts and call budget.

Nothing is sent and no secret is read before the first call, so a provider can be built while AWS or STS is unavailable.
A failure then is an error of that call and does not remove the provider.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.credential_sources import Finder
from chalicelib.providers.alicloud.credentials import ChosenCredentialSource, Sessions, of_this_process
from chalicelib.providers.alicloud.endpoints import Service
from chalicelib.providers.alicloud.rpc_client import Line, new_nonce
from chalicelib.providers.alicloud.settings import AlicloudSettings
from chalicelib.providers.base import Connection
from chalicelib.providers.rate_limit import CallBudget, WaitLimit


def open_api(
    connection: Connection,
    settings: AlicloudSettings,
    *,
    sessions: Sessions | None = None,
    nonce: Callable[[], str] = new_nonce,
) -> AlicloudApi:
    """Return the vendor's API for one pass. sessions: store of temporary credentials, by default that of this process.

    Sends nothing. Every call of the Api raises ProviderError, also if the secret cannot be read (Transient) or its
    contents are unusable (Unauthorized).
    """
    means, now, patience = connection.means, connection.now, WaitLimit()
    access = Finder(connection, settings, of_this_process() if sessions is None else sessions, nonce)
    source = ChosenCredentialSource(access.source)

    def key(of: str) -> str:
        return f"alicloud/{access.account(source)}/{settings.region}/{of}"

    def line(service: Service) -> Line:
        budget = CallBudget(means, lambda: key(service), settings.calls_per_second, patience)
        return Line(service, settings.endpoints.url(service), source, means, now, budget, nonce)

    return AlicloudApi(settings.region, line(Service.ESS), line(Service.ECS), cache=means.cache, key=key, now=now)
