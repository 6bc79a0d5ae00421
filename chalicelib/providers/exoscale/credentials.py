"""The API key: the formats of its secret, and EXO2-HMAC-SHA256, the vendor's only authentication.

The signed text is what is sent: the path as in the URL and the bytes of the body, without the host.
The vendor's own clients disagree about parameters without a value and parameters with several
values. The former are neither sent nor signed here, and a VendorRequest cannot express the latter.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from chalicelib.model.secret import Secret
from chalicelib.providers.kit.access_keys import SecretFormat, name_value_lines, secret_fields
from chalicelib.providers.kit.http import VendorRequest

ALGORITHM = "EXO2-HMAC-SHA256"
VALID = 600  # seconds that a signature is valid


class ExoscaleCredential(msgspec.Struct, frozen=True):
    """An API key and its secret; neither is ever shown."""

    key: Secret
    secret: Secret


def message(method: str, path: str, body: bytes, params: Mapping[str, str], expires: int) -> bytes:
    """Return the text to sign, in five parts (Exoscale's API v2 reference, on request signatures).
    path: escaped, with the version; expires: epoch seconds."""
    values = "".join(params[name] for name in sorted(params))
    call = f"{method} {path}"
    headers = b""  # none is signed
    return b"\n".join((call.encode(), body, values.encode(), headers, str(expires).encode()))


def authorization(
    credential: ExoscaleCredential,
    method: str,
    path: str,
    body: bytes,
    params: Mapping[str, str],
    expires: int,
) -> str:
    """Return the value of the header Authorization. expires: epoch seconds, from which
    on the vendor refuses it."""
    secret = credential.secret.reveal().encode()
    text = message(method, path, body, params, expires)
    digest = hmac.new(secret, text, hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    key = credential.key.reveal()
    names = f"signed-query-args={';'.join(sorted(params))}," if params else ""
    return f"{ALGORITHM} credential={key},{names}expires={expires},signature={signature}"


def signed(request: VendorRequest, credential: ExoscaleCredential, now: float) -> VendorRequest:
    """Return the call as sent at `now` (epoch seconds). Its URL has no query;
    that is in the parameters."""
    params = {name: value for name, value in request.params.items() if value}
    path = urlsplit(request.url).path
    body = request.body or b""
    expires = int(now) + VALID
    header = authorization(credential, request.method, path, body, params, expires)
    headers = {**request.headers, "Authorization": header}
    return VendorRequest(request.method, request.url, headers, params, request.body, request.safe)


_REMEDY = 'write {"apiKey": "EXO…", "apiSecret": "…"}'


def _lines(text: str, place: str) -> Iterable[tuple[str, str]]:
    lines = (line.strip().removeprefix("export ") for line in text.splitlines())
    assignments = (line for line in lines if line and not line.startswith(("#", "[")))
    return name_value_lines(assignments, place, _REMEDY)


_FORMAT = SecretFormat(
    fields={
        "apikey": "key",
        "apisecret": "secret",
        "apizone": None,
        "zone": None,
        "apienvironment": None,
    },
    written={"key": "apiKey", "secret": "apiSecret"},
    known="apiKey and apiSecret",
    remedy=_REMEDY,
    lines=_lines,
    prefix=re.compile(r"EXOSCALE[_-]?", re.IGNORECASE),
    # keys begin with EXO
    shown=re.compile(r"(?!EXO(?!SCALE_))[A-Za-z][A-Za-z_-]{0,39}\Z", re.ASCII),
    problem="contains spaces, commas or special characters",
)


def parse_secret(text: str, place: str) -> ExoscaleCredential:
    """Parse JSON, an environment file, or upstream's Kubernetes Secret, which also names the zone
    that the policy defines here. Raises BadInput naming the field, never its value."""
    values = secret_fields(text, place, _FORMAT, ("key", "secret"))
    key = Secret(values["key"])
    secret = Secret(values["secret"])
    return ExoscaleCredential(key, secret)
