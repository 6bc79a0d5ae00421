"""Counts what an invocation uses (items read and written, messages sent), and delays messages in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_WRITES = {"PutItem": 1, "UpdateItem": 1, "DeleteItem": 1}


class Counts:
    """Counts of one process; cleared for each invocation."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def clear(self) -> None:
        """Reset all counts."""
        self._counts = {}

    def add(self, what: str, number: int = 1) -> None:
        """Increment a count."""
        self._counts[what] = self._counts.get(what, 0) + number

    def taken(self) -> dict[str, int]:
        """Return `requests` to AWS, items in `writes` (attempted), messages in `sent:<queue>`."""
        return dict(self._counts)

    def listen_to(self, client: Any) -> None:
        """Count the calls of this DynamoDB client."""
        client.meta.events.register("before-parameter-build.dynamodb", self._dynamodb)

    def _dynamodb(self, model: Any, params: dict[str, Any], **_: object) -> None:
        self.add("requests")
        items = [action for action in params.get("TransactItems", ()) if "ConditionCheck" not in action]
        self.add("writes", _WRITES.get(model.name, 0) + len(items))


class VirtualDelays:
    """An SQS client for SqsSender: it sends at once and records in an attribute when the message is due.

    SQS counts wall-clock seconds, and a message that is due in 20 virtual seconds may be due in one of them. The event
    source (infra/emulators/events.py) delays early messages.
    """

    DUE = "due"

    def __init__(self, client: Any, clock: Callable[[], float], counts: Counts) -> None:
        self._client, self._clock, self._counts = client, clock, counts

    def send_message(self, *, QueueUrl: str, MessageBody: str, DelaySeconds: int) -> Any:  # noqa: N803 - API's words
        """Send like SQS, with the delay in virtual seconds."""
        self._counts.add("requests")
        self._counts.add(f"sent:{QueueUrl.rpartition('/')[2]}")
        due = {"DataType": "Number", "StringValue": repr(self._clock() + DelaySeconds)}
        return self._client.send_message(QueueUrl=QueueUrl, MessageBody=MessageBody, MessageAttributes={self.DUE: due})
