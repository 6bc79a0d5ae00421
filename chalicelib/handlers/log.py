"""The one logger. Lines are JSON with `cluster` and what else names the thing; no value of a secret, header or body.

Say what it is about as keywords (`logger.info("reconciled", cluster=name)`): keys appended to the logger would stay for
the next invocation of a warm process, and blame the wrong cluster.
"""

from __future__ import annotations

from aws_lambda_powertools import Logger

logger = Logger(service="outscaler")
