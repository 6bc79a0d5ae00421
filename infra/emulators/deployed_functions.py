"""Functions, their triggers and the settings of their queues, read from what is deployed.

Functions and triggers come from app.py's registration. Visibility timeouts and dead-letter limits
come from what deployments are built from (infra/aws/resources.py). The emulation therefore cannot
differ from a deployment unless one of these is changed.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from chalicelib.runtime.senders import NotSent
from infra.aws.resources import QUEUES
from infra.emulators.aws import Queue
from infra.emulators.iam import IamRequest, arn

RETRIES, WAIT = 2, 60
"""MaximumRetryAttempts of the event invoke config (infra/aws), and Lambda's pause
before the first repetition."""

Keep = Callable[[str, bytes], None]
"""(function, payload): stores an event. Raises NotSent."""


class AsyncLambda:
    """A client of Lambda with what runtime/senders.py uses. functions: names that exist."""

    def __init__(self, functions: frozenset[str], keep: Keep) -> None:
        self._functions, self._keep = functions, keep

    def invoke(self, *, FunctionName: str, InvocationType: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - API's
        """Respond as AWS does. Raises ClientError if the function does not
        exist or if Lambda throttles."""
        assert InvocationType == "Event"
        if FunctionName not in self._functions:
            raise _invoke_error("ResourceNotFoundException", f"Function not found: {FunctionName}")
        try:
            self._keep(FunctionName, Payload)
        except NotSent:
            raise _invoke_error("TooManyRequestsException", "Rate Exceeded.") from None
        return {"StatusCode": 202}


def of_lambda(method: str, arguments: Mapping[str, Any]) -> Iterator[IamRequest]:
    assert method == "invoke"
    yield IamRequest(
        "lambda:InvokeFunction", arn("lambda", f"function:{arguments['FunctionName']}")
    )


def _invoke_error(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Invoke")


CONFIG = Path(__file__).resolve().parents[2] / ".chalice" / "config.json"

Handler = Callable[[dict[str, Any], Any], Any]


class DeployedFunction(msgspec.Struct, frozen=True):
    """One function. handler: `module.attribute` as Lambda calls it. queue: its trigger;
    empty for a schedule and for a function that others invoke. memory: MB. invoked:
    whether others invoke it."""

    name: str
    handler: str
    queue: str = ""
    schedule: str = ""
    batch_size: int = 1
    memory: int = 0
    invoked: bool = False

    @property
    def source(self) -> str:
        """Return the queue in which its events wait: its own, or Lambda's internal queue for
        asynchronous invocations, which has its name."""
        return self.queue or (self.name if self.invoked else "")


def functions() -> tuple[DeployedFunction, ...]:
    """Return the functions that a schedule, a queue or another function starts,
    as app.py registers them."""
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
    """Return MB by function."""
    return _configured("lambda_memory_size")


def timeouts() -> dict[str, int]:
    """Return the seconds after which Lambda ends an invocation, by function."""
    return _configured("lambda_timeout")


def _configured(setting: str) -> dict[str, int]:
    """Return a setting by function, from one stage. Function names of the emulation have no stage,
    and all stages have the same settings."""
    stages = json.loads(CONFIG.read_text("utf-8"))["stages"].values()
    return {
        name: given[setting]
        for stage in stages
        for name, given in stage["lambda_functions"].items()
    }


def entry(function: DeployedFunction) -> Handler:
    module, _, attribute = function.handler.rpartition(".")
    handler: Handler = getattr(importlib.import_module(module), attribute)
    return handler


def queues() -> dict[str, Queue]:
    return {
        name: Queue(settings.visibility, settings.max_receives) for name, settings in QUEUES.items()
    }


def invocations() -> dict[str, Queue]:
    return {function.name: Queue(WAIT, 1 + RETRIES) for function in functions() if function.invoked}
