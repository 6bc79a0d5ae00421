"""Which functions there are, what starts each, and how their queues behave: read from what is deployed, stated nowhere.

The functions and their triggers come from app.py's registration, the queues' visibility timeouts and dead-letter limits
from the merge template. So an emulation cannot differ from a deployment without somebody having changed one of the two.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from infra.local.aws import Queue

TEMPLATE = Path(__file__).resolve().parents[1] / "aws" / "template.json"

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


def queues(template: Path = TEMPLATE) -> dict[str, Queue]:
    """How each function's queue behaves, by the queue's name: `act_clusterapi` is the template's ActClusterapiQueue."""
    resources = json.loads(template.read_text("utf-8"))["Resources"]
    return {function.queue: _queue(resources, function.queue) for function in functions() if function.queue}


def _queue(resources: Mapping[str, Any], name: str) -> Queue:
    logical = "".join(part.capitalize() for part in name.split("_")) + "Queue"
    properties = resources[logical]["Properties"]
    return Queue(properties["VisibilityTimeout"], properties["RedrivePolicy"]["maxReceiveCount"])
