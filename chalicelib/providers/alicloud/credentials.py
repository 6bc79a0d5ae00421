"""The credential that signs: how settings and secret name one, the formats of the secret, and its renewal.

Exactly one method must be configured completely. Upstream takes the first complete set of settings; an incomplete set
falls through to the instance metadata service, whose address does not respond outside ECS. Here an incomplete set is an
error that names what is missing, and the metadata service is used only if the settings request it.

An access key may be rotated and a session may expire during a pass. In both cases the source is read once more and the
call is tried once more; a second refusal is final (Unauthorized). Sessions are kept in this process's memory only,
never in the table. They are looked up by what they were made from, so a changed key or role never gets a session of the
old one.
"""

from __future__ import annotations

import configparser
import re
import threading
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import LONGEST_KEY, LONGEST_TOKEN, Secret, is_sendable, place_of
from chalicelib.providers.credential_source import json_fields
from chalicelib.providers.errors import Throttled, Transient

PLACE = "providers.alicloud"

# -- settings


class Way(StrEnum):
    """How credentials are obtained."""

    KEY = "access key"
    ROLE = "role, by access key"
    OIDC = "role, by OIDC token"
    METADATA = "role of an ECS instance"


class Access(msgspec.Struct, frozen=True):
    """The credential settings. They hold names of secrets, never secrets. An empty text means "not given"."""

    credentials_secret: str = ""
    role_arn: str = ""
    session_name: str = ""
    oidc_provider_arn: str = ""
    oidc_token_secret: str = ""
    oidc_token_file: str = ""
    metadata_endpoint: str = ""
    ram_role: str = ""

    @property
    def by_oidc(self) -> bool:
        """Whether any OIDC setting is given."""
        return bool(self.oidc_provider_arn or self.oidc_token_secret or self.oidc_token_file)

    @property
    def by_metadata(self) -> bool:
        """Whether the settings request the metadata service."""
        return bool(self.metadata_endpoint or self.ram_role)


def way_of(access: Access, *, key_id: bool, key_secret: bool, token: bool) -> Way:
    """Return the one method that is configured. key_id, key_secret, token: contents of the secret. Raises BadInput
    naming what is missing, or if two methods are configured."""
    by_key = key_id or key_secret or token
    methods = {"an access key": by_key, "OIDC": access.by_oidc, "instance metadata": access.by_metadata}
    configured = [name for name, is_configured in methods.items() if is_configured]
    if len(configured) > 1:
        raise BadInput(PLACE, f"names two ways to credentials: {' and '.join(configured)}", "keep one of them")
    if access.by_oidc:
        _check_oidc(access)
        return Way.OIDC
    if access.by_metadata:
        return Way.METADATA
    secret = place_of(access.credentials_secret) if access.credentials_secret else f"{PLACE}.credentialsSecret"
    if not by_key:
        raise BadInput(
            secret,
            "holds no access key" if access.credentials_secret else "is missing, and no other credentials are named",
            "name a secret with accessKeyId and accessKeySecret, or give oidcProviderArn, roleArn and oidcTokenSecret",
        )
    for present, field in ((key_id, "accessKeyId"), (key_secret, "accessKeySecret")):
        if not present:
            raise BadInput(secret, f"{field} is missing", f"add {field} to it")
    return Way.ROLE if access.role_arn else Way.KEY


def check_access(access: Access) -> None:
    """Run the checks that are possible before the secret is read. Raises BadInput."""
    if access.oidc_token_secret and access.oidc_token_file:
        raise BadInput(f"{PLACE}.oidcTokenFile", "conflicts with oidcTokenSecret", "keep one of the two")
    if not access.credentials_secret:
        way_of(access, key_id=False, key_secret=False, token=False)


def _check_oidc(access: Access) -> None:
    token = access.oidc_token_secret or access.oidc_token_file
    for field, value, remedy in (
        ("oidcProviderArn", access.oidc_provider_arn, "add oidcProviderArn"),
        ("roleArn", access.role_arn, "add roleArn"),
        ("oidcTokenSecret", token, "name the secret that holds the token (or oidcTokenFile, a file of this machine)"),
    ):
        if not value:
            raise BadInput(f"{PLACE}.{field}", "is missing, and credentials by OIDC need it", remedy)


# -- secrets

