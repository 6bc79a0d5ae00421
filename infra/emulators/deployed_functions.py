"""Which functions there are, what starts each, and how their queues behave: read from what is deployed, stated nowhere.

The functions and their triggers come from app.py's registration, the queues' visibility timeouts and dead-letter limits
from what the deployments are made from (infra/aws/resources.py). So an emulation cannot differ from a deployment
without a change of one of the two.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from infra.aws.resources import QUEUES
from infra.emulators.async_invocations import RETRIES, WAIT
from infra.emulators.aws import Queue

CONFIG = Path(__file__).resolve().parents[2] / ".chalice" / "config.json"

Handler = Callable[[dict[str, Any], Any], Any]


class DeployedFunction(msgspec.Struct, frozen=True):
    """One function. handler: `module.attribute` as Lambda enters it. queue: what feeds it, empty for a schedule and for
    a function that others invoke. memory: MB. invoked: whether others invoke it."""

    name: str
    handler: str
    queue: str = ""
    schedule: str = ""
    batch_size: int = 1
    memory: int = 0
    invoked: bool = False

    @property
    def source(self) -> str:
        """The queue that its events wait in: its own, or Lambda's for asynchronous invocations, which has its name."""
        return self.queue or (self.name if self.invoked else "")


def functions() -> tuple[DeployedFunction, ...]:
    """The functions that a schedule, a queue or another function starts, as app.py registers them."""
    from app import app

    memory = _memory()
    made = []
    for source in app.event_sources:
        arn = getattr(source, "queue_arn", None)
        queue = arn.rpartition(":")[2] if arn else ""
        made.append(
            DeployedFunction(
                source.name,
                source.handler_string,
                queue,
                getattr(source, "schedule_expression", ""),
                getattr(source, "batch_size", 1),
                memory[source.name],
            )
        )
    made += [
        DeployedFunction(each.name, each.handler_string, memory=memory[each.name], invoked=True)
        for each in app.pure_lambda_functions
    ]
    return tuple(made)


def _memory() -> dict[str, int]:
    """MB by function, of a stage: the emulation's functions have no name of a stage, and all stages have the same."""
    stages = json.loads(CONFIG.read_text("utf-8"))["stages"].values()
    return {name: given["lambda_memory_size"] for stage in stages for name, given in stage["lambda_functions"].items()}


def entry(function: DeployedFunction) -> Handler:
    """What Lambda would call."""
    module, _, attribute = function.handler.rpartition(".")
    handler: Handler = getattr(importlib.import_module(module), attribute)
    return handler


def queues() -> dict[str, Queue]:
    """How each function's queue behaves, by the queue's name."""
    return {name: Queue(settings.visibility, settings.max_receives) for name, settings in QUEUES.items()}


def invocations() -> dict[str, Queue]:
    """How Lambda repeats asynchronous invocations, by function."""
    return {function.name: Queue(WAIT, 1 + RETRIES) for function in functions() if function.invoked}
