"""The keys that sign: formats of the secret, SDK-HMAC-SHA256, temporary keys of an agency,
and the region's project.

The signed text is what is sent: the query is encoded here once and put into the URL as it was
signed, because a library might encode it differently. Only the path differs: the signed text has a
trailing slash that the URL lacks.

Temporary keys are obtained with the long-lived key and used until ten minutes before their expiry.
They are kept in this process's memory only, never in a table. They are looked up by what they were
made from, so a changed key or agency never gets keys of the old one. Keys that the vendor refuses
are replaced once in the life of a provider object; a second refusal is final.

Every refusal by IAM is Unauthorized: a key, an agency or a project is wrong, and the
operator must act. It must not be mistaken for a response about a pool, where a 404 would
mean that the pool is gone.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import LONGEST_TOKEN, Secret
from chalicelib.model.timestamps import parse_time
from chalicelib.policy.vendors.huaweicloud import PLACE, Agency
from chalicelib.providers.huaweicloud.provider_ids import is_project
from chalicelib.providers.kit.access_keys import (
    AccessKey,
    SecretFormat,
    TemporaryKeys,
    name_value_lines,
    secret_fields,
)
from chalicelib.providers.kit.credential_source import SecretSource, digest
from chalicelib.providers.kit.errors import (
    InvalidRequest,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
)
from chalicelib.providers.kit.http import Http, VendorRequest
from chalicelib.providers.kit.services import Cache, TtlCache


class CceCredential(AccessKey, frozen=True):
    """An access key with its secret, and the token of a temporary one."""


# -- secrets

_REMEDY = 'write {"accessKey": "…", "secretKey": "…"}'


def _lines(text: str, place: str) -> Iterable[tuple[str, str]]:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("#", ";"))]
    if any(line.startswith("[") and line.replace(" ", "").lower() != "[global]" for line in lines):
        raise BadInput(place, "has another section than [Global]", "put the fields under [Global]")
    return name_value_lines((line for line in lines if not line.startswith("[")), place, _REMEDY)


_FORMAT = SecretFormat(
    fields={
        **dict.fromkeys(("accesskey", "accesskeyid", "ak"), "key"),
        **dict.fromkeys(("secretkey", "secretaccesskey", "sk"), "secret"),
        "securitytoken": "token",
        # Upstream's file names these too; the policy defines them.
        **dict.fromkeys(("projectid", "clusterid", "region")),
        **dict.fromkeys(("cceendpoint", "ecsendpoint", "asendpoint", "iamendpoint")),
    },
    written={"key": "accessKey", "secret": "secretKey", "token": "securityToken"},
    known="accessKey, secretKey, securityToken",
    remedy=_REMEDY,
    lines=_lines,
    shown=re.compile(r"[A-Za-z][A-Za-z_-]{0,13}\Z", re.ASCII),  # no longer than security-token
    longest={"token": LONGEST_TOKEN},
)


def parse_secret(text: str, place: str) -> CceCredential:
    """Parse JSON, or lines of name=value, optionally under [Global] as in upstream's INI; raises
    BadInput naming the field, never its value."""
    values = secret_fields(text, place, _FORMAT, ("key", "secret"))
    key, secret, token = (Secret(values.get(field, "")) for field in _FORMAT.written)
    return CceCredential(key, secret, token)


# -- signature

ALGORITHM = "SDK-HMAC-SHA256"
_DEFAULT_PORTS = {"https": ":443", "http": ":80"}


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")


def timestamp(now: float) -> str:
    """Return epoch seconds as `20260102T030405Z`."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))


def canonical_query(params: Mapping[str, str]) -> str:
    """Return the query as signed and sent: percent-encoded, sorted by name and
    then value; "" for none."""
    return "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(params.items()))


def canonical_path(path: str) -> str:
    """Return the path with each segment percent-encoded and a trailing slash."""
    whole = "/".join(_encoded(unquote(segment)) for segment in path.split("/"))
    return whole if whole.endswith("/") else f"{whole}/"


