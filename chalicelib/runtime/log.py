"""The one logger. Lines are JSON with `cluster` and what else names the thing; no value of a secret, header or body.

Say what it is about as keywords (`logger.info("reconciled", cluster=name)`): keys appended to the logger would stay for
the next invocation of a warm process, and blame the wrong cluster.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger

from chalicelib.model.errors import published_name

logger = Logger(service="outscaler")


def failure(error: BaseException) -> dict[str, Any]:
    """The fields of a failure's line: its class, its text and, for a cluster's answer, what was asked of whom."""
    more = {name: text for name in ("asked", "server") if (text := getattr(error, name, ""))}
    return {"error": published_name(error), "detail": str(error), **more}
