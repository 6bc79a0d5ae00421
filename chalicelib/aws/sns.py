"""Publishes to SNS topics, for notifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from chalicelib.aws import session
from chalicelib.model.errors import OutscalerError


class NotPublished(OutscalerError):
    """SNS did not accept the message."""


class Publisher(Protocol):
    """Publishes messages to topics."""

    def publish(self, topic: str, text: str, attributes: Mapping[str, str]) -> None:
        """Return when the message was accepted. topic: an ARN. Raises NotPublished."""


class TopicPublisher:
    """Publishes messages. client: instead of one that is made with the first message. A publisher
    makes one client per region."""

    def __init__(self, client: Any = None) -> None:
        self._client, self._by_region = client, dict[str, Any]()

    def publish(self, topic: str, text: str, attributes: Mapping[str, str]) -> None:
        """Return when SNS has accepted the message. topic: an ARN. Raises NotPublished."""
        from botocore.exceptions import BotoCoreError, ClientError

        values = {
            name: {"DataType": "String", "StringValue": value}
            for name, value in attributes.items()
            if value
        }
        try:
            region = topic.split(":")[3]
            if self._client is None and region not in self._by_region:
                retries = {"mode": "standard", "total_max_attempts": 2}
                self._by_region[region] = session.client(
                    "sns", region=region, connect_timeout=2, read_timeout=5, retries=retries
                )
            client = self._client or self._by_region[region]
            client.publish(TopicArn=topic, Message=text, MessageAttributes=values)
        except ClientError as error:
            raise NotPublished(
                str(error.response.get("Error", {}).get("Code", "ClientError"))
            ) from error
        except BotoCoreError as error:
            raise NotPublished(type(error).__name__) from error
