"""Error responses of an emulated vendor, before they have the vendor's form of a body."""

from __future__ import annotations

import msgspec


class VendorRefusedError(Exception):
    """An error response. code: the vendor's name of the error, "" if it has none. retry_after: the value of the
    vendor's header for it, None for no such header."""

    def __init__(self, status: int, message: str, *, code: str = "", retry_after: int | None = None) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status, self.message, self.code, self.retry_after = status, message, code, retry_after


class VendorRefusal(msgspec.Struct, frozen=True):
    """The data of an error response, as in VendorRefusedError."""

    status: int
    message: str = ""
    code: str = ""

    def error(self, *, message: str = "", retry_after: int | None = None) -> VendorRefusedError:
        """Return the error to raise. message: used if this one has none."""
        return VendorRefusedError(self.status, self.message or message, code=self.code, retry_after=retry_after)
