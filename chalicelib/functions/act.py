"""Runs one step of an operation per message, with one function and one queue per provider.

The functions are separate because a vendor that hangs or throttles must not block the others,
and because each function can then be granted only its own vendor's secrets. The step itself is
in operations/runner.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

from chalice.app import Blueprint, SQSEvent

from chalicelib.functions.lambda_entry import each_record, event_source, preload

blueprint = Blueprint(__name__)

_PROVIDER = os.environ.get("_HANDLER", "").rpartition(".act_")[2]  # the function that Lambda enters

preload(
    __name__,
    "chalicelib.operations.runner",
    "chalicelib.cluster.connect",
    "chalicelib.providers.registry",
    f"chalicelib.providers.{_PROVIDER}.provider",
)


class _Context(Protocol):
    """What Lambda passes beside the event."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds after which Lambda ends this invocation."""


def _act(provider: str) -> Callable[[Any, Any], dict[str, Any]]:
    """Return the function of one provider. It works on messages one by one, because
    each step changes a cloud."""

    def act(event: SQSEvent) -> dict[str, Any]:
        from chalicelib.operations.runner import handle

        seconds = cast(_Context, event.context).get_remaining_time_in_millis() / 1000.0
        return each_record(event.to_dict(), partial(handle, seconds=seconds))

    act.__name__ = name = f"act_{provider}"  # Chalice makes the function's entry point from it
    register = blueprint.on_sqs_message(
        **event_source(name), batch_size=1, maximum_concurrency=5, name=name
    )
    function: Callable[[Any, Any], dict[str, Any]] = register(act)
    return function


act_alicloud = _act("alicloud")
act_clusterapi = _act("clusterapi")
act_cherryservers = _act("cherryservers")
act_exoscale = _act("exoscale")
act_huaweicloud = _act("huaweicloud")
