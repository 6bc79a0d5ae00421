"""The API key: the formats of its secret, and EXO2-HMAC-SHA256, the vendor's only authentication.

The signed text is what is sent: the path as in the URL and the bytes of the body, without the host. The vendor's own
clients disagree about parameters without a value and parameters with several values. The former are neither sent nor
signed here, and a VendorRequest cannot express the latter.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import LONGEST_KEY, Secret, is_sendable
from chalicelib.providers.credential_source import json_fields
from chalicelib.providers.http import VendorRequest

ALGORITHM = "EXO2-HMAC-SHA256"
VALID = 600  # seconds that a signature is valid


class ExoscaleCredential(msgspec.Struct, frozen=True):
    """An API key and its secret; neither is ever shown."""

    key: Secret
    secret: Secret


def message(method: str, path: str, body: bytes, params: Mapping[str, str], expires: int) -> bytes:
    """Return the text to sign, in five parts. path: escaped, with the version; expires: epoch seconds."""
    values = "".join(params[name] for name in sorted(params))
    return b"\n".join((f"{method} {path}".encode(), body, values.encode(), b"", str(expires).encode()))


def authorization(
    credential: ExoscaleCredential, method: str, path: str, body: bytes, params: Mapping[str, str], expires: int
) -> str:
    """Return the header's value."""
    digest = hmac.new(
        credential.secret.reveal().encode(), message(method, path, body, params, expires), hashlib.sha256
    ).digest()
    names = f"signed-query-args={';'.join(sorted(params))}," if params else ""
    return (
        f"{ALGORITHM} credential={credential.key.reveal()},{names}expires={expires},"
        f"signature={base64.b64encode(digest).decode()}"
    )


def signed(request: VendorRequest, credential: ExoscaleCredential, now: float) -> VendorRequest:
    """Return the call as sent at `now` (epoch seconds). Its URL has no query; that is in the parameters."""
    params = {name: value for name, value in request.params.items() if value}
    header = authorization(
        credential, request.method, urlsplit(request.url).path, request.body or b"", params, int(now) + VALID
    )
    return VendorRequest(
        request.method, request.url, {**request.headers, "Authorization": header}, params, request.body, request.safe
    )


_PREFIX = re.compile(r"EXOSCALE[_-]?", re.IGNORECASE)
_NAME = re.compile(r"(?!EXO(?!SCALE_))[A-Za-z][A-Za-z_-]{0,39}\Z", re.ASCII)
# A field's letters in lower case, without dashes and underscores -> our field; None: known but not used here.
_FIELDS = {"apikey": "key", "apisecret": "secret", "apizone": None, "zone": None, "apienvironment": None}
_WRITTEN = {"key": "apiKey", "secret": "apiSecret"}
_FORM = 'write {"apiKey": "EXO…", "apiSecret": "…"}'


def parse_secret(text: str, place: str) -> ExoscaleCredential:
    """Parse JSON, an environment file, or upstream's Kubernetes Secret; raises BadInput naming the field, never its
    value. All forms of a field name are equal: `apiKey`, `api-key`, `API_KEY` and `EXOSCALE_API_KEY`. Upstream's Secret
    also names the zone, which the policy defines here. A trailing newline would break the signature and is removed."""
    secrets: dict[str, Secret] = {}
    for name, text_value in json_fields(text, place, _FORM) if text.lstrip().startswith("{") else _lines(text, place):
        letters = _PREFIX.sub("", name.strip()).replace("-", "").replace("_", "").lower()
        # A user may have written the key in place of its name, so only text that looks like a name is shown.
        shown = name.strip() if _NAME.match(name.strip()) else "a field"
        if letters not in _FIELDS:
            raise BadInput(place, f"{shown} is not known", "the fields are apiKey and apiSecret")
        field, value = _FIELDS[letters], text_value.strip()
        if field is None or not value:
            continue
        if not is_sendable(value, LONGEST_KEY):
            raise BadInput(place, f"{shown} contains spaces, commas or special characters", "write it without them")
        if secrets.setdefault(field, Secret(value)) != Secret(value):
            raise BadInput(place, f"{_WRITTEN[field]} is given twice with different values", "keep one of the two")
    for field, written in _WRITTEN.items():
        if field not in secrets:
            raise BadInput(place, f"{written} is missing", _FORM)
    return ExoscaleCredential(secrets["key"], secrets["secret"])


def _lines(text: str, place: str) -> Iterable[tuple[str, str]]:
    lines = [line.strip().removeprefix("export ") for line in text.splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith(("#", "["))]
    if not pairs or not all(equals for _, equals, _ in pairs):
        raise BadInput(place, "is neither JSON nor lines of name=value", _FORM)
    return [(name, value.strip().strip("\"'")) for name, _, value in pairs]
