"""EXO2-HMAC-SHA256, the one way to show the vendor who is calling (exoscale.md §4).

What is signed is what is sent: the path as it stands in the address and the bytes of the body. The host is no part of
it. Parameters without a value and parameters with several are where the vendor's own clients disagree; the first are
neither sent nor signed here, and the second cannot be said by a Call.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from chalicelib.model.secret import Secret
from chalicelib.providers.http import VendorRequest

ALGORITHM = "EXO2-HMAC-SHA256"
VALID = 600  # seconds that a signature is good for


class ExoscaleCredential(msgspec.Struct, frozen=True):
    """An API key and its secret; neither is ever shown."""

    key: Secret
    secret: Secret


def message(method: str, path: str, body: bytes, params: Mapping[str, str], expires: int) -> bytes:
    """What is signed: five parts. path: escaped, with the version; expires: epoch seconds."""
    values = "".join(params[name] for name in sorted(params))
    return b"\n".join((f"{method} {path}".encode(), body, values.encode(), b"", str(expires).encode()))


def authorization(
    credential: ExoscaleCredential, method: str, path: str, body: bytes, params: Mapping[str, str], expires: int
) -> str:
    """The header's value."""
    text = message(method, path, body, params, expires)
    digest = hmac.new(credential.secret.reveal().encode(), text, hashlib.sha256).digest()
    names = f"signed-query-args={';'.join(sorted(params))}," if params else ""
    return (
        f"{ALGORITHM} credential={credential.key.reveal()},{names}expires={expires},"
        f"signature={base64.b64encode(digest).decode()}"
    )


def signed(call: VendorRequest, credential: ExoscaleCredential, now: float) -> VendorRequest:
    """The call as it is sent at `now` (epoch seconds). Its address has no query; that is in the parameters."""
    params = {name: value for name, value in call.params.items() if value}
    header = authorization(credential, call.method, urlsplit(call.url).path, call.body or b"", params, int(now) + VALID)
    return VendorRequest(call.method, call.url, {**call.headers, "Authorization": header}, params, call.body, call.safe)
