"""Builds an Api from a cluster's settings: keys, hosts and call budget.

Nothing is sent and no secret is read before the first call, so a provider can be built while AWS or IAM is unavailable.
A failure then is an error of that call and does not remove the provider.
"""

from __future__ import annotations

from chalicelib.policy.vendors.huaweicloud import PROVIDER, CceSettings
from chalicelib.providers.base import Connection
from chalicelib.providers.credential_source import SecretSource, digest
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.credentials import Assumed, Sessions, of_this_process
from chalicelib.providers.huaweicloud.endpoints import Service, url_of
from chalicelib.providers.huaweicloud.error_mapping import error_for
from chalicelib.providers.huaweicloud.iam import Projects, granted
from chalicelib.providers.huaweicloud.secret_format import parse_secret
from chalicelib.providers.huaweicloud.signing import CceCredential, signed
from chalicelib.providers.rate_limit import CallBudget, WaitLimit
from chalicelib.providers.rest_client import RestClient


def open_api(connection: Connection, settings: CceSettings, *, sessions: Sessions | None = None) -> CceApi:
    """Return the vendor's API for one pass. sessions: store of temporary keys, by default that of this process.

    Sends nothing. Every call of the Api raises ProviderError, also if the secret cannot be read (Transient), if its
    contents are unusable, or if IAM refuses a request (Unauthorized).
    """
    means, now, patience, agency = connection.means, connection.now, WaitLimit(), settings.agency
    keys = SecretSource(connection.read_secret, settings.credentials_secret, parse_secret)
    iam_root = settings.endpoints.get(Service.IAM) or url_of(Service.IAM, settings.region)

    def key(of: str) -> str:
        """Return whose limits and projects apply: an agency's account, otherwise the key's."""
        whose = f"{agency.domain}/{agency.name}" if agency else keys.current().key.reveal()
        return f"{PROVIDER}/{digest(whose)}/{settings.region}/{of}"

    def rest(source: SecretSource[CceCredential], of: str) -> RestClient[CceCredential]:
        return RestClient(
            PROVIDER,
            source,
            sign=lambda call, credential: signed(call, credential, now()),
            secrets=lambda credential: credential.secrets,
            explain=error_for,
            budget=CallBudget(means, lambda: key(of), settings.calls_per_second, patience),
            services=means,
            now=now,
        )

    source: SecretSource[CceCredential] = keys
    if agency:
        by_key = rest(keys, "agencies")
        source = Assumed(
            keys,
            agency,
            iam_root,
            lambda: granted(by_key, iam_root, agency, now()),
            of_this_process() if sessions is None else sessions,
            now,
        )
    projects = Projects(
        rest(source, "iam"), iam_root, settings.region, cache=means.cache, key=lambda: key("project"), now=now
    )

    def way(service: Service) -> tuple[str, RestClient[CceCredential]]:
        return settings.endpoints.get(service) or url_of(service, settings.region), rest(source, service)

    return CceApi(
        settings.cluster_id,
        way(Service.CCE),
        way(Service.ECS),
        project=(lambda: settings.project_id) if settings.project_id else projects.id,
        cache=means.cache,
        key=key,
        now=now,
    )
