"""Sends the messages of operations again whose executor crashed or whose message was lost.

A message carries only a name and the operation is saved before it is sent, so sending it twice changes nothing. Without
this, an operation of a function that died would stay open for ever.
"""

from __future__ import annotations

from chalicelib.dispatch.messages import ActMessage, act_queue, encode
from chalicelib.model.operation import Operation
from chalicelib.operations.stuck import resend_reason
from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import StoreError


def resend_operations(cluster: str, opened: tuple[Operation, ...] | StoreError, runtime: Runtime) -> tuple[str, ...]:
    """Send operations again that were saved but never sent, or have been silent since; return their ids. opened: the
    cluster's open operations, or the error that is raised because they cannot be read."""
    if isinstance(opened, StoreError):
        raise opened
    now = runtime.clock()
    swept = []
    for operation in opened:
        why = resend_reason(operation, now)
        if why:
            runtime.sender.send(act_queue(operation.spec.provider), encode(ActMessage(cluster, operation.spec.id)), 0)
            runtime.store.operations.mark_sent(cluster, operation.spec.id, now)
            logger.warning("operation re-sent", cluster=cluster, operation=operation.spec.id, why=why)
            swept.append(operation.spec.id)
    return tuple(swept)
