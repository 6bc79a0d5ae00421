"""cluster message -> one pass over that cluster. The pass itself is chalicelib/handlers/reconciling.py."""

from __future__ import annotations

from typing import Any

from chalice.app import Blueprint, SQSEvent

from chalicelib.handlers.entry import each_record, preload

blueprint = Blueprint(__name__)

_ROOM = "chalicelib.handlers.reconciling"

preload(__name__, _ROOM)


# The queue is the merge template's (infra/aws/template.json); only a scalar can be replaced there, hence this ARN.
@blueprint.on_sqs_message(
    queue_arn="arn:aws:sqs:us-east-1:000000000000:reconcile", batch_size=1, maximum_concurrency=20, name="reconcile"
)
def reconcile(event: SQSEvent) -> dict[str, Any]:
    """One message, one pass; a failed one comes back after the queue's visibility timeout."""
    from chalicelib.handlers.reconciling import handle

    return each_record(event.to_dict(), handle)
