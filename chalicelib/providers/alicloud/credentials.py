"""The credential that signs (signing.py): formats of the secret, where keys come from, and
their renewal.

A key comes from a secret, or it is temporary: a role of the Security Token Service, or an ECS
instance's role. The secret may supply roles that the settings leave out, because upstream's
Kubernetes Secret holds them too; the settings take precedence. Every problem here becomes an error
of a call and does not end a pass: a configuration error is Unauthorized, an unavailable AWS service
is Transient. Every refusal by STS, and a response without credentials (on which upstream crashes),
is Unauthorized: a role, a trust policy or a token is wrong, and the operator must act.

An access key may be rotated and a session may expire during a pass. In both cases the source is
read once more and the call is tried once more; a second refusal is final (Unauthorized).
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import LONGEST_TOKEN, Secret, place_of
from chalicelib.model.timestamps import parse_time
from chalicelib.net.vendor_hosts import FILE_PROBLEM, METADATA, METADATA_SERVICE
from chalicelib.providers.alicloud.decoding import decode
from chalicelib.providers.alicloud.error_mapping import error_for
from chalicelib.providers.alicloud.settings import (
    PROVIDER,
    VERSIONS,
    Access,
    AlicloudSettings,
    Service,
    Way,
    way_of,
)
from chalicelib.providers.alicloud.signing import canonical_query, timestamp
from chalicelib.providers.kit.access_keys import (
    AccessKey,
    SecretFormat,
    TemporaryKeys,
    secret_fields,
)
from chalicelib.providers.kit.base import Connection
from chalicelib.providers.kit.credential_source import (
    account_digest,
    as_provider_error,
    digest,
    read_fresh,
)
from chalicelib.providers.kit.errors import ProviderError, Throttled, Transient, Unauthorized
from chalicelib.providers.kit.http import Http, Limits, VendorRequest
from chalicelib.providers.kit.services import ProviderServices

LIMITS = Limits(connect=3.0, read=10.0, total=20.0, attempts=3)


class AlicloudCredential(AccessKey, frozen=True):
    """An access key and, for a session, its token and lifetime."""

    def hidden_in(self, text: str) -> str:
        """Return the text with every part of the credential removed, in any encoding."""
        for secret in self.secrets:
            text = secret.hidden_in(text)
        return text


# -- secrets

_REMEDY = 'write {"accessKeyId": "…", "accessKeySecret": "…"}'


def _ini_fields(text: str, place: str) -> Iterable[tuple[str, str]]:
    parser = configparser.RawConfigParser(delimiters=("=",), interpolation=None, default_section="")
    try:
        parser.read_string(text)
    except configparser.Error:
        raise BadInput(
            place, "is neither JSON nor an INI with a section [global]", _REMEDY
        ) from None
    sections = {name.strip().lower(): name for name in parser.sections()}
    if set(sections) != {"global"}:
        problem = "has another section than [global]" if sections else "has no section [global]"
        raise BadInput(place, problem, "put the fields under [global]")
    return [(name, value.strip().strip('"')) for name, value in parser.items(sections["global"])]


_FORMAT = SecretFormat(
    fields={
        "accesskeyid": "key_id",
        "accesskeysecret": "key_secret",
        "securitytoken": "token",
        "regionid": None,  # the policy's region applies
        "region": None,
        "rolearn": "role_arn",
        "rolesessionname": "session_name",
        "sessionname": "session_name",
        "oidcproviderarn": "oidc_provider_arn",
        "oidctokenfile": "oidc_token_file",
        "oidctokenfilepath": "oidc_token_file",
    },
    written={"key_id": "accessKeyId", "key_secret": "accessKeySecret", "token": "securityToken"},
    known=(
        "accessKeyId, accessKeySecret, securityToken, roleArn, sessionName, oidcProviderArn, "
        "oidcTokenFile, regionId"
    ),
    remedy=_REMEDY,
    lines=_ini_fields,
    prefix=re.compile(r"(?:ALIBABA|ALI)_?CLOUD_", re.IGNORECASE),
    longest={"token": LONGEST_TOKEN},
)
LONGEST_OIDC_TOKEN = 20_000  # characters
# The characters of a signed JSON Web Token.
_OIDC_TOKEN = re.compile(rf"[A-Za-z0-9_.-]{{4,{LONGEST_OIDC_TOKEN}}}\Z")


class SecretText(msgspec.Struct, frozen=True):
    """The contents of a secret."""

    key_id: Secret = Secret("")
    key_secret: Secret = Secret("")
    token: Secret = Secret("")
    role_arn: str = ""
    session_name: str = ""
    oidc_provider_arn: str = ""
    oidc_token_file: str = ""

    @property
    def credential(self) -> AlicloudCredential:
        """The access key."""
        return AlicloudCredential(self.key_id, self.key_secret, self.token)


def parse_secret(text: str, place: str) -> SecretText:
    """Parse JSON, upstream's Kubernetes Secret, or an INI with a section [global]. `ALIBABA_CLOUD_`
    may precede a name. Raises BadInput naming the field, never its value."""
    values = secret_fields(text, place, _FORMAT)
    secrets = {field: Secret(values.pop(field)) for field in _FORMAT.written if field in values}
    return SecretText(**secrets, **values)  # type: ignore[arg-type]


def parse_oidc_token(text: str, place: str) -> Secret:
    """Return an OIDC token. Raises BadInput, which contains no part of it."""
    token = text.strip()
    if not _OIDC_TOKEN.match(token):
        problem = "holds no OIDC token" if token else "is empty"
        raise BadInput(place, problem, "put the token there, and nothing else")
    return Secret(token)


# -- sources

LIFETIME = 3600.0  # requested session lifetime in seconds; every role allows an hour
# seconds before the end at which a session is renewed, as in the vendor's own client …
_EARLY = 900.0
_SHARE = 0.8  # … but not before this share of a short lifetime has passed
_LEAST = 60.0  # minimum seconds for which a session is used


class AlicloudCredentialSource(Protocol):
    """A source of a credential. Both methods raise ProviderError."""

    def current(self) -> AlicloudCredential:
        """Return the credential to sign with now."""

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """Return a credential other than the given one, which the vendor
        refused; None if there is none."""


class AlicloudAccessKeys:
    """A long-lived key that the operator keeps in a secret. read_again:
    returns the key as it is now."""

    def __init__(
        self, credential: AlicloudCredential, read_again: Callable[[], AlicloudCredential]
    ) -> None:
        self._credential, self._read_again = credential, read_again

    def current(self) -> AlicloudCredential:
        """Return the key as last read."""
        return self._credential

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """Return the key as it is now, if it was changed."""
        self._credential = self._read_again()
        return None if self._credential.signs_like(refused_credential) else self._credential


def due(credential: AlicloudCredential) -> float:
    """Return when to renew: 15 minutes before the end, or after four fifths of a lifetime shorter
    than half an hour. The time is at least a minute after the session was obtained, whatever expiry
    the vendor names, so STS is not called for every request."""
    life = credential.expires - credential.obtained
    early = life - _EARLY
    return credential.obtained + max(early if early >= life / 2 else _SHARE * life, _LEAST)


class Sessions(TemporaryKeys[AlicloudCredential]):
    """The sessions of a process. While STS is unavailable, an old one is
    used as long as it is valid."""

    def __init__(self) -> None:
        super().__init__(due, (Transient, Throttled))


@lru_cache(maxsize=1)
def of_this_process() -> Sessions:
    """Return the store that all passes of a process share. Each pass builds new providers and
    must not call STS each time."""
    return Sessions()


class Session:
    """A temporary credential. key: identifies what it is made from; make: calls STS or the metadata
    service."""

    def __init__(
        self,
        sessions: Sessions,
        key: str,
        make: Callable[[], AlicloudCredential],
        now: Callable[[], float],
    ) -> None:
        self._sessions, self._key, self._make, self._now = sessions, key, make, now

    def current(self) -> AlicloudCredential:
        """Return the session of this process, or a new one."""
        return self._sessions.get(self._key, self._now(), self._make)

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """Return a new session."""
        self._sessions.drop(self._key, refused_credential)
        fresh = self.current()
        return None if fresh.signs_like(refused_credential) else fresh


class AlicloudCredentials:
    """The credential for the combination of settings and secret. Its source is chosen at first use,
    so building a provider makes no call. caller: as for Sts."""

    def __init__(
        self,
        connection: Connection,
        settings: AlicloudSettings,
        sessions: Sessions,
        nonce: Callable[[], str],
        caller: SignedCaller,
    ) -> None:
        self._connection, self._settings, self._sessions = connection, settings, sessions
        self._sts = Sts(
            settings.endpoints.url(Service.STS), connection.means, connection.now, nonce, caller
        )
        self._account = ""
        self._source: AlicloudCredentialSource | None = None

    def current(self) -> AlicloudCredential:
        """Return the source's credential; reads the secret first, if there is
        one. Raises ProviderError."""
        if self._source is None:
            self._source = as_provider_error(self._choose)
        return self._source.current()

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """Return the source's other credential. Raises ProviderError."""
        return (
            self._source.renewed(refused_credential) if self._source is not None else self.current()
        )

    def account(self) -> str:
        """Return a digest of what signs, whose pace of calls applies: the long-lived key, with
        the role that it assumes; otherwise the source of the temporary one and the cluster, since
        nothing else of it lasts."""
        self.current()
        return self._account

    def _choose(self) -> AlicloudCredentialSource:
        access, text = self._settings.access, SecretText()
        if access.credentials_secret:
            text = self._read_secret(fresh=False)
            roles = {
                field: getattr(access, field) or getattr(text, field)
                for field in ("role_arn", "session_name", "oidc_provider_arn")
            }
            file = access.oidc_token_file or (
                "" if access.oidc_token_secret else text.oidc_token_file
            )
            access = msgspec.structs.replace(access, oidc_token_file=file, **roles)
        match way_of(
            access,
            key_id=bool(text.key_id),
            key_secret=bool(text.key_secret),
            token=bool(text.token),
        ):
            case Way.KEY:
                self._account = self._account_of(text)
                return self._key(text)
            case Way.ROLE:
                keys, self._account = self._key(text), self._account_of(text, access.role_arn)
                parts: tuple[str, ...] = (
                    text.key_id.reveal(),
                    text.key_secret.reveal(),
                    text.token.reveal(),
                )
                name = self._session_name(access)
                return self._session(
                    access, parts, lambda: self._sts.by_key(keys, access.role_arn, name)
                )
            case Way.OIDC:
                # Not by the token, which changes at every renewal, so each
                # cluster has its own session.
                token = (access.oidc_token_secret, access.oidc_token_file)
                parts = (self._connection.cluster, access.oidc_provider_arn, *token)
                self._account = account_digest(None, "oidc", access.role_arn, *parts)
                return self._session(access, parts, lambda: self._session_by_oidc(access))
            case Way.METADATA:
                url = (access.metadata_endpoint or METADATA).rstrip("/")
                self._account = account_digest(
                    None, "metadata", self._connection.cluster, url, access.ram_role
                )
                role = InstanceRole(
                    url, access.ram_role, self._connection.means, self._connection.now
                )
                return self._session(access, (url, access.ram_role), role.credential)

    def _account_of(self, text: SecretText, *role: str) -> str:
        """Return the digest of the key in a secret. A key with a token is itself temporary; the
        secret in which it is written stands for it."""
        if text.token:
            name = self._settings.access.credentials_secret
            return account_digest(None, "secret", self._connection.cluster, name, *role)
        return account_digest(text.key_secret, text.key_id.reveal(), *role)

    def _read_secret(self, *, fresh: bool) -> SecretText:
        name, reader = self._settings.access.credentials_secret, self._connection.read_secret
        return parse_secret(read_fresh(reader, name) if fresh else reader(name), place_of(name))

    def _key(self, text: SecretText) -> AlicloudAccessKeys:
        def read_again() -> AlicloudCredential:
            fresh = as_provider_error(lambda: self._read_secret(fresh=True))
            if not (fresh.key_id and fresh.key_secret):
                raise Unauthorized("the secret no longer holds an access key", code="NoCredentials")
            return fresh.credential

        return AlicloudAccessKeys(text.credential, read_again)

    def _session_by_oidc(self, access: Access) -> AlicloudCredential:
        # read at every renewal, because it is short-lived
        token = as_provider_error(lambda: self._token(access))
        return self._sts.by_oidc(
            token, access.oidc_provider_arn, access.role_arn, self._session_name(access)
        )

    def _session(
        self, access: Access, parts: tuple[str, ...], make: Callable[[], AlicloudCredential]
    ) -> Session:
        parts = (self._sts.url, access.role_arn, self._session_name(access), *parts)
        # reveals nothing of the parts
        key = digest("\0".join(f"{len(part)}:{part}" for part in parts), 64)
        return Session(self._sessions, key, make, self._connection.now)

    def _session_name(self, access: Access) -> str:
        """Return the session name that the audit log shows. Upstream
        requires one to be configured."""
        name = access.session_name or f"outscaler-{self._connection.cluster}"
        return re.sub(r"[^A-Za-z0-9.@_-]", "-", name)[:64]

    def _token(self, access: Access) -> Secret:
        if access.oidc_token_secret:
            text = read_fresh(self._connection.read_secret, access.oidc_token_secret)
            return parse_oidc_token(text, place_of(access.oidc_token_secret))
        place = f"OIDC token file {access.oidc_token_file}"
        if not self._connection.means.deployment.files:
            raise BadInput(
                place, FILE_PROBLEM, "name a secret that holds the token in oidcTokenSecret"
            )
        try:
            with Path(access.oidc_token_file).open("rb") as file:
                text = file.read(LONGEST_OIDC_TOKEN + 2).decode("ascii")
        except UnicodeDecodeError:
            raise BadInput(
                place, "is not text", "name the file that holds the OIDC token"
            ) from None
        except OSError as error:
            raise BadInput(
                place, f"cannot be read: {error.strerror}", "name a file that exists"
            ) from None
        return parse_oidc_token(text, place)


