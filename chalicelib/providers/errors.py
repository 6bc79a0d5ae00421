"""What can go wrong at a vendor, as one small tree. Back-off follows the class, never a string (architecture §6).

ProviderError
├── Throttled        too many calls; come back after retry_after          temporary
├── OutOfStock       the vendor has no such machine just now              temporary, next group in the same pass
├── QuotaExceeded    our account's limit                                  temporary, next group, tell a person
├── InstallFailed    a machine was made and could not be made a node      temporary, always the same short wait
├── Unauthorized     credentials refused or expired (401, 403)            stop this provider, tell a person
├── NotFound         what we act on is gone                               permanent
├── Conflict         someone else changed it meanwhile (409)              read again, decide again
├── InvalidRequest   our request makes no sense to the vendor             permanent, a bug or a policy mistake
├── Transient        network, 5xx, truncated answers                      temporary; whether it happened is unknown
└── Unknown          none of the above
"""

from __future__ import annotations

from typing import ClassVar

from chalicelib.model.errors import OutscalerError


class ProviderError(OutscalerError):
    """message is safe to show: no secret is ever part of it. code and request_id as the vendor gave them."""

    temporary: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str = "", request_id: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.message, self.code, self.request_id, self.retry_after = message, code, request_id, retry_after

    @property
    def error_class(self) -> str:
        """The class's name, which is what memory and the journal keep."""
        return type(self).__name__


class Throttled(ProviderError):
    """Too many calls; retry_after says when to come back, if the vendor did."""

    temporary = True


class OutOfStock(ProviderError):
    """The vendor has none of these machines at the moment."""

    temporary = True


class QuotaExceeded(ProviderError):
    """The account may not have more."""

    temporary = True


class InstallFailed(ProviderError):
    """A machine was made and did not become a node. The vendor has stock, so it does not help to wait longer each time
    (huaweicloud-cce.md A9.2; plan/backoff.py)."""

    temporary = True


class Unauthorized(ProviderError):
    """The credentials are refused; trying again with the same ones does not help."""


class NotFound(ProviderError):
    """The thing acted on does not exist (any more)."""


class Conflict(ProviderError):
    """It changed while we looked, or another change is still running."""

    temporary = True


class InvalidRequest(ProviderError):
    """The vendor does not accept what we ask for."""


class Transient(ProviderError):
    """No usable answer. A change that was asked for may or may not have happened."""

    temporary = True


class Unknown(ProviderError):
    """An answer that nobody has mapped yet."""
