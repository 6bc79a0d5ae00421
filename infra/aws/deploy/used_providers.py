"""Determines the providers that a deployment uses: those that stored policies name.

Lambda polls the queue of an enabled mapping continuously, and every poll is charged, with or
without messages. Therefore the mapping of a provider that no policy names is disabled. Its queue
keeps messages sent to it.
"""

from __future__ import annotations

from typing import Any

import yaml

from chalicelib.runtime.messages import PROVIDERS
from infra.aws.deploy.stage import Stage

_MOST = 1_000_000  # characters of a policy that are read; a policy of that size is rejected anyway


def providers_in_use(stage: Stage, texts: list[str]) -> frozenset[str]:
    """Return the stage's own providers and those of the policies. If a policy cannot be parsed, it
    may name any provider, so all are returned.

    texts: the stored policies in force.
    """
    named = set(stage.options.providers)
    for text in texts:
        found = _named(text)
        if found is None:
            return frozenset(PROVIDERS)
        named |= found
    return frozenset(named & set(PROVIDERS))


def _named(text: str) -> set[str] | None:
    try:
        document = yaml.safe_load(text[:_MOST])
        return set(document["spec"]["providers"])
    except (yaml.YAMLError, KeyError, TypeError, RecursionError, ValueError):
        return None


def queue_length(sqs: Any, queue: str) -> int:
    """Return the number of messages in a queue, including delayed and in-flight
    ones. queue: its SQS name."""
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
    ]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(attributes[name]) for name in names)