# -- Security Token Service


class Granted(msgspec.Struct, frozen=True, rename="pascal"):
    """A temporary credential in the format of STS and the metadata service."""

    access_key_id: str = ""
    access_key_secret: str = ""
    security_token: str = ""
    expiration: str = ""

    def __repr__(self) -> str:
        return "Granted(***)"

    def credential(self, now: float, action: str) -> AlicloudCredential:
        """Return the credential, obtained at `now` by that action; raises Unauthorized if something
        is missing. An unreadable expiry is taken as one hour from now. A session that ends sooner
        is renewed when the vendor refuses it."""
        if not (self.access_key_id and self.access_key_secret and self.security_token):
            raise Unauthorized(f"{action}: the answer holds no credentials", code="NoCredentials")
        try:
            expires = parse_time(self.expiration)
        except BadInput:
            expires = now + LIFETIME
        key, secret, token = (
            Secret(self.access_key_id),
            Secret(self.access_key_secret),
            Secret(self.security_token),
        )
        return AlicloudCredential(key, secret, token, obtained=now, expires=expires)


class StsAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """The response to AssumeRole and AssumeRoleWithOIDC."""

    credentials: Granted = Granted()


SignedCaller = Callable[
    [AlicloudCredentialSource], Callable[[str, Mapping[str, str], type[StsAnswer]], StsAnswer]
]
"""Returns the function that calls an action of STS, signed with a source's credential;
it raises ProviderError."""


