"""schedule -> one message per cluster that is due. The work itself is chalicelib/reconciler/scan_scheduler.py."""

from __future__ import annotations

from typing import Any

from chalice.app import Blueprint, CloudWatchEvent

from chalicelib.handlers.lambda_entry import preload
from chalicelib.runtime.runtime import runtime

blueprint = Blueprint(__name__)

preload(__name__, "chalicelib.reconciler.scan_scheduler", "chalicelib.policy.compiled")


@blueprint.schedule("rate(1 minute)", name="tick")
def tick(event: CloudWatchEvent) -> dict[str, Any]:  # noqa: ARG001 - what EventBridge sends says nothing we need
    """Once a minute: the finest that EventBridge does. Returns what was sent, for whoever invokes it by hand."""
    from chalicelib.reconciler.scan_scheduler import run

    return run(runtime()).facts()
