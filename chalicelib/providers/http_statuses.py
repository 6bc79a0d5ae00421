"""Maps an HTTP status to a class of the error tree, for every vendor with an HTTP API.

A vendor's own codes are more specific than a status; its package maps those first and falls back to this table.
"""

from __future__ import annotations

from chalicelib.providers.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
)

# Exact statuses first, then the hundreds; any other status is Unknown.
_BY_STATUS: dict[int, type[ProviderError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    402: Unauthorized,  # an account in arrears is refused like one without a key: the operator must act
    403: Unauthorized,
    404: NotFound,
    405: InvalidRequest,
    406: InvalidRequest,
    408: Transient,
    409: Conflict,
    410: NotFound,
    412: Conflict,
    413: InvalidRequest,
    415: InvalidRequest,
    421: Transient,
    422: InvalidRequest,
    423: Conflict,
    425: Transient,
    429: Throttled,
    501: InvalidRequest,
}
_BY_HUNDRED: dict[int, type[ProviderError]] = {5: Transient}


def class_for(status: int | None) -> type[ProviderError]:
    """Return the error class of a status; None or 0 means that there was no response, which is Transient."""
    if not status:
        return Transient
    return _BY_STATUS.get(status) or _BY_HUNDRED.get(status // 100, Unknown)