class Sts(msgspec.Struct, frozen=True):
    """A role by an access key, or by an OIDC token (RRSA). url: the service's root, with scheme.
    caller: makes signed calls of STS with the credential of a source."""

    url: str
    services: ProviderServices
    now: Callable[[], float]
    new_nonce: Callable[[], str]
    caller: SignedCaller

    def by_key(
        self, source: AlicloudCredentialSource, role_arn: str, session_name: str
    ) -> AlicloudCredential:
        """Call AssumeRole, signed with that key. Raises ProviderError."""
        params = {
            "RoleArn": role_arn,
            "RoleSessionName": session_name,
            "DurationSeconds": f"{LIFETIME:.0f}",
        }
        try:
            return self.caller(source)("AssumeRole", params, StsAnswer).credentials.credential(
                self.now(), "AssumeRole"
            )
        except ProviderError as error:
            raise _final(error) from None

    def by_oidc(
        self, secret: Secret, provider_arn: str, role_arn: str, session_name: str
    ) -> AlicloudCredential:
        """Call AssumeRoleWithOIDC, which needs no signature: the token is in the
        body. Raises ProviderError."""
        action = "AssumeRoleWithOIDC"
        form = {
            "RoleArn": role_arn,
            "OIDCProviderArn": provider_arn,
            "OIDCToken": secret.reveal(),
            "DurationSeconds": f"{LIFETIME:.0f}",
        }
        request = VendorRequest(
            "POST",
            f"{self.url}/",
            {"content-type": "application/x-www-form-urlencoded"},
            {"Action": action, "RoleSessionName": session_name},
            urlencode(form).encode(),
            safe=True,
        )
        http = Http(
            vendor=PROVIDER,
            services=self.services,
            clock=self.now,
            secrets=lambda: (secret,),
            explain=error_for,
            sign=self._dated,
            limits=LIMITS,
        )
        try:
            return decode(http.send(request), StsAnswer).credentials.credential(self.now(), action)
        except ProviderError as error:
            raise _final(error, secret.hidden_in(f"{action}: {error.message}")) from None
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
            request.method,
            f"{request.url}?{canonical_query(params)}",
            request.headers,
            {},
            request.body,
            request.safe,
        )


