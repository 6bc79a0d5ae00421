"""The errors of a vendor as one small tree. The backoff follows the class, never a text.

ProviderError
├── Throttled        too many calls; retry after retry_after              temporary
├── OutOfStock       the vendor has no such machine now                   temporary, next group in
                                                                          the same pass
├── QuotaExceeded    the account's limit                                  temporary, next group,
                                                                          notify the operator
├── InstallFailed    a machine was created and could not become a node    temporary, always the same
                                                                          short wait
├── Unauthorized     credentials refused or expired (401, 403)            stop this provider, notify
                                                                          the operator
├── NotFound         the resource no longer exists                        permanent
├── Conflict         changed concurrently (409)                           read again, decide again
├── InvalidRequest   the vendor rejects the request                       permanent, a bug or a
                                                                          policy error
├── Transient        network, 5xx, truncated responses                    temporary; the effect is
                                                                          unknown
└── Unknown          none of the above
"""

from __future__ import annotations

from chalicelib.model.errors import OutscalerError

NOT_GIVEN = "NotGiven"
"""The code of an Unauthorized without any credential, which no vendor has refused: a
command was not given it."""


class ProviderError(OutscalerError):
    """message is safe to show: it never contains a secret. code and request_id are
    as the vendor sent them."""

    def __init__(
        self, message: str, *, code: str = "", request_id: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.request_id, self.retry_after = (
            message,
            code,
            request_id,
            retry_after,
        )

    @property
    def error_class(self) -> str:
        """The class's name, as stored in memory and the journal."""
        return type(self).__name__

    @property
    def described(self) -> str:
        """Class and message, for a sentence about something that could not be done."""
        return f"{self.error_class}: {self.message}"


class Throttled(ProviderError):
    """Too many calls; retry_after is the vendor's wait, if it named one."""


class OutOfStock(ProviderError):
    """The vendor has none of these machines now."""


class QuotaExceeded(ProviderError):
    """The account may not have more."""


class InstallFailed(ProviderError):
    """A machine was created and did not become a node. The vendor has stock, so a growing wait
    would not help (docs/reference/node-groups.md "Backoff")."""


class Unauthorized(ProviderError):
    """The credentials are refused; a retry with the same ones does not help."""


class NotFound(ProviderError):
    """The resource does not exist, or no longer exists."""


class Conflict(ProviderError):
    """The resource changed between read and write, or another change is still running."""


class InvalidRequest(ProviderError):
    """The vendor rejects the request."""


class Transient(ProviderError):
    """No usable response. A requested change may or may not have taken effect."""


class Unknown(ProviderError):
    """A response that no table maps."""


_LONGEST_SHAPE_ERROR = 300  # characters: a problem may name fields of the answer


def shape_error(call: str, problem: object, code: str = "") -> Unknown:
    """Return the error for an answer that is JSON and has another structure than the vendor
    documents. call: the request's name; problem: what is unexpected."""
    text = f"{call}: the answer has another shape than expected: {problem}"
    return Unknown(text[:_LONGEST_SHAPE_ERROR], code=code)


# Exact statuses first, then the hundreds; any other status is Unknown.
_BY_STATUS: dict[int, type[ProviderError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    # an account in arrears is refused like one without a key: the operator must act
    402: Unauthorized,
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
    """Return the error class of a status; None or 0 means that there was no
    response, which is Transient."""
    if not status:
        return Transient
    return _BY_STATUS.get(status) or _BY_HUNDRED.get(status // 100, Unknown)
