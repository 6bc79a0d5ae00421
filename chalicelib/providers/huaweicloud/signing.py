"""SDK-HMAC-SHA256, the vendor's only authentication, as pure functions.

The signed text is what is sent: the query is encoded here once and put into the URL as it was signed, because a library
might encode it differently. Only the path differs: the signed text has a trailing slash that the URL lacks.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

import msgspec

from chalicelib.model.secret import Secret
from chalicelib.providers.http import VendorRequest

ALGORITHM = "SDK-HMAC-SHA256"
SKEW = 900  # seconds by which our clock may differ from the vendor's
_UNRESERVED = "-_.~"
_DEFAULT_PORTS = {"https": ":443", "http": ":80"}


class CceCredential(msgspec.Struct, frozen=True):
    """An access key with its secret, and the token of a temporary one. obtained, expires: epoch seconds."""

    key: Secret
    secret: Secret
    token: Secret = Secret("")
    obtained: float = 0.0
    expires: float = float("inf")

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The parts that must be hidden."""
        return self.token, self.secret, self.key


def timestamp(now: float) -> str:
    """Return epoch seconds as `20260102T030405Z`."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))


def canonical_query(params: Mapping[str, str]) -> str:
    """Return the query as signed and sent: percent-encoded, sorted by name and then value; "" for none."""
    return "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(params.items()))


def canonical_path(path: str) -> str:
    """Return the path with each segment percent-encoded and a trailing slash."""
    whole = "/".join(_encoded(unquote(segment)) for segment in path.split("/"))
    return whole if whole.endswith("/") else f"{whole}/"


def canonical_request(method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> str:
    """Return the text that is hashed: method, path, query, headers, header names, and the hash of the body.

    headers: those to be signed, names in lower case."""
    lines = "".join(f"{name}:{value.strip()}\n" for name, value in sorted(headers.items()))
    return "\n".join(
        (
            method.upper(),
            canonical_path(path),
            query,
            lines,
            ";".join(sorted(headers)),
            hashlib.sha256(body).hexdigest(),
        )
    )


def authorization(credential: CceCredential, request: str, date: str, names: str) -> str:
    """Return the header's value for a canonical request. date: timestamp; names: of the signed headers, joined by
    `;`."""
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"{ALGORITHM}\n{date}\n{digest}"
    wanted = hmac.new(credential.secret.reveal().encode(), text.encode(), hashlib.sha256).hexdigest()
    return f"{ALGORITHM} Access={credential.key.reveal()}, SignedHeaders={names}, Signature={wanted}"


def signed(call: VendorRequest, credential: CceCredential, now: float) -> VendorRequest:
    """Return the call as sent at `now` (epoch seconds). Its URL has no query; that is in the parameters.

    All headers of the call that describe it (content-type, x-project-id) are signed, with host, date and token."""
    parts, query = urlsplit(call.url), canonical_query(call.params)
    host = parts.netloc.removesuffix(_DEFAULT_PORTS.get(parts.scheme, ""))
    date = timestamp(now)
    headers = {name.lower(): value for name, value in call.headers.items()}
    headers |= {"host": host, "x-sdk-date": date}
    if credential.token:
        headers["x-security-token"] = credential.token.reveal()
    request = canonical_request(call.method, parts.path or "/", query, headers, call.body or b"")
    header = authorization(credential, request, date, ";".join(sorted(headers)))
    url = f"{call.url}?{query}" if query else call.url
    return VendorRequest(call.method, url, headers | {"authorization": header}, {}, call.body, call.safe)


def _encoded(text: str) -> str:
    return quote(text, safe=_UNRESERVED)
