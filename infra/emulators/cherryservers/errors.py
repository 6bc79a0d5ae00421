"""Error responses of the emulated Cherry Servers: an HTTP status and a text for people."""

from __future__ import annotations

from infra.emulators.vendor_common.errors import VendorRefusedError


def bad(message: str) -> VendorRefusedError:
    """Return the error for an invalid or impossible request."""
    return VendorRefusedError(400, message)


def missing(what: str) -> VendorRefusedError:
    """Return the error for a missing object."""
    return VendorRefusedError(404, f"{what} not found.")