def canonical_request(
    method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> str:
    """Return the text that is hashed: method, path, query, headers, header names, and the hash of
    the body. headers: those to be signed, names in lower case."""
    lines = "".join(f"{name}:{value.strip()}\n" for name, value in sorted(headers.items()))
    names, body_hash = ";".join(sorted(headers)), hashlib.sha256(body).hexdigest()
    return "\n".join((method.upper(), canonical_path(path), query, lines, names, body_hash))


def signed(call: VendorRequest, credential: CceCredential, now: float) -> VendorRequest:
    """Return the call as sent at `now` (epoch seconds). Its URL has no query; that is in the
    parameters. All headers of the call that describe it (content-type, x-project-id) are signed,
    with host, date and token."""
    parts, query, date = urlsplit(call.url), canonical_query(call.params), timestamp(now)
    host = parts.netloc.removesuffix(_DEFAULT_PORTS.get(parts.scheme, ""))
    headers = {name.lower(): value for name, value in call.headers.items()} | {
        "host": host,
        "x-sdk-date": date,
    }
    if credential.token:
        headers["x-security-token"] = credential.token.reveal()
    request = canonical_request(call.method, parts.path or "/", query, headers, call.body or b"")
    text = f"{ALGORITHM}\n{date}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.new(
        credential.secret.reveal().encode(), text.encode(), hashlib.sha256
    ).hexdigest()
    names = ";".join(sorted(headers))
    header = (
        f"{ALGORITHM} Access={credential.key.reveal()}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    url = f"{call.url}?{query}" if query else call.url
    return VendorRequest(
        call.method, url, headers | {"authorization": header}, {}, call.body, call.safe
    )


# -- temporary keys of an agency

EARLY = 600.0  # seconds before their expiry from which keys are replaced before anything is signed
# minimum seconds for which keys are used, whatever expiry the vendor (or our clock) gives
_LEAST = 60.0


class Sessions(TemporaryKeys[CceCredential]):
    """The temporary keys of a process. While IAM provides none, the old ones are used as long as
    they are valid, also after a permanent refusal, because an error here must not hide the result
    of a change that was sent with them."""

    def __init__(self) -> None:
        super().__init__(
            lambda keys: max(keys.expires - EARLY, keys.obtained + _LEAST), (ProviderError,)
        )


@lru_cache(maxsize=1)
def of_this_process() -> Sessions:
    """Return the store that all passes of one process share, so that IAM is not called each
    time."""
    return Sessions()


class Assumed(SecretSource[CceCredential]):
    """The keys of an agency, used instead of the long-lived key. keys: the
    long-lived one; grant: calls IAM."""

    def __init__(
        self,
        keys: SecretSource[CceCredential],
        agency: Agency,
        url: str,
        grant: Callable[[], CceCredential],
        sessions: Sessions,
        now: Callable[[], float],
    ) -> None:
        self._keys, self._agency, self._url, self._grant = keys, agency, url, grant
        self._sessions, self._now = sessions, now
        self._again, self._guard = False, threading.Lock()

    def current(self) -> CceCredential:
        """Return the keys to sign with now; raises ProviderError."""
        name = self._session_name()
        credential = self._sessions.get(name, self._now(), self._grant)
        # The call of IAM may have replaced the long-lived key; the keys were
        # then made from the new one.
        later = self._session_name()
        return (
            credential
            if later == name
            else self._sessions.get(later, self._now(), lambda: credential)
        )

    def renewed(self, refused_credential: CceCredential) -> bool:
        """Return whether the keys have changed since they were refused; raises as current does.
        Renews once per provider object."""
        with self._guard:
            if not self.current().signs_like(refused_credential):
                return True
            if self._again:
                return False
            self._again = True
            self._sessions.drop(self._session_name(), refused_credential)
            return not self.current().signs_like(refused_credential)

    def _session_name(self) -> str:
        """Return a key for the session that reveals nothing of what it is made from."""
        long, agency = self._keys.current(), self._agency
        parts = (
            self._url,
            agency.domain,
            agency.name,
            long.key.reveal(),
            long.secret.reveal(),
            long.token.reveal(),
        )
        return digest("\0".join(f"{len(part)}:{part}" for part in parts), 64)


# -- IAM

_JSON = {"Content-Type": "application/json"}
_DAY = 86400.0
_SHOWN = 5


def _answer(http: Http, request: VendorRequest, subject: str) -> dict[str, Any]:
    """Return IAM's answer; raises Transient, Throttled, and Unauthorized for everything
    that waiting cannot resolve."""
    try:
        return http.send(request).read_object()
    except ProviderError as error:
        cls = type(error) if isinstance(error, Transient | Throttled) else Unauthorized
        raise cls(
            f"{subject}: {error.message}",
            code=error.code,
            request_id=error.request_id,
            retry_after=error.retry_after,
        ) from None


def granted(http: Http, root: str, agency: Agency, now: float) -> CceCredential:
    """Return new keys of the agency, requested with the long-lived key that `rest` signs with.
    Repeating is safe. Raises Unauthorized, Transient, Throttled. If the expiry cannot be read, the
    requested lifetime is assumed; keys that end sooner are replaced when the vendor refuses
    them."""
    role = {
        "domain_name": agency.domain,
        "agency_name": agency.name,
        "duration_seconds": agency.seconds,
    }
    body = msgspec.json.encode(
        {"auth": {"identity": {"methods": ["assume_role"], "assume_role": role}}}
    )
    request = VendorRequest(
        "POST", f"{root}/v3.0/OS-CREDENTIAL/securitytokens", dict(_JSON), {}, body, safe=True
    )
    subject = f"agency {agency.name} of {agency.domain}"
    credential = _answer(http, request, subject).get("credential")
    fields = credential if isinstance(credential, dict) else {}
    parts = [fields.get(name) for name in ("access", "secret", "securitytoken")]
    if not all(
        isinstance(part, str) and part and part.isascii() and part.isprintable() for part in parts
    ):
        raise Unauthorized(f"{subject}: the answer holds no credentials", code="NoCredentials")
    key, secret, token = (Secret(str(part)) for part in parts)
    try:
        expires = parse_time(str(fields.get("expires_at")))
    except BadInput:
        expires = now + agency.seconds
    return CceCredential(key, secret, token, obtained=now, expires=expires)


class Projects:
    """The project of a region: looked up by its name, cached for a day. key: as for
    the cache (kit/services.py)."""

    def __init__(
        self,
        http: Http,
        root: str,
        region: str,
        *,
        cache: Cache,
        key: Callable[[], str],
        now: Callable[[], float],
    ) -> None:
        self._rest, self._root, self._region = http, root, region
        self._cache = TtlCache(cache, key, str, now)
        self._project = ""

    def id(self) -> str:
        """Return the project's id, 32 hex digits. Raises InvalidRequest if there is none, or more
        than one to choose from; otherwise as granted."""
        if self._project:
            return self._project
        project = self._cache.get([self._region]).get(self._region) or ""
        if not is_project(project):
            request = VendorRequest(
                "GET", f"{self._root}/v3/projects", dict(_JSON), {"name": self._region}, safe=True
            )
            answer = _answer(self._rest, request, f"the project of {self._region}").get("projects")
            usable = [
                item["id"]
                for item in (answer if isinstance(answer, list) else [])
                if isinstance(item, dict)
                and item.get("name") in (None, self._region)
                and item.get("enabled") is not False
                and isinstance(item.get("id"), str)
                and is_project(item["id"])
            ]
            if len(usable) != 1:
                several = f"{len(usable)} projects of that name ({', '.join(usable[:_SHOWN])})"
                raise InvalidRequest(
                    f"{PLACE}.projectId: the region {self._region} has "
                    f"{several if usable else 'no project'}; "
                    "write its id there",
                    code="Project",
                )
            project = str(usable[0])
            self._cache.put({self._region: project}, known=_DAY, unknown=0.0)
        self._project = project
        return project
