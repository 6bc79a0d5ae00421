"""TODO"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret, place_of
from chalicelib.model.timestamps import parse_time
from chalicelib.model.vendor_hosts import FILE_PROBLEM, METADATA, METADATA_SERVICE
from chalicelib.providers.alicloud.api import LIMITS, VENDOR, Line, canonical_query, new_nonce, timestamp
from chalicelib.providers.alicloud.credentials import (
    LIFETIME,
    LONGEST_OIDC_TOKEN,
    Access,
    AlicloudAccessKeys,
    AlicloudCredential,
    AlicloudCredentialSource,
    SecretText,
    Session,
    Sessions,
    Way,
    made_from,
    parse_oidc_token,
    parse_secret,
    refused_for_good,
    way_of,
)
from chalicelib.providers.alicloud.decoding import decode
from chalicelib.providers.alicloud.endpoints import VERSIONS, Service
from chalicelib.providers.alicloud.error_mapping import error_for
from chalicelib.providers.alicloud.settings import AlicloudSettings
from chalicelib.providers.base import Connection
from chalicelib.providers.credential_source import as_provider_error, digest, read_fresh
from chalicelib.providers.errors import ProviderError, Throttled, Transient, Unauthorized
from chalicelib.providers.http import Http, Limits, VendorRequest, VendorResponse
from chalicelib.providers.services import ProviderServices


class Granted(msgspec.Struct, frozen=True, rename="pascal"):
    """A temporary credential in the format of STS and the metadata service."""

    access_key_id: str = ""
    access_key_secret: str = ""
    security_token: str = ""
    expiration: str = ""

    def __repr__(self) -> str:
        return "Granted(***)"


class StsAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """The response to AssumeRole and AssumeRoleWithOIDC."""

    credentials: Granted | None = None


class Sts(msgspec.Struct, frozen=True):
    """url: the service's root, with scheme."""

    url: str
    means: ProviderServices
    now: Callable[[], float]
    new_nonce: Callable[[], str] = new_nonce

    def by_key(self, source: AlicloudCredentialSource, role_arn: str, session_name: str) -> AlicloudCredential:
        """Call AssumeRole, signed with that key. Raises ProviderError."""
        line = Line(Service.STS, self.url, source, self.means, self.now, new_nonce=self.new_nonce)
        params = {"RoleArn": role_arn, "RoleSessionName": session_name, "DurationSeconds": f"{LIFETIME:.0f}"}
        try:
            return credential_of(line.call("AssumeRole", params, StsAnswer).credentials, self.now(), "AssumeRole")
        except ProviderError as error:
            raise _for_a_person(error) from None

    def by_oidc(self, secret: Secret, provider_arn: str, role_arn: str, session_name: str) -> AlicloudCredential:
        """Call AssumeRoleWithOIDC, which needs no signature: the token is in the body. Raises ProviderError."""
        action = "AssumeRoleWithOIDC"
        form = {
            "RoleArn": role_arn,
            "OIDCProviderArn": provider_arn,
            "OIDCToken": secret.reveal(),
            "DurationSeconds": f"{LIFETIME:.0f}",
        }
        call = VendorRequest(
            "POST",
            f"{self.url}/",
            {"content-type": "application/x-www-form-urlencoded"},
            {"Action": action, "RoleSessionName": session_name},
            urlencode(form).encode(),
            safe=True,
        )
        http = Http(
            vendor=VENDOR,
            deployment=self.means.deployment,
            sleep=self.means.sleep,
            chance=self.means.chance,
            clock=self.now,
            secrets=(secret,),
            explain=error_for,
            sign=self._dated,
            limits=LIMITS,
        )
        try:
            return credential_of(_read(http.send(call)), self.now(), action)
        except ProviderError as error:
            message = secret.hidden_in(f"{action}: {error.message}")
            raise _for_a_person(
                type(error)(message, code=error.code, request_id=error.request_id, retry_after=error.retry_after)
            ) from None
        finally:
            http.close()

    def _dated(self, request: VendorRequest) -> VendorRequest:
        params = request.params | {
            "Version": VERSIONS[Service.STS],
            "Format": "JSON",
            "Timestamp": timestamp(self.now()),
            "SignatureNonce": self.new_nonce(),
        }
        return VendorRequest(
            request.method, f"{request.url}?{canonical_query(params)}", request.headers, {}, request.body, request.safe
        )


