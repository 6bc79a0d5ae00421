"""From a cluster's settings to an Api that is ready to be asked: which token, which host, whose pace.

Nothing is sent and no secret is read before the first call, so that a provider can be built while AWS gives no answer:
what is wrong then is an error of that call and not the end of the provider.
"""

from __future__ import annotations

from chalicelib import __version__
from chalicelib.model.secret import Secret
from chalicelib.providers.base import Connection
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.cherryservers.api import CherryApi
from chalicelib.providers.cherryservers.api_token import parse_token
from chalicelib.providers.cherryservers.error_mapping import error_for
from chalicelib.providers.cherryservers.models import CherryPlan
from chalicelib.providers.cherryservers.settings import PROVIDER, CherrySettings
from chalicelib.providers.credential_source import SecretSource, digest
from chalicelib.providers.http import VendorRequest
from chalicelib.providers.rate_limit import CallBudget, WaitLimit
from chalicelib.providers.rest_client import RestClient

AGENT = f"kubernetes/cluster-autoscaler/outscaler-{__version__}"
PATIENCE = 6.0  # seconds of waiting for turns, over one provider object: a list, plans, and twenty orders


def open_api(connection: Connection, settings: CherrySettings, project: int) -> CherryApi:
    """The vendor's API for one pass, on one project.

    Sends nothing. Every call of the Api raises ProviderError; also where the secret cannot be read (Transient) or holds
    nothing that can be used (Unauthorized). Calls of all functions with one token keep one pace, in even distances:
    "4 per second" (§3) holds for every second, also the first.
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
        means=means,
        now=now,
    )
    return CherryApi(rest, settings.root, project, TtlCache(means.cache, lambda: key("plans"), CherryPlan, now))


def _signed(call: VendorRequest, token: Secret) -> VendorRequest:
    """The call with the token and what else the vendor's clients send with every request (§3)."""
    headers = {
        "Authorization": f"Bearer {token.reveal()}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": AGENT,
    }
    return VendorRequest(call.method, call.url, call.headers | headers, call.params, call.body, call.safe)
