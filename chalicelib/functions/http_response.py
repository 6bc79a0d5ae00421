"""The response of a route: a status and one JSON object. An error tells the caller
one line and nothing more.

An unexpected failure becomes a 500 with the request's id; the details are only
in the log, under that id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import NewerSchema

_LONGEST_ROUTE = 300


class HttpResponse(msgspec.Struct, frozen=True):
    """status: the HTTP status. body: sent as JSON."""

    status: int
    body: dict[str, Any]


class HttpError(OutscalerError):
    """A request that gets an error status; line is the text for the caller."""

    published_name = "Refused"

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status, self.line = status, line


def refuse_newer_schema(runtime: Runtime) -> None:
    """Raise HttpError (503) that names the release that wrote the table, for routes whose
    callers may read everything."""
    try:
        runtime.store.schema.check()
    except NewerSchema as newer:
        raise HttpError(503, str(newer)) from newer


def error(status: int, line: str) -> HttpResponse:
    """Return `{"error": "one line"}` with a status."""
    return HttpResponse(status, {"error": " ".join(line.split())})


def respond(work: Callable[[], HttpResponse], request_id: str, asked: str = "") -> HttpResponse:
    """Run a route's work and convert any result or exception into a response; raises nothing.
    asked: method and path for the log, because the path names the cluster."""
    try:
        return work()
    except HttpError as refused:
        return error(refused.status, refused.line)
    except BadInput as bad:
        return error(400, str(bad))
    except OutscalerError as failed:
        logger.error(
            "request failed", request_id=request_id, route=asked[:_LONGEST_ROUTE], **failure(failed)
        )
        return error(503, f"temporarily unavailable, try again; request {request_id}")
    except Exception:
        logger.exception(
            "request failed unexpectedly", request_id=request_id, route=asked[:_LONGEST_ROUTE]
        )
        return error(500, f"internal error; request {request_id}")
