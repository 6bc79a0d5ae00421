"""Runs one pass per cluster message. The pass itself is in passes/reconciler.py.

Two functions make passes. `reconcile` has little memory and receives every message. It invokes
`reconcile_large` for a cluster that needs more (passes/pass_messages.py), which therefore
needs no queue of its own.

OUTSCALER_PASS_CONCURRENCY in .chalice/config.json decides at packaging time how many passes
are made at the same time.
"""

from __future__ import annotations

import os
from typing import Any

from chalice.app import Blueprint, SQSEvent

from chalicelib.functions.lambda_entry import each_record, event_source, invoked, preload
from chalicelib.runtime.senders import RECONCILE_LARGE

blueprint = Blueprint(__name__)

_CONCURRENCY = int(os.environ.get("OUTSCALER_PASS_CONCURRENCY", "20"))
"""Passes at the same time. Of use to `chalice deploy` only, which reads it where it packages."""

preload(__name__, "chalicelib.passes.reconciler")


@blueprint.on_sqs_message(
    **event_source("reconcile"), batch_size=1, maximum_concurrency=_CONCURRENCY, name="reconcile"
)
def reconcile(event: SQSEvent) -> dict[str, Any]:
    """Run one pass for one message; a failed one returns after the queue's visibility timeout."""
    from chalicelib.passes.reconciler import handle

    return each_record(event.to_dict(), handle)


@blueprint.lambda_function(name=RECONCILE_LARGE)
def reconcile_large(event: dict[str, Any], context: object) -> None:  # noqa: ARG001 - Chalice calls it with both
    """Run one pass for a message of the reconcile queue, which is the event itself. Raises
    for a pass that failed: Lambda retries the event twice and then writes a record to the
    queue's dead-letter queue."""
    from chalicelib.passes.reconciler import handle_large

    invoked(event, handle_large)