_PREFIX = re.compile(r"(?:ALIBABA|ALI)_?CLOUD_", re.IGNORECASE)
# A field's letters in lower case, without dashes and underscores -> our field.
_FIELDS = {
    "accesskeyid": "key_id",
    "accesskeysecret": "key_secret",
    "securitytoken": "token",
    "regionid": "region",
    "region": "region",
    "rolearn": "role_arn",
    "rolesessionname": "session_name",
    "sessionname": "session_name",
    "oidcproviderarn": "oidc_provider_arn",
    "oidctokenfile": "oidc_token_file",
    "oidctokenfilepath": "oidc_token_file",
}
_SENT = {"key_id": LONGEST_KEY, "key_secret": LONGEST_KEY, "token": LONGEST_TOKEN}  # field -> maximum length
LONGEST_OIDC_TOKEN = 20_000  # characters
# The characters of a signed JSON Web Token.
_OIDC_TOKEN = re.compile(rf"[A-Za-z0-9_.-]{{4,{LONGEST_OIDC_TOKEN}}}\Z")
_FORM = 'write {"accessKeyId": "…", "accessKeySecret": "…"}'
_KNOWN = "accessKeyId, accessKeySecret, securityToken, roleArn, sessionName, oidcProviderArn, oidcTokenFile, regionId"


class SecretText(msgspec.Struct, frozen=True):
    """The contents of a secret. Its region is not used; the policy's region applies."""

    key_id: Secret = Secret("")
    key_secret: Secret = Secret("")
    token: Secret = Secret("")
    region: str = ""
    role_arn: str = ""
    session_name: str = ""
    oidc_provider_arn: str = ""
    oidc_token_file: str = ""


def parse_secret(text: str, place: str) -> SecretText:
    """Parse JSON, upstream's Kubernetes Secret, or an INI with a section [global]; raises BadInput naming the field,
    never its value. All forms of a field name are equal: `accessKeyId`, `access-key-id`, `ACCESS_KEY_ID` and
    `ALIBABA_CLOUD_ACCESS_KEY_ID`. A trailing newline breaks signatures and is removed."""
    pairs = json_fields(text, place, _FORM) if text.lstrip().startswith("{") else _ini_fields(text, place)
    values: dict[str, str] = {}
    for name, written in pairs:
        field = _FIELDS.get(_PREFIX.sub("", name.strip()).replace("-", "").replace("_", "").lower())
        if field is None:
            # A user may have written the key in place of its name, so only text that looks like a name is shown.
            shown = name if re.fullmatch(r"[A-Za-z_-]{1,40}", name) else "a field"
            raise BadInput(place, f"{shown} is not known", f"the fields are {_KNOWN}")
        value = written.strip()
        if re.search(r"[\s\x00-\x1f\x7f]", value) or not value.isascii():
            raise BadInput(place, f"{name} contains spaces or special characters", "write it without them")
        if value and field in _SENT and not is_sendable(value, _SENT[field]):
            raise BadInput(
                place,
                f"{name} is not a key or token: it is too long or contains invalid characters",
                "write it as the vendor gave it",
            )
        if value and values.setdefault(field, value) != value:
            raise BadInput(place, f"{name} is given twice with different values", "keep one of the two")
    secrets = {field: Secret(values.pop(field)) for field in _SENT if field in values}
    return SecretText(**secrets, **values)  # type: ignore[arg-type]


def parse_oidc_token(text: str, place: str) -> Secret:
    """Return an OIDC token. Raises BadInput, which contains no part of it."""
    token = text.strip()
    if not _OIDC_TOKEN.match(token):
        problem = "holds no OIDC token" if token else "is empty"
        raise BadInput(place, problem, "put the token there, and nothing else")
    return Secret(token)


def _ini_fields(text: str, place: str) -> Iterable[tuple[str, str]]:
    parser = configparser.RawConfigParser(delimiters=("=",), interpolation=None, default_section="")
    try:
        parser.read_string(text)
    except configparser.Error:
        raise BadInput(place, "is neither JSON nor an INI with a section [global]", _FORM) from None
    sections = {name.strip().lower(): name for name in parser.sections()}
    if set(sections) != {"global"}:
        problem = "has another section than [global]" if sections else "has no section [global]"
        raise BadInput(place, problem, "put the fields under [global]")
    return [(name, value.strip().strip('"')) for name, value in parser.items(sections["global"])]


# -- credentials

