"""schedule -> one message per cluster that is due. The work itself is chalicelib/handlers/ticking.py."""

from __future__ import annotations

from typing import Any

from chalice.app import Blueprint, CloudWatchEvent

from chalicelib.handlers.entry import preload
from chalicelib.handlers.runtime import runtime

blueprint = Blueprint(__name__)

preload(__name__, "chalicelib.handlers.ticking", "chalicelib.policy.load")


@blueprint.schedule("rate(1 minute)", name="tick")
def tick(event: CloudWatchEvent) -> dict[str, Any]:  # noqa: ARG001 - what EventBridge sends says nothing we need
    """Once a minute: the finest that EventBridge does. Returns what was sent, for whoever invokes it by hand."""
    from chalicelib.handlers.ticking import run

    return run(runtime()).facts()
