"""Lambda's asynchronous invocations: an event is stored, delivered to its function, and retried if the function fails.

Lambda keeps such events in an internal queue, so the emulation treats them as messages of a queue with the function's
name. Lambda stores an event that failed permanently in the function's dead-letter queue, which is that queue's
dead-letter queue here. The functions only see a client that replaces Lambda's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from chalicelib.dispatch.senders import NotSent
from infra.emulators.iam import IamRequest, arn

RETRIES, WAIT = 2, 60
"""MaximumRetryAttempts of the event invoke config (infra/aws), and Lambda's pause before the first repetition."""

Keep = Callable[[str, bytes], None]
"""(function, payload): stores an event. Raises NotSent."""


class AsyncLambda:
    """A client of Lambda with what dispatch/senders.py uses. functions: names that exist."""

    def __init__(self, functions: frozenset[str], keep: Keep) -> None:
        self._functions, self._keep = functions, keep

    def invoke(self, *, FunctionName: str, InvocationType: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - API's
        """Respond as AWS does. Raises ClientError if the function does not exist or if Lambda throttles."""
        assert InvocationType == "Event"
        if FunctionName not in self._functions:
            raise _error("ResourceNotFoundException", f"Function not found: {FunctionName}")
        try:
            self._keep(FunctionName, Payload)
        except NotSent:
            raise _error("TooManyRequestsException", "Rate Exceeded.") from None
        return {"StatusCode": 202}


def of_lambda(method: str, arguments: Mapping[str, Any]) -> Iterator[IamRequest]:
    """Yield the permissions that an invocation needs."""
    assert method == "invoke"
    yield IamRequest("lambda:InvokeFunction", arn("lambda", f"function:{arguments['FunctionName']}"))


def _error(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Invoke")
