"""Checks of the deployment: table, secrets, functions, webhook, in the order of their results."""

from __future__ import annotations

from chalicelib.doctor.context import Check

DEPLOYMENT_CHECKS: tuple[Check, ...] = ()
