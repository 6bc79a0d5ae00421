"""Invokes functions in this process: installs the runtime, calls the
function and records the result.

It treats an exception as Lambda does: it is logged, and the function counts as failed. Failed
functions are normal in tests of failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context
from typing import Any

import msgspec

from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import Runtime, install
from infra.emulators import deployed_functions
from infra.emulators.api_gateway import find, forbidden, proxy_event
from infra.emulators.aws_faults import FunctionKilled
from infra.emulators.lambda_events import Json, LambdaContext, failed_messages

_API_TIMEOUT = 15.0  # seconds


class Invocation(msgspec.Struct, frozen=True):
    """One invocation. at: virtual epoch seconds. answer: the function's return value. error:
    its exception, in one line. killed_at: the checkpoint at which it crashed. bodies: of the
    SQS records passed to it."""

    function: str
    at: float
    bodies: tuple[str, ...] = ()
    answer: Any = None
    error: str = ""
    killed_at: str = ""

    @property
    def finished(self) -> bool:
        return not (self.error or self.killed_at)

    @property
    def failed_messages(self) -> tuple[str, ...]:
        return failed_messages(self.answer)


class Invoker:
    """current: the running function, "" between invocations."""

    def __init__(self) -> None:
        self.made: list[Invocation] = []
        self.current = ""
        self._handlers = {
            function.name: deployed_functions.entry(function)
            for function in deployed_functions.functions()
        }
        self._timeouts = deployed_functions.timeouts()
        self._requests = 0

    def enter(self, runtime: Runtime) -> None:
        install(runtime)

    def leave(self) -> None:
        install(None)

    def call(self, function: str, event: Json, clock: Callable[[], float]) -> Invocation:
        """Call the function. Exceptions of the function are recorded and not raised."""
        bodies = tuple(record["body"] for record in event.get("Records", ()))
        made = Invocation(function, clock(), bodies)
        self.current = function
        try:
            ends = clock() + self._timeouts[function]
            context = LambdaContext(function, f"request-{len(self.made) + 1}", clock, ends)
            # it knows nothing of its caller
            answer = Context().run(self._handlers[function], event, context)
            made = msgspec.structs.replace(made, answer=answer)
        except FunctionKilled as death:
            made = msgspec.structs.replace(made, killed_at=str(death))
        except Exception as error:
            logger.exception("function failed", function=function)
            made = msgspec.structs.replace(made, error=f"{type(error).__name__}: {error}")
        finally:
            self.current = ""
        self.made.append(made)
        return made

    def request(
        self, method: str, target: str, headers: dict[str, str], body: bytes, api_key: str = ""
    ) -> Json:
        """Pass a request through API Gateway to the app and return the response
        (`statusCode`, `headers`, `body`)."""
        from app import app

        self._requests += 1
        route = find(app, method, target)
        if route is None or not route.allows(headers, api_key):
            return forbidden()
        event = proxy_event(route, method, target, headers, body, f"http-{self._requests}")
        context = LambdaContext(
            "api_handler", f"http-{self._requests}", time.time, time.time() + _API_TIMEOUT
        )
        answer: Json = app(event, context)
        return answer
