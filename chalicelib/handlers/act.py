"""Runs one step of an operation per message, with one function and one queue per provider.

The functions are separate because a vendor that hangs or throttles must not block the others, and because each function
can then be granted only its own vendor's secrets. The step itself is in operations/runner.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, cast

from chalice.app import Blueprint, SQSEvent

from chalicelib.handlers.lambda_entry import each_record, event_source, preload
from chalicelib.runtime.runtime import Runtime

blueprint = Blueprint(__name__)

_PROVIDER = os.environ.get("_HANDLER", "").rpartition(".act_")[2]  # the function that Lambda enters

preload(
    __name__,
    "chalicelib.operations.runner",
    "chalicelib.kube.connect",
    "chalicelib.providers.registry",
    f"chalicelib.providers.{_PROVIDER}.provider",
)

Step = Callable[[SQSEvent], dict[str, Any]]


class _Context(Protocol):
    """What Lambda passes beside the event."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds after which Lambda ends this invocation."""


def _on_queue(name: str) -> Callable[[Step], Callable[[Any, Any], dict[str, Any]]]:
    """Process messages one by one, because each step changes a cloud."""
    decorate: Callable[[Step], Callable[[Any, Any], dict[str, Any]]] = blueprint.on_sqs_message(
        **event_source(name), batch_size=1, maximum_concurrency=5, name=name
    )
    return decorate


def _step(event: SQSEvent) -> dict[str, Any]:
    from chalicelib.operations.runner import handle

    context = cast(_Context, event.context)

    def work(body: str, runtime: Runtime) -> None:
        handle(body, runtime, context.get_remaining_time_in_millis() / 1000.0)

    return each_record(event.to_dict(), work)


@_on_queue("act_alicloud")
def act_alicloud(event: SQSEvent) -> dict[str, Any]:
    """Alibaba Cloud ESS."""
    return _step(event)


@_on_queue("act_clusterapi")
def act_clusterapi(event: SQSEvent) -> dict[str, Any]:
    """Cluster API."""
    return _step(event)


@_on_queue("act_cherryservers")
def act_cherryservers(event: SQSEvent) -> dict[str, Any]:
    """Cherry Servers."""
    return _step(event)


@_on_queue("act_exoscale")
def act_exoscale(event: SQSEvent) -> dict[str, Any]:
    """Exoscale."""
    return _step(event)


@_on_queue("act_huaweicloud")
def act_huaweicloud(event: SQSEvent) -> dict[str, Any]:
    """Huawei Cloud CCE."""
    return _step(event)
