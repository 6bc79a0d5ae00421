"""Error responses of the emulated Cherry Servers: an HTTP status and a text for people."""

from __future__ import annotations


class CherryRefusedError(Exception):
    """An error response. retry_after: seconds for the header of that name, None for no such header."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message, self.retry_after = status, message, retry_after


def bad(message: str) -> CherryRefusedError:
    """Return the error for an invalid or impossible request."""
    return CherryRefusedError(400, message)


def missing(what: str) -> CherryRefusedError:
    """Return the error for a missing object."""
    return CherryRefusedError(404, f"{what} not found.")
