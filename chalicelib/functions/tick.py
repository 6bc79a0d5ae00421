"""Sends one message per cluster that is due, on a schedule. The work itself is in
passes/scan_scheduler.py.
"""

from __future__ import annotations

from typing import Any

from chalice.app import Blueprint, CloudWatchEvent

from chalicelib.functions.lambda_entry import preload
from chalicelib.runtime.runtime import runtime

blueprint = Blueprint(__name__)

preload(__name__, "chalicelib.passes.scan_scheduler", "chalicelib.policy.compiled")


@blueprint.schedule("rate(1 minute)", name="tick")
def tick(event: CloudWatchEvent) -> dict[str, Any]:  # noqa: ARG001 - what EventBridge sends says nothing we need
    """Run once a minute, which is EventBridge's shortest interval. Returns what was
    sent, for manual invocations."""
    from chalicelib.passes.scan_scheduler import run

    return run(runtime()).facts()
