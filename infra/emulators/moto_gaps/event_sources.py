"""Lambda's triggers: event source mappings, and the configuration of asynchronous invocations.

moto runs a mapped function itself as soon as a message is sent: it receives the message, fails
because Docker is missing, and so uses up the message's receives. Here a mapping is only a record,
and the emulations read the queues. moto also allows two mappings of one queue to one function,
finds mappings only by the exact text that created them, and never replaces the first configuration
of asynchronous invocations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.awslambda.exceptions import LambdaClientError
from moto.awslambda.models import LambdaBackend, LambdaFunction
from moto.sqs import models
from moto.sqs.models import Queue

from infra.emulators.moto_gaps.stacks import original, replace


class MappingExists(LambdaClientError):
    """AWS's response for an existing mapping: 409."""

    code = 409

    def __init__(self, uuid: str) -> None:
        super().__init__(
            "ResourceConflictException",
            "An event source mapping with event source and function already exists. Please update "
            "or "
            f"delete the existing mapping with UUID {uuid}",
        )


def install() -> None:
    _mappings()
    _find_mappings()
    _invoke_config()
    _dead_letters()


def _mappings() -> None:
    create, add = LambdaBackend.create_event_source_mapping, Queue.add_message

    def create_event_source_mapping(self: Any, spec: Any) -> Any:
        function = self.get_function(spec.get("FunctionName", "")).function_arn
        for known in self._event_source_mappings.values():
            if (known.event_source_arn, known.function_arn) == (
                spec.get("EventSourceArn"),
                function,
            ):
                raise MappingExists(known.uuid)
        return create(self, spec)

    def add_message(self: Any, message: Any) -> None:
        mapped, self.lambda_event_source_mappings = self.lambda_event_source_mappings, {}
        try:
            add(self, message)
        finally:
            self.lambda_event_source_mappings = mapped

    replace(LambdaBackend, create_event_source_mapping=create_event_source_mapping)
    replace(Queue, add_message=add_message)


def _find_mappings() -> None:
    find = LambdaBackend.list_event_source_mappings

    def list_event_source_mappings(self: Any, event_source_arn: str, function_name: str) -> Any:
        found = find(self, event_source_arn, "")
        name = (function_name or "").rpartition("function:")[2]
        return [
            one for one in found if not name or one.function_arn.rpartition("function:")[2] == name
        ]

    replace(LambdaBackend, list_event_source_mappings=list_event_source_mappings)


def _invoke_config() -> None:
    put = LambdaBackend.put_function_event_invoke_config

    def put_function_event_invoke_config(self: Any, function_name: str, config: Any) -> Any:
        self.get_function(function_name).event_invoke_config.clear()
        return put(self, function_name, config)

    replace(LambdaBackend, put_function_event_invoke_config=put_function_event_invoke_config)


def _dead_letters() -> None:
    """Store the dead-letter queue of a function, which moto drops."""
    update, tell = (
        original(LambdaFunction, "update_configuration"),
        original(LambdaFunction, "get_configuration"),
    )

    def update_configuration(self: Any, config_updates: Any) -> Any:
        if "DeadLetterConfig" in config_updates:
            self.dead_letter_config = config_updates["DeadLetterConfig"]
        return update(self, config_updates) | _left(self)

    def get_configuration(self: Any, *arguments: Any, **named: Any) -> Any:
        return tell(self, *arguments, **named) | _left(self)

    replace(
        LambdaFunction,
        update_configuration=update_configuration,
        get_configuration=get_configuration,
    )


def _left(function: Any) -> dict[str, Any]:
    given = getattr(function, "dead_letter_config", None)
    return {"DeadLetterConfig": given} if given else {}


@contextmanager
def queues_on(clock: Callable[[], float]) -> Iterator[None]:
    """Use a clock for the queues. clock: epoch seconds."""
    real = original(models, "unix_time_millis")
    replace(models, unix_time_millis=lambda *given: real(*given) if given else clock() * 1000)
    try:
        yield
    finally:
        replace(models, unix_time_millis=real)