def credential_of(granted: Granted | None, now: float, asked: str) -> AlicloudCredential:
    """Return the granted credential; raises Unauthorized if something is missing.

    An unreadable expiry is taken as one hour from now. A session that ends sooner is renewed when the vendor refuses
    it."""
    if granted is None or not (granted.access_key_id and granted.access_key_secret and granted.security_token):
        raise Unauthorized(f"{asked}: the answer holds no credentials", code="NoCredentials")
    try:
        expires = parse_time(granted.expiration)
    except BadInput:
        expires = now + LIFETIME
    return AlicloudCredential(
        Secret(granted.access_key_id),
        Secret(granted.access_key_secret),
        Secret(granted.security_token),
        obtained=now,
        expires=expires,
    )


def _read(response: VendorResponse) -> Granted | None:
    return decode(response, StsAnswer).credentials


def _for_a_person(error: ProviderError) -> ProviderError:
    if isinstance(error, Unauthorized) or not refused_for_good(error):
        return error
    return Unauthorized(error.message, code=error.code, request_id=error.request_id)


ENDPOINT = METADATA
_LIMITS = Limits(connect=1.0, read=1.0, total=2.0, attempts=1)
_TOKEN_SECONDS = "300"  # noqa: S105 - how long the token lives
_ROLES = "/latest/meta-data/ram/security-credentials/"


class InstanceRole(msgspec.Struct, frozen=True):
    """url: the service's root. role: empty for the instance's own role."""

    url: str
    role: str
    means: ProviderServices
    now: Callable[[], float]

    def credential(self) -> AlicloudCredential:
        """Return a session of the role. Raises Unauthorized if there is no role, Transient if there is no response."""
        http = Http(
            vendor=METADATA_SERVICE,
            deployment=self.means.deployment,
            sleep=self.means.sleep,
            chance=self.means.chance,
            clock=self.now,
            limits=_LIMITS,
        )
        try:
            return self._ask(http)
        except BadInput as error:
            raise Unauthorized(f"instance metadata: {error}", code="MetadataAddress") from None
        except ProviderError as error:
            kept = type(error) if isinstance(error, Unauthorized | Transient | Throttled) else Unauthorized
            raise kept(f"instance metadata: {error.message}", code=error.code) from None
        finally:
            http.close()

    def _ask(self, http: Http) -> AlicloudCredential:
        headers = self._token(http)
        role = self.role or self._text(http, _ROLES, headers).splitlines()[0].strip()
        if not re.fullmatch(r"[A-Za-z0-9._@-]{1,64}", role):
            raise Unauthorized("the instance has no role", code="NoRole")
        answer = http.send(VendorRequest("GET", f"{self.url}{_ROLES}{role}", dict(headers), safe=True))
        try:
            granted = msgspec.json.decode(answer.body, type=Granted)
        except msgspec.MsgspecError:
            raise Transient("the answer is not a credential") from None
        return credential_of(granted, self.now(), f"role {role}")

    def _token(self, http: Http) -> dict[str, str]:
        """Return the header of the protected mode; none if the service reports that it does not support that mode."""
        headers = {"X-aliyun-ecs-metadata-token-ttl-seconds": _TOKEN_SECONDS}
        try:
            answer = http.send(VendorRequest("PUT", f"{self.url}/latest/api/token", headers, body=b""))
        except Transient as error:
            if not error.code:
                raise  # no service responds: another attempt would only take longer
            return {}
        except ProviderError:
            return {}
        text = answer.body.decode("ascii", "replace").strip()
        return {"X-aliyun-ecs-metadata-token": text} if re.fullmatch(r"[!-~]{1,4096}", text) else {}

    def _text(self, http: Http, path: str, headers: dict[str, str]) -> str:
        answer = http.send(VendorRequest("GET", f"{self.url}{path}", dict(headers), safe=True))
        return answer.body.decode("utf-8", "replace").strip() or "\n"


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
