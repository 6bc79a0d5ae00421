"""Which functions there are, what starts each, and how their queues behave: read from what is deployed, stated nowhere.

The functions and their triggers come from app.py's registration, the queues' visibility timeouts and dead-letter limits
from what the deployments are made from (infra/aws/resources.py). So an emulation cannot differ from a deployment
without a change of one of the two.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from infra.aws.resources import QUEUES
from infra.local.aws import Queue

Handler = Callable[[dict[str, Any], Any], Any]


class Function(msgspec.Struct, frozen=True):
    """One function. handler: `module.attribute` as Lambda enters it. queue: what feeds it, empty for a schedule."""

    name: str
    handler: str
    queue: str = ""
    schedule: str = ""
    batch_size: int = 1


def functions() -> tuple[Function, ...]:
    """The functions that a schedule or a queue starts, in the order in which app.py registers them."""
    from app import app

    made = []
    for source in app.event_sources:
        arn = getattr(source, "queue_arn", None)
        queue = arn.rpartition(":")[2] if arn else ""
        made.append(Function(source.name, source.handler_string, queue, getattr(source, "schedule_expression", ""),
                             getattr(source, "batch_size", 1)))
    return tuple(made)


def entry(function: Function) -> Handler:
    """What Lambda would call."""
    module, _, attribute = function.handler.rpartition(".")
    handler: Handler = getattr(importlib.import_module(module), attribute)
    return handler


def queues() -> dict[str, Queue]:
    """How each function's queue behaves, by the queue's name."""
    return {name: Queue(settings.visibility, settings.max_receives) for name, settings in QUEUES.items()}
