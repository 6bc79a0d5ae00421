"""Determines the credentials from a cluster's settings and its secret, and renews them.

The secret may supply roles that the settings leave out, because upstream's Kubernetes Secret holds them too; the
settings take precedence. Every problem here becomes an error of a call and does not end a pass: a configuration error
is Unauthorized, an unavailable AWS service is Transient.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret, place_of
from chalicelib.model.vendor_hosts import FILE_PROBLEM
from chalicelib.providers.alicloud.credential_mode import Access, Way, way_of
from chalicelib.providers.alicloud.credentials import (
    AlicloudAccessKeys,
    AlicloudCredential,
    AlicloudCredentialSource,
    Session,
    Sessions,
    made_from,
)
from chalicelib.providers.alicloud.endpoints import Service
from chalicelib.providers.alicloud.instance_metadata import ENDPOINT, InstanceRole
from chalicelib.providers.alicloud.secret_format import LONGEST_OIDC_TOKEN, SecretText, parse_oidc_token, parse_secret
from chalicelib.providers.alicloud.settings import AlicloudSettings
from chalicelib.providers.alicloud.sts import Sts
from chalicelib.providers.base import Connection
from chalicelib.providers.credential_source import as_provider_error, digest, read_fresh
from chalicelib.providers.errors import Unauthorized

_ACCOUNT = re.compile(r"acs:ram::([0-9]+):")


class Finder:
    """Finds the source of credentials for the combination of settings and secret."""

    def __init__(
        self, connection: Connection, settings: AlicloudSettings, sessions: Sessions, nonce: Callable[[], str]
    ) -> None:
        self._connection, self._settings, self._sessions = connection, settings, sessions
        self._sts = Sts(settings.endpoints.url(Service.STS), connection.means, connection.now, nonce)
        self._whose = ""  # a role's account or an instance; empty for a key

    def source(self) -> AlicloudCredentialSource:
        """Return the source; reads the secret, if there is one. Raises ProviderError."""
        return as_provider_error(self._choose)

    def account(self, source: AlicloudCredentialSource) -> str:
        """Return the account whose rate limit applies, as a digest: the role's account, the instance's, or the key.

        Two keys of one account have separate budgets, because a key does not reveal its account."""
        key_id = source.current().key_id
        return digest(self._whose or key_id.reveal())

    def _choose(self) -> AlicloudCredentialSource:
        access, text = self._read()
        way = way_of(access, key_id=bool(text.key_id), key_secret=bool(text.key_secret), token=bool(text.token))
        makers: dict[Way, Callable[[Access, SecretText], AlicloudCredentialSource]] = {
            Way.KEY: lambda _, text: self._key(text),
            Way.ROLE: self._assumed,
            Way.OIDC: lambda access, _: self._by_oidc(access),
            Way.METADATA: lambda access, _: self._of_instance(access),
        }
        return makers[way](access, text)

    def _read(self, *, fresh: bool = False) -> tuple[Access, SecretText]:
        """Return the settings, completed with the roles in the secret; the settings take precedence."""
        access, text = self._settings.access, SecretText()
        if access.credentials_secret:
            text = parse_secret(
                self._secret(access.credentials_secret, fresh=fresh), place_of(access.credentials_secret)
            )
            given = {
                field: getattr(access, field) or getattr(text, field)
                for field in ("role_arn", "session_name", "oidc_provider_arn")
            }
            file = access.oidc_token_file or ("" if access.oidc_token_secret else text.oidc_token_file)
            access = msgspec.structs.replace(access, oidc_token_file=file, **given)
        return access, text

    def _secret(self, name: str, *, fresh: bool) -> str:
        reader = self._connection.read_secret
        return read_fresh(reader, name) if fresh else reader(name)

    def _key(self, text: SecretText) -> AlicloudAccessKeys:
        first = [text]  # the secret read to select the method also provides the first key

        def read(*, fresh: bool = False) -> AlicloudCredential:
            found = first.pop() if first and not fresh else as_provider_error(lambda: self._read(fresh=fresh)[1])
            if not (found.key_id and found.key_secret):
                raise Unauthorized("the secret no longer holds an access key", code="NoCredentials")
            return AlicloudCredential(found.key_id, found.key_secret, found.token)

        return AlicloudAccessKeys(read)

    def _assumed(self, access: Access, text: SecretText) -> Session:
        keys, self._whose = self._key(text), _account(access.role_arn)
        name = self._made_from(access, text.key_id.reveal(), text.key_secret.reveal(), text.token.reveal())
        return self._session(name, lambda: self._sts.by_key(keys, access.role_arn, self._name(access)))

    def _by_oidc(self, access: Access) -> Session:
        def make() -> AlicloudCredential:
            token = as_provider_error(lambda: self._token(access))  # read at every renewal, because it is short-lived
            return self._sts.by_oidc(token, access.oidc_provider_arn, access.role_arn, self._name(access))

        self._whose = _account(access.role_arn)
        # Not by the token, which changes at every renewal, so each cluster has its own session.
        name = self._made_from(
            access, self._connection.cluster, access.oidc_provider_arn, access.oidc_token_secret, access.oidc_token_file
        )
        return self._session(name, make)

    def _of_instance(self, access: Access) -> Session:
        url = (access.metadata_endpoint or ENDPOINT).rstrip("/")
        self._whose = f"{url} {access.ram_role}"
        role = InstanceRole(url, access.ram_role, self._connection.means, self._connection.now)
        return self._session(self._made_from(access, url, access.ram_role), role.credential)

    def _session(self, name: str, make: Callable[[], AlicloudCredential]) -> Session:
        return Session(self._sessions, name, make, self._connection.now)

    def _made_from(self, access: Access, *parts: str) -> str:
        return made_from(self._sts.url, access.role_arn, self._name(access), *parts)

    def _name(self, access: Access) -> str:
        """Return the session name that the audit log shows. Upstream requires one to be configured."""
        name = access.session_name or f"outscaler-{self._connection.cluster}"
        return re.sub(r"[^A-Za-z0-9.@_-]", "-", name)[:64]

    def _token(self, access: Access) -> Secret:
        if access.oidc_token_secret:
            place = place_of(access.oidc_token_secret)
            text = self._secret(access.oidc_token_secret, fresh=True)
        else:
            place = f"OIDC token file {access.oidc_token_file}"
            if not self._connection.means.deployment.files:
                raise BadInput(place, FILE_PROBLEM, "name a secret that holds the token in oidcTokenSecret")
            text = _file(access.oidc_token_file, place)
        return parse_oidc_token(text, place)


def _account(role_arn: str) -> str:
    """Return the account in a role's name; the whole name if it contains none."""
    match = _ACCOUNT.match(role_arn)
    return match[1] if match else role_arn


def _file(path: str, place: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(LONGEST_OIDC_TOKEN + 2).decode("ascii")
    except UnicodeDecodeError:
        raise BadInput(place, "is not text", "name the file that holds the OIDC token") from None
    except OSError as error:
        raise BadInput(place, f"cannot be read: {error.strerror}", "name a file that exists") from None
