"""Builds an Api from a cluster's settings: token, host and rate limit.

Nothing is sent and no secret is read before the first call, so a provider can be built while AWS is unavailable. A
failure then is an error of that call and does not remove the provider.
"""

from __future__ import annotations

from chalicelib import __version__
from chalicelib.model.secret import Secret
from chalicelib.policy.vendors.cherryservers import PROVIDER, CherrySettings
from chalicelib.providers.base import Connection
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.cherryservers.api import CherryApi
from chalicelib.providers.cherryservers.api_token import parse_token
from chalicelib.providers.cherryservers.error_mapping import error_for
from chalicelib.providers.cherryservers.models import CherryPlan
from chalicelib.providers.credential_source import SecretSource, digest
from chalicelib.providers.http import VendorRequest
from chalicelib.providers.rate_limit import CallBudget, WaitLimit
from chalicelib.providers.rest_client import RestClient

AGENT = f"kubernetes/cluster-autoscaler/outscaler-{__version__}"
PATIENCE = 6.0  # seconds that one provider object waits for the rate limit: a list, plans, and twenty orders


def open_api(connection: Connection, settings: CherrySettings, project: int) -> CherryApi:
    """Return the vendor's API for one pass, on one project.

    Sends nothing. Every call of the Api raises ProviderError, also if the secret cannot be read (Transient) or contains
    nothing usable (Unauthorized). The calls of all functions with one token share a rate limit and are spaced evenly:
    "4 per second" applies to every second, including the first.
    """
    means, now = connection.means, connection.now
    source = SecretSource(connection.read_secret, settings.credentials_secret, parse_token)

    def key(of: str) -> str:
        return f"cherryservers/{digest(source.current().reveal())}/{of}"

    budget = CallBudget(means, lambda: key("api"), settings.calls_per_second, WaitLimit(PATIENCE), burst=0.0, lot=1)
    rest = RestClient(
        PROVIDER,
        source,
        sign=_signed,
        secrets=lambda token: (token,),
        explain=error_for,
        budget=budget,
        services=means,
        now=now,
    )
    return CherryApi(rest, settings.endpoint, project, TtlCache(means.cache, lambda: key("plans"), CherryPlan, now))


def _signed(request: VendorRequest, secret: Secret) -> VendorRequest:
    """Return the call with the token and the other headers that the vendor's clients send with every request."""
    headers = {
        "Authorization": f"Bearer {secret.reveal()}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": AGENT,
    }
    return VendorRequest(
        request.method, request.url, request.headers | headers, request.params, request.body, request.safe
    )
