"""Which providers a deployment has work for: those that stored policies name.

Lambda polls the queue of an enabled mapping all the time, and every poll is paid for, messages or not. So the mapping
of a provider that no policy names is switched off. Its queue keeps what is sent to it.
"""

from __future__ import annotations

from typing import Any

import yaml

from chalicelib.dispatch.messages import PROVIDERS
from infra.aws.deploy.stage import Stage

_MOST = 1_000_000  # characters of a policy that are looked at; a policy of that size is refused anyway


def providers_in_use(stage: Stage, texts: list[str]) -> frozenset[str]:
    """The stage's own, and those of the policies. A policy that cannot be read may name any, so then all are in use.

    texts: the policies in force, as they are stored.
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
    """Messages that a queue holds, delayed ones and those that are being worked on too; queue: its SQS name."""
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
    ]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(attributes[name]) for name in names)
