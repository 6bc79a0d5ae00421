"""Forms of a notification: a CloudEvent for programs, and the form that Amazon's chat client shows.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from chalicelib.model.notification import NOTICE_TYPES
from chalicelib.model.timestamps import format_time
from chalicelib.notify.notices import CLOSED, OPEN, NoticeMessage

TYPE_PREFIX = "dev.outscaler."
SCHEMA = "https://github.com/outscaler/outscaler/blob/main/docs/notifications.md#cloudevents"
RUNBOOK = "https://github.com/outscaler/outscaler/blob/main/docs/runbook.md"
_TEXT = 500  # characters of a foreign text


def cloud_event(message: NoticeMessage, cluster: str, stack: str) -> dict[str, Any]:
    """Return the event in CloudEvents' JSON format. stack: the deployment's name. A repetition has the same id, and
    consumers deduplicate by source and id."""
    condition = message.condition
    data = {
        "cluster": cluster,
        "group": condition.group,
        "node": condition.node,
        "pods": list(condition.pods[:5]),
        "code": _plain(condition.code),
        "class": _plain(condition.cls),
        "message": _plain(condition.message),
        "since": format_time(message.since),
        "plan": condition.plan,
        "operation": condition.operation,
        "command": condition.command,
        "url": runbook_url(condition.type),
    }
    return {
        "specversion": "1.0",
        "id": message.id,
        "source": f"//outscaler/{quote(stack, safe='')}/clusters/{quote(cluster, safe='')}",
        "type": f"{TYPE_PREFIX}{condition.type}",
        "subject": _subject(message),
        "time": format_time(message.at),
        "datacontenttype": "application/json",
        "dataschema": SCHEMA,
        "severity": condition.severity.value,
        "state": message.state,
        "dedupkey": dedup_key(message, cluster),
        "data": {name: value for name, value in data.items() if value},
    }


def topic_attributes(message: NoticeMessage, cluster: str) -> dict[str, str]:
    """Return the message attributes of SNS, for filter policies."""
    return {
        "cluster": cluster,
        "type": message.condition.type,
        "severity": message.condition.severity.value,
        "state": message.state,
    }


def chat_message(message: NoticeMessage, cluster: str) -> dict[str, Any]:
    """Return the form that Amazon Q Developer in chat applications shows; it ignores every other one. The thread joins
    the end of a condition to its beginning."""
    condition = message.condition
    word = {OPEN: condition.severity.value.upper(), CLOSED: "RESOLVED"}.get(message.state, message.state.upper())
    return {
        "version": "1.0",
        "source": "custom",
        "id": message.id,
        "content": {
            "textType": "client-markdown",
            "title": f"{word}: {condition.type} in {cluster}"[:250],
            "description": f"{_markdown(condition.message)}\nsince {format_time(message.since)}",
            "nextSteps": [condition.command, runbook_url(condition.type)] if condition.command else [],
        },
        "metadata": {
            "threadId": dedup_key(message, cluster),
            "summary": f"{condition.type}: {_markdown(condition.message)}"[:250],
            "eventType": condition.type,
        },
    }


def dedup_key(message: NoticeMessage, cluster: str) -> str:
    """Return the key that the beginning, the reminders and the end of a condition have in common."""
    return f"{cluster}/{_plain(message.condition.key)}"


def runbook_url(kind: str) -> str:
    """Return the section of the runbook about a type; test messages have none of their own."""
    return f"{RUNBOOK}#{f'notification-{kind}'.replace('.', '') if kind in NOTICE_TYPES else 'notifications'}"


def _subject(message: NoticeMessage) -> str:
    condition = message.condition
    named = (("groups", condition.group), ("nodes", condition.node), ("operations", condition.operation))
    return "/".join(f"{kind}/{quote(name, safe='')}" for kind, name in named if name) or "cluster"


def _plain(text: str) -> str:
    """Return a foreign text without control characters, bounded."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text[:_TEXT])


def _markdown(text: str) -> str:
    """Return a foreign text that chat clients show as it is: no links, mentions or formatting."""
    return "".join(f"\\{each}" if each in "\\`*_{}[]()<>#+|~@!" else each for each in _plain(text))
