"""The only logger. Lines are JSON with `cluster` and further identifying fields; they contain no
value of a secret, header or body.

Pass the fields as keywords (`logger.info("reconciled", cluster=name)`): keys appended to the logger
would remain for the next invocation of a warm process and name the wrong cluster.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger

from chalicelib.model.errors import published_name

logger = Logger(service="outscaler")


def failure(error: BaseException) -> dict[str, Any]:
    """Return the fields of a failure's line: its class, its text and, for a cluster's response,
    the request and the server."""
    more = {name: text for name in ("asked", "server") if (text := getattr(error, name, ""))}
    return {"error": published_name(error), "detail": str(error), **more}
