"""Messages of the queues: names, never state.

Standard SQS delivers at least once and in any order. A message therefore carries only what is
needed to find the current state in the table, and nothing that a decision could be based on.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TypeVar

import msgspec

from chalicelib.model.errors import BadInput

#: The providers that have an act function and a queue (`act_<provider>`), in the order of app.py.
PROVIDERS = ("alicloud", "clusterapi", "cherryservers", "exoscale", "huaweicloud")

RECONCILE = "reconcile"

_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?\Z")


class Cause(StrEnum):
    """Why a reconcile was requested. A wake-up must not be lost; a scheduled scan may be."""

    SCHEDULE = "schedule"
    WEBHOOK = "webhook"
    OPERATION = "operation"
    PERSON = "person"


class ReconcileMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests a pass over this cluster. at: the instant (epoch seconds) it is meant for;
    any pass that began later satisfies it. tries: how often a wake-up was sent again
    because its pass failed."""

    cluster: str
    reason: str = Cause.SCHEDULE.value
    at: float = 0.0
    tries: int = 0


class ActMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests the next step of this operation, whose state is in the table."""

    cluster: str
    operation: str


M = TypeVar("M", ReconcileMessage, ActMessage)


def act_queue(provider: str) -> str:
    """Return the name of a provider's queue: `clusterapi` -> `act_clusterapi`; raises BadInput
    for an unknown provider."""
    if provider not in PROVIDERS:
        raise BadInput(
            "provider", f"{provider!r} is not a provider", f"use one of {', '.join(PROVIDERS)}"
        )
    return f"act_{provider}"


def cluster_name_ok(name: str) -> bool:
    """Return whether this is a valid cluster name: lower case letters, digits, `-` and `.`, at most
    253 characters (RFC 1123)."""
    return _NAME.match(name) is not None


def encode(message: ReconcileMessage | ActMessage) -> bytes:
    """Return the message as one line of JSON."""
    return msgspec.json.encode(message)


def decode_reconcile(body: bytes | str) -> ReconcileMessage:
    """Decode the body of a record of the reconcile queue; raises BadInput."""
    return _decode(body, ReconcileMessage, '{"cluster": "name"}')


def decode_act(body: bytes | str) -> ActMessage:
    """Decode the body of a record of an act queue; raises BadInput."""
    message = _decode(body, ActMessage, '{"cluster": "name", "operation": "id"}')
    if not message.operation:
        raise BadInput(
            "message", "operation is empty", 'send {"cluster": "name", "operation": "id"}'
        )
    return message


def _decode(body: bytes | str, shape: type[M], example: str) -> M:
    try:
        message = msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput("message", str(error), f"send {example}") from None
    if not cluster_name_ok(message.cluster):
        raise BadInput(
            "message", f"cluster {message.cluster[:64]!r} is not a name", f"send {example}"
        )
    return message
