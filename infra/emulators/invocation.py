"""Invocations in this process: the runtime is put in place, the function is entered, and what came of it is kept.

What Lambda would do with an exception (log it and say that the function failed) is done here too; a failed function is
an ordinary thing in a story about failures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import Runtime, install
from infra.emulators import deployed_functions
from infra.emulators.api_gateway import find, forbidden, proxy_event
from infra.emulators.crash_injection import FunctionKilled
from infra.emulators.lambda_events import Json, LambdaContext, failed_messages


class Invocation(msgspec.Struct, frozen=True):
    """One invocation. at: virtual epoch seconds. answer: what the function returned. error: what it raised, in one
    line. killed_at: the checkpoint at which it died. bodies: of the SQS records it was given."""

    function: str
    at: float
    bodies: tuple[str, ...] = ()
    answer: Any = None
    error: str = ""
    killed_at: str = ""

    @property
    def finished(self) -> bool:
        """It returned."""
        return not (self.error or self.killed_at)

    @property
    def failed_messages(self) -> tuple[str, ...]:
        """messageIds that it gave back."""
        return failed_messages(self.answer)


class Invoker:
    """current: the function that is running, empty between invocations."""

    def __init__(self) -> None:
        self.made: list[Invocation] = []
        self.current = ""
        self._handlers = {
            function.name: deployed_functions.entry(function) for function in deployed_functions.functions()
        }
        self._requests = 0

    def enter(self, runtime: Runtime) -> None:
        """What the functions find when they ask for their runtime."""
        install(runtime)

    def leave(self) -> None:
        """Nothing is in place any more."""
        install(None)

    def call(self, function: str, event: Json, clock: Callable[[], float]) -> Invocation:
        """Enter the function; never raises what it raises."""
        bodies = tuple(record["body"] for record in event.get("Records", ()))
        made = Invocation(function, clock(), bodies)
        self.current = function
        try:
            context = LambdaContext(function, f"request-{len(self.made) + 1}")
            made = msgspec.structs.replace(made, answer=self._handlers[function](event, context))
        except FunctionKilled as death:
            made = msgspec.structs.replace(made, killed_at=str(death))
        except Exception as error:
            logger.exception("function failed", function=function)
            made = msgspec.structs.replace(made, error=f"{type(error).__name__}: {error}")
        finally:
            self.current = ""
        self.made.append(made)
        return made

    def request(self, method: str, target: str, headers: dict[str, str], body: bytes, api_key: str = "") -> Json:
        """A request through API Gateway to the app; its answer (`statusCode`, `headers`, `body`)."""
        from app import app

        self._requests += 1
        route = find(app, method, target)
        if route is None or not route.allows(headers, api_key):
            return forbidden()
        event = proxy_event(route, method, target, headers, body, f"http-{self._requests}")
        answer: Json = app(event, LambdaContext("api_handler", f"http-{self._requests}"))
        return answer
