"""Sends messages through a one-method interface, so that tests can replace SQS by any object with `send`.

A lost send is harmless: state is saved before the send, and the sweeper in `tick` sends the message again. A send is
therefore tried only briefly, and its failure is an error value, never a wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from chalicelib.aws import session
from chalicelib.dispatch.errors import NotSent
from chalicelib.model.errors import BadInput
from chalicelib.model.resource_names import prefix_of, queue_name

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

#: SQS accepts no longer delay; a message due later arrives early and is sent on.
MAX_DELAY = 900

_PREFIX = "OUTSCALER_QUEUE_"


class Sender(Protocol):
    """Sends a body to a queue by its name (`reconcile`, `act_<provider>`), visible after `delay` whole seconds."""

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """Return when the queue has accepted the message; raises NotSent."""


def whole_delay(seconds: float) -> int:
    """Round a delay to one that SQS supports: whole seconds, never earlier than requested, 0 to 900."""
    return max(0, min(MAX_DELAY, math.ceil(round(seconds, 3))))


class SqsSender:
    """Sends to the queues of one deployment. queue_urls: queue name -> URL.

    prefix: of a deployment whose queue names are derived from it; each URL is looked up in AWS once per process.
    trace: returns the trace header of the message that is sent, "" for none; SQS passes it on beside the body.
    """

    def __init__(
        self,
        queue_urls: Mapping[str, str],
        client: SQSClient | None = None,
        prefix: str = "",
        trace: Callable[[], str] = str,
    ) -> None:
        self._urls, self._prefix, self._trace = dict(queue_urls), prefix, trace
        self._client = client or _client()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], trace: Callable[[], str] = str) -> SqsSender:
        """Create a sender from OUTSCALER_QUEUE_<NAME>, otherwise from OUTSCALER_PREFIX; raises BadInput if neither is
        set."""
        found = {key.removeprefix(_PREFIX): url for key, url in environment.items() if key.startswith(_PREFIX)}
        prefix = prefix_of(environment)
        if not any(found.values()) and not prefix:
            raise BadInput("environment", f"{_PREFIX}RECONCILE is not set", "set it to the URL of the reconcile queue")
        urls = {key.lower(): url for key, url in found.items() if url}
        return cls(urls, prefix=prefix, trace=trace)

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """See Sender; raises NotSent also for a queue that this deployment does not have."""
        from botocore.exceptions import BotoCoreError, ClientError

        if queue not in self._urls and not self._prefix:
            raise NotSent(queue, f"{_PREFIX}{queue.upper()} is not set")
        try:
            url, delayed, header = self._url(queue), whole_delay(delay), self._trace()
            self._client.send_message(
                QueueUrl=url, MessageBody=body.decode(), DelaySeconds=delayed, **(_traced(header) if header else {})
            )
        except ClientError as error:
            raise NotSent(queue, str(error.response.get("Error", {}).get("Code", "ClientError"))) from error
        except BotoCoreError as error:
            raise NotSent(queue, type(error).__name__) from error

    def _url(self, queue: str) -> str:
        if queue not in self._urls:
            self._urls[queue] = self._client.get_queue_url(QueueName=queue_name(self._prefix, queue))["QueueUrl"]
        return self._urls[queue]


def _traced(header: str) -> Any:
    return {"MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": header}}}


def _client() -> SQSClient:
    made: SQSClient = session.client(
        "sqs", connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3}
    )
    return made
