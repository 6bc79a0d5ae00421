"""Sends messages to queues, and hands passes over to the large `reconcile` function.

A lost send is harmless: state is saved before the send, and the sweeper in `tick` sends the message
again. A send is therefore tried only briefly, and its failure is an error value, never a wait.

The large function has no queue of its own, which would be polled all month, even while no cluster
is large. It is invoked asynchronously, which costs nothing until it is used. Lambda stores the
event, retries it where the function fails, and finally writes a record to the dead-letter queue of
the reconcile queue (infra/aws).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from chalicelib.aws import session
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.resource_names import prefix_of, queue_name
from chalicelib.runtime.messages import ReconcileMessage, encode

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

#: SQS accepts no longer delay; a message due later arrives early and is sent on.
MAX_DELAY = 900
RECONCILE_LARGE = "reconcile_large"
"""Function name in app.py and .chalice/config.json."""
VARIABLE = "OUTSCALER_RECONCILE_LARGE"
_PREFIX = "OUTSCALER_QUEUE_"
_ACCEPTED = 202
_CALLS: dict[str, Any] = {
    "connect_timeout": 2,
    "read_timeout": 5,
    "retries": {"mode": "standard", "total_max_attempts": 3},
}


class NotSent(OutscalerError):
    """The queue did not accept a message; nothing was changed, and a later retry is safe. code:
    SQS's error code, or the network error's class."""

    def __init__(self, queue: str, code: str) -> None:
        super().__init__(f"queue {queue}: message not taken ({code})")
        self.queue, self.code = queue, code


class NotInvoked(OutscalerError):
    """As far as is known, Lambda did not accept the invocation; the caller
    does the work itself. code:
    Lambda's error code, or the network error's class."""

    def __init__(self, function: str, code: str) -> None:
        super().__init__(f"function {function}: not invoked ({code})")
        self.function, self.code = function, code


class Sender(Protocol):
    """Sends a body to a queue by its name (`reconcile`, `act_<provider>`), visible
    after `delay` whole seconds."""

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """Return when the queue has accepted the message; raises NotSent."""


def whole_delay(seconds: float) -> int:
    """Round a delay to one that SQS supports: whole seconds, never earlier
    than requested, 0 to 900."""
    return max(0, min(MAX_DELAY, math.ceil(round(seconds, 3))))


class SqsSender:
    """Sends to the queues of one deployment. queue_urls: queue name -> URL.

    prefix: of a deployment whose queue names are derived from it; each URL is looked up in AWS once
    per process. trace: returns the trace header of the message that is sent, "" for none; SQS
    passes it on beside the body.
    """

    def __init__(
        self,
        queue_urls: Mapping[str, str],
        client: SQSClient | None = None,
        prefix: str = "",
        trace: Callable[[], str] = str,
    ) -> None:
        self._urls, self._prefix, self._trace = dict(queue_urls), prefix, trace
        self._client: SQSClient = client or session.client("sqs", **_CALLS)

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], trace: Callable[[], str] = str
    ) -> SqsSender:
        """Create a sender from OUTSCALER_QUEUE_<NAME>, otherwise from OUTSCALER_PREFIX; raises
        BadInput if neither is set."""
        names = (key for key in environment if key.startswith(_PREFIX) and environment[key])
        urls, prefix = (
            {key.removeprefix(_PREFIX).lower(): environment[key] for key in names},
            prefix_of(environment),
        )
        if not urls and not prefix:
            raise BadInput(
                "environment",
                f"{_PREFIX}RECONCILE is not set",
                "set it to the URL of the reconcile queue",
            )
        return cls(urls, prefix=prefix, trace=trace)

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """See Sender; raises NotSent also for a queue that this deployment does not have."""
        from botocore.exceptions import BotoCoreError, ClientError

        if queue not in self._urls and not self._prefix:
            raise NotSent(queue, f"{_PREFIX}{queue.upper()} is not set")
        try:
            if queue not in self._urls:
                name = queue_name(self._prefix, queue)
                self._urls[queue] = self._client.get_queue_url(QueueName=name)["QueueUrl"]
            url, delayed, header = self._urls[queue], whole_delay(delay), self._trace()
            attribute = {"AWSTraceHeader": {"DataType": "String", "StringValue": header}}
            traced: Any = {"MessageSystemAttributes": attribute} if header else {}
            self._client.send_message(
                QueueUrl=url, MessageBody=body.decode(), DelaySeconds=delayed, **traced
            )
        except ClientError as error:
            raise NotSent(queue, _code(error)) from error
        except BotoCoreError as error:
            raise NotSent(queue, type(error).__name__) from error


class LargeFunction:
    """Invokes the large function of this deployment. name: the function's name in Lambda. client:
    created at the first use if not given, because most processes never invoke the function."""

    def __init__(self, name: str, client: Any = None) -> None:
        self._name, self._client = name, client

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> LargeFunction | None:
        """Return the function named by OUTSCALER_RECONCILE_LARGE, otherwise by OUTSCALER_PREFIX;
        None where neither is set."""
        prefix = prefix_of(environment)
        name = environment.get(VARIABLE, "") or (f"{prefix}-{RECONCILE_LARGE}" if prefix else "")
        return cls(name) if name else None

    def __call__(self, message: ReconcileMessage) -> None:
        """Hand over a message of the reconcile queue. Returns when Lambda has
        accepted it; raises NotInvoked."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if self._client is None:
                self._client = session.client("lambda", **_CALLS)
            answer = self._client.invoke(
                FunctionName=self._name, InvocationType="Event", Payload=encode(message)
            )
        except ClientError as error:
            raise NotInvoked(RECONCILE_LARGE, _code(error)) from error
        except BotoCoreError as error:
            raise NotInvoked(RECONCILE_LARGE, type(error).__name__) from error
        if answer.get("StatusCode") != _ACCEPTED:
            raise NotInvoked(RECONCILE_LARGE, f"status {answer.get('StatusCode')}")


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", "ClientError"))
