"""A topic of notifications in the emulated account, and a queue that subscribes to it, as a person would have one."""

from __future__ import annotations

import json
from typing import Any

from infra.emulators.aws import LocalAws

NAME = "outscaler-events"


class Subscriber:
    """Receives the events of a topic. topic: its ARN."""

    def __init__(self, aws: LocalAws) -> None:
        self._sqs = aws.client("sqs")
        sns = aws.client("sns")
        self.topic: str = sns.create_topic(Name=NAME)["TopicArn"]
        self._queue: str = self._sqs.create_queue(QueueName="notifications-of-the-team")["QueueUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=found["Attributes"]["QueueArn"])

    def received(self) -> list[dict[str, Any]]:
        """Return the events that have arrived since the last call, each id once, the oldest first."""
        events: dict[str, dict[str, Any]] = {}
        while messages := self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                event = json.loads(json.loads(message["Body"])["Message"])
                events[event["id"]] = event
                self._sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])
        return sorted(events.values(), key=lambda event: str(event["time"]))
