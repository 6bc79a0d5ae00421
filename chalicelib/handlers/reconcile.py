"""cluster message -> one pass over that cluster. The pass itself is chalicelib/handlers/reconciling.py."""

from __future__ import annotations

from typing import Any

from chalice.app import Blueprint, SQSEvent

from chalicelib.handlers.entry import each_record, event_source, preload

blueprint = Blueprint(__name__)

_ROOM = "chalicelib.handlers.reconciling"

preload(__name__, _ROOM)


@blueprint.on_sqs_message(**event_source("reconcile"), batch_size=1, maximum_concurrency=20, name="reconcile")
def reconcile(event: SQSEvent) -> dict[str, Any]:
    """One message, one pass; a failed one comes back after the queue's visibility timeout."""
    from chalicelib.handlers.reconciling import handle

    return each_record(event.to_dict(), handle)
