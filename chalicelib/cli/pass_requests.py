"""Messages that commands send to the functions of a deployment: a pass now, or an
operation's next step now.

A command may have no right to send them, or not know the queues. Nothing is lost then: the schedule
and the sweeper follow within a minute or two.
"""

from __future__ import annotations

import os
import time

from chalicelib.model.errors import BadInput
from chalicelib.model.resource_names import stage_prefix
from chalicelib.runtime.messages import (
    RECONCILE,
    ActMessage,
    Cause,
    ReconcileMessage,
    act_queue,
    encode,
)


def request_pass(table: str, cluster: str) -> bool:
    """Request a pass of a cluster. table: the deployment's. Returns False where its queues are
    not known. Raises NotSent."""
    return _sent(
        table,
        RECONCILE,
        ReconcileMessage(cluster=cluster, reason=Cause.PERSON.value, at=time.time()),
    )


def request_step(table: str, cluster: str, operation: str, provider: str) -> bool:
    """Request the next step of an operation. Returns and raises as request_pass does."""
    return _sent(table, act_queue(provider), ActMessage(cluster, operation))


def _sent(table: str, queue: str, message: ReconcileMessage | ActMessage) -> bool:
    from chalicelib.runtime.senders import SqsSender

    prefix = stage_prefix(table)
    try:
        sender = SqsSender({}, prefix=prefix) if prefix else SqsSender.from_environment(os.environ)
    except BadInput:
        return False
    sender.send(queue, encode(message), 0)
    return True