def _final(error: ProviderError, message: str = "") -> ProviderError:
    """Return the error with this message; Unauthorized unless waiting can resolve it."""
    temporary = isinstance(error, Transient | Throttled)
    return (type(error) if temporary else Unauthorized)(
        message or error.message,
        code=error.code,
        request_id=error.request_id,
        retry_after=error.retry_after if temporary or isinstance(error, Unauthorized) else 0.0,
    )


# -- instance metadata

_METADATA_LIMITS = Limits(connect=1.0, read=1.0, total=2.0, attempts=1)
_TOKEN_SECONDS = "300"  # noqa: S105 - how long the token lives
_ROLES = "/latest/meta-data/ram/security-credentials/"


class InstanceRole(msgspec.Struct, frozen=True):
    """The role of an ECS instance, read from its metadata service, only if the settings request it.

    Lambda has no such service. This exists for parity and for a pass that runs on an ECS instance.
    The protected mode (IMDSv2), which upstream does not support, is tried first. There is one
    attempt with a timeout of one second for each wait, so a missing service is detected in less
    than three seconds.

    url: the service's root. role: empty for the instance's own role."""

    url: str
    role: str
    services: ProviderServices
    now: Callable[[], float]

    def credential(self) -> AlicloudCredential:
        """Return a session of the role. Raises Unauthorized if there is no role, Transient
        if there is no response."""
        http = Http(
            vendor=METADATA_SERVICE,
            services=self.services,
            clock=self.now,
            limits=_METADATA_LIMITS,
        )
        try:
            return self._read(http)
        except BadInput as error:
            raise Unauthorized(f"instance metadata: {error}", code="MetadataAddress") from None
        except ProviderError as error:
            cls = (
                type(error)
                if isinstance(error, Unauthorized | Transient | Throttled)
                else Unauthorized
            )
            raise cls(f"instance metadata: {error.message}", code=error.code) from None
        finally:
            http.close()

    def _read(self, http: Http) -> AlicloudCredential:
        headers = self._token(http)
        role = self.role
        if not role:
            answer = http.send(
                VendorRequest("GET", f"{self.url}{_ROLES}", dict(headers), safe=True)
            )
            role = "".join(answer.body.decode("utf-8", "replace").strip().splitlines()[:1]).strip()
        if not re.fullmatch(r"[A-Za-z0-9._@-]{1,64}", role):
            raise Unauthorized("the instance has no role", code="NoRole")
        answer = http.send(
            VendorRequest("GET", f"{self.url}{_ROLES}{role}", dict(headers), safe=True)
        )
        try:
            granted = msgspec.json.decode(answer.body, type=Granted)
        except msgspec.MsgspecError:
            raise Transient("the answer is not a credential") from None
        return granted.credential(self.now(), f"role {role}")

    def _token(self, http: Http) -> dict[str, str]:
        """Return the header of the protected mode; none if the service reports that it
        does not support that mode."""
        headers = {"X-aliyun-ecs-metadata-token-ttl-seconds": _TOKEN_SECONDS}
        try:
            answer = http.send(
                VendorRequest("PUT", f"{self.url}/latest/api/token", headers, body=b"")
            )
        except Transient as error:
            if not error.code:
                raise  # no service responds: another attempt would only take longer
            return {}
        except ProviderError:
            return {}
        text = answer.body.decode("ascii", "replace").strip()
        return {"X-aliyun-ecs-metadata-token": text} if re.fullmatch(r"[!-~]{1,4096}", text) else {}