LIFETIME = 3600.0  # requested session lifetime in seconds; every role allows an hour
_EARLY = 900.0  # seconds before the end at which a session is renewed, as in the vendor's own client …
_SHARE = 0.8  # … but not before this share of a short lifetime has passed
_LAST_USE = 60.0  # seconds before its end until which an old session is used while STS is unavailable
_AGAIN = 30.0  # seconds until the next attempt in that case
_MOST_SESSIONS = 256


class AlicloudCredential(msgspec.Struct, frozen=True):
    """A key and, for a session, its token and expiry. obtained, expires: epoch seconds."""

    key_id: Secret
    key_secret: Secret
    token: Secret = Secret("")
    obtained: float = 0.0
    expires: float = float("inf")

    def hidden_in(self, text: str) -> str:
        """Return the text with every part of the credential removed, in any encoding."""
        for secret in (self.token, self.key_secret, self.key_id):
            text = secret.hidden_in(text)
        return text

    def signs_like(self, other_credential: AlicloudCredential) -> bool:
        """Whether both sign alike, regardless of when they were obtained."""
        return (self.key_id, self.key_secret, self.token) == (
            other_credential.key_id,
            other_credential.key_secret,
            other_credential.token,
        )


class AlicloudCredentialSource(Protocol):
    """A source of a credential. Both methods raise ProviderError."""

    def current(self) -> AlicloudCredential:
        """Return the credential to sign with now."""

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """Return a credential other than the given one, which the vendor refused; None if there is none."""


class AlicloudAccessKeys:
    """A long-lived key that the operator keeps in a secret. read_again: returns the key as it is now."""

    def __init__(self, credential: AlicloudCredential, read_again: Callable[[], AlicloudCredential]) -> None:
        self._credential, self._read_again = credential, read_again

    def current(self) -> AlicloudCredential:
        """Return the key as last read."""
        return self._credential

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """Return the key as it is now, if it was changed."""
        self._credential = self._read_again()
        return None if self._credential.signs_like(refused_credential) else self._credential


class Sessions:
    """The sessions of a process. Thread-safe; if two threads both create one, the later is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, tuple[AlicloudCredential, float]] = {}

    def get(self, key: str, now: float, make: Callable[[], AlicloudCredential]) -> AlicloudCredential:
        """Return the session made from what `key` identifies, renewed before it expires. While STS is unavailable, the
        old session is used as long as it is valid. Every other error of `make` is raised."""
        with self._lock:
            old, renewal = self._sessions.get(key, (None, 0.0))
        if old is not None and old.obtained - _LAST_USE <= now < renewal:
            return old
        try:
            new = make()
        except (Transient, Throttled):
            if old is None or not old.obtained - _LAST_USE <= now < old.expires - _LAST_USE:
                raise
            return self._keep(key, old, now, now + _AGAIN)
        return self._keep(key, new, now, due(new))

    def drop(self, key: str, refused_credential: AlicloudCredential) -> None:
        """Remove a session that the vendor refused, unless another one has replaced it."""
        with self._lock:
            session = self._sessions.get(key)
            if session is not None and session[0].signs_like(refused_credential):
                del self._sessions[key]

    def _keep(self, key: str, credential: AlicloudCredential, now: float, renewal: float) -> AlicloudCredential:
        with self._lock:
            if len(self._sessions) >= _MOST_SESSIONS:
                valid = [(name, session) for name, session in self._sessions.items() if session[0].expires > now]
                self._sessions = dict(valid)
            if len(self._sessions) >= _MOST_SESSIONS:
                self._sessions.clear()
            self._sessions[key] = (credential, renewal)
        return credential


@lru_cache(maxsize=1)
def of_this_process() -> Sessions:
    """Return the store that all passes of a process share. Each pass builds new providers and must not call STS each
    time."""
    return Sessions()


class Session:
    """A temporary credential. key: identifies what it is made from; make: calls STS or the metadata
    service."""

    def __init__(
        self, sessions: Sessions, key: str, make: Callable[[], AlicloudCredential], now: Callable[[], float]
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


def due(credential: AlicloudCredential) -> float:
    """Return when to renew: 15 minutes before the end, or after four fifths of a lifetime shorter than half an hour.
    The time is at least a minute after the session was obtained, whatever expiry the vendor names, so STS is not called
    for every request."""
    life = credential.expires - credential.obtained
    early = life - _EARLY
    return credential.obtained + max(early if early >= life / 2 else _SHARE * life, _LAST_USE)
