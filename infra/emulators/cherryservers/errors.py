"""How the emulated Cherry Servers says no: an HTTP status and a text for people (cherryservers.md §3)."""

from __future__ import annotations


class CherryRefusedError(Exception):
    """An error reply. retry_after: seconds for the header of that name, None for no such header."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message, self.retry_after = status, message, retry_after


def bad(message: str) -> CherryRefusedError:
    """The request makes no sense, or cannot be done."""
    return CherryRefusedError(400, message)


def missing(what: str) -> CherryRefusedError:
    """There is no such thing."""
    return CherryRefusedError(404, f"{what} not found.")
