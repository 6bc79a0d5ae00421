"""Lambda's asynchronous invocations: an event is kept, given to its function, and repeated where the function fails.

Lambda keeps such events in a queue of its own, so the emulation plays them as messages of a queue that has the
function's name. What Lambda does in the end (it leaves the event in the function's dead-letter queue) is the queue's
dead letters here. A client that stands in for Lambda's is all that the functions see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from chalicelib.dispatch.errors import NotSent
from infra.emulators.iam import IamRequest, arn

RETRIES, WAIT = 2, 60
"""MaximumRetryAttempts of the event invoke config (infra/aws), and Lambda's pause before the first repetition."""

Keep = Callable[[str, bytes], None]
"""(function, payload): keeps an event. Raises NotSent."""


class AsyncLambda:
    """A client of Lambda, as far as dispatch/invoke.py uses it. functions: names that there are."""

    def __init__(self, functions: frozenset[str], keep: Keep) -> None:
        self._functions, self._keep = functions, keep

    def invoke(self, *, FunctionName: str, InvocationType: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - API's
        """As AWS answers. ClientError where there is no such function, or where Lambda takes no more."""
        assert InvocationType == "Event"
        if FunctionName not in self._functions:
            raise _error("ResourceNotFoundException", f"Function not found: {FunctionName}")
        try:
            self._keep(FunctionName, Payload)
        except NotSent:
            raise _error("TooManyRequestsException", "Rate Exceeded.") from None
        return {"StatusCode": 202}


def of_lambda(method: str, arguments: Mapping[str, Any]) -> Iterator[IamRequest]:
    """What an invocation needs."""
    assert method == "invoke"
    yield IamRequest("lambda:InvokeFunction", arn("lambda", f"function:{arguments['FunctionName']}"))


def _error(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Invoke")
