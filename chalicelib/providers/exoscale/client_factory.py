"""Builds an Api from a cluster's settings: key, address and call budget.

Nothing is sent and no secret is read before the first call, so a provider can be built while AWS is unavailable. A
failure then is an error of that call and does not remove the provider.
"""

from __future__ import annotations

from chalicelib.policy.vendors.exoscale import PROVIDER, ExoscaleSettings
from chalicelib.providers.base import Connection
from chalicelib.providers.credential_source import SecretSource, digest
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.error_mapping import error_for
from chalicelib.providers.exoscale.secret_format import parse_secret
from chalicelib.providers.exoscale.signing import signed
from chalicelib.providers.rate_limit import CallBudget, WaitLimit
from chalicelib.providers.rest_client import RestClient


def open_api(connection: Connection, settings: ExoscaleSettings) -> ExoscaleApi:
    """Return the vendor's API for one pass.

    Sends nothing. Every call of the Api raises ProviderError, also if the secret cannot be read (Transient) or its
    contents are unusable (Unauthorized).
    """
    means, now = connection.means, connection.now
    source = SecretSource(connection.read_secret, settings.credentials_secret, parse_secret)

    def key(of: str) -> str:
        return f"{PROVIDER}/{digest(source.current().key.reveal())}/{settings.zone}/{of}"

    rest = RestClient(
        PROVIDER,
        source,
        sign=lambda call, credential: signed(call, credential, now()),
        secrets=lambda credential: (credential.secret, credential.key),
        explain=error_for,
        budget=CallBudget(means, lambda: key("api"), settings.calls_per_second, WaitLimit()),
        services=means,
        now=now,
    )
    return ExoscaleApi(settings.zone, settings.root, rest, cache=means.cache, key=key, now=now)
