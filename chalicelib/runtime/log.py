"""The only logger. Lines are JSON with `cluster` and further identifying fields; they contain no
value of a secret, header or body.

Pass the fields as keywords (`logger.info("reconciled", cluster=name)`): keys appended to the logger
would remain for the next invocation of a warm process and name the wrong cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aws_lambda_powertools import Logger

from chalicelib.model.errors import published_name

logger = Logger(service="outscaler")


def failure(error: BaseException) -> dict[str, Any]:
    """Return the fields of a failure's line: its class, its text and, for a cluster's response,
    the request and the server."""
    more = {name: text for name in ("asked", "server") if (text := getattr(error, name, ""))}
    return {"error": published_name(error), "detail": str(error), **more}


@contextmanager
def contained(what: str, cluster: str, operation: str = "") -> Iterator[None]:
    """Log any failure inside the context and suppress it."""
    try:
        yield
    except Exception as error:
        logger.exception(what, cluster=cluster, operation=operation, **failure(error))
