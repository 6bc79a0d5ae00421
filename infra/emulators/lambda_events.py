"""Events as Lambda gets them from EventBridge, SQS and API Gateway, and the context argument.

chalice.test is not used, because its builders give every SQS record the same messageId and no
attributes, so partial batch responses cannot be tested.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chalicelib.model.timestamps import format_time

ACCOUNT, REGION = "000000000000", "us-east-1"

Json = dict[str, Any]


@dataclass(frozen=True)
class LambdaContext:
    """The second argument of a handler, with the attributes that are used. clock: epoch seconds;
    ends: when Lambda would end the invocation, by that clock."""

    function_name: str
    aws_request_id: str
    clock: Callable[[], float]
    ends: float
    memory_limit_in_mb: int = 512

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:outscaler-{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until then; the emulation itself stops no function."""
        return max(0, int((self.ends - self.clock()) * 1000.0))


def schedule_event(rule: str, now: float, serial: int = 0) -> Json:
    """Return a scheduled event of EventBridge. now: epoch seconds."""
    return {
        "version": "0",
        "id": _identifier("event", rule, serial),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": format_time(now),
        "region": REGION,
        "resources": [f"arn:aws:events:{REGION}:{ACCOUNT}:rule/outscaler-{rule}"],
        "detail": {},
    }


def sqs_record(
    queue: str, message_id: str, receipt: str, body: str, attributes: Mapping[str, str]
) -> Json:
    """Return one record. attributes: SQS's own (ApproximateReceiveCount, SentTimestamp …)."""
    return {
        "messageId": message_id,
        "receiptHandle": receipt,
        "body": body,
        "attributes": dict(attributes),
        "messageAttributes": {},
        "md5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}",
        "awsRegion": REGION,
    }


def failed_messages(answer: Any) -> tuple[str, ...]:
    """Return the messageIds in a partial batch response, none for any other response."""
    failures = answer.get("batchItemFailures", ()) if isinstance(answer, dict) else ()
    return tuple(item["itemIdentifier"] for item in failures)


def sqs_event(*records: Json) -> Json:
    return {"Records": list(records)}


def http_event(
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    resource: str,
    parameters: Mapping[str, str],
    request_id: str,
) -> Json:
    """Return a proxy event of API Gateway (REST). target: path and query. resource: the route, e.g.
    `/clusters/{name}`."""
    split = urlsplit(target)
    query = parse_qsl(split.query, keep_blank_values=True)
    several: dict[str, list[str]] = {}
    for name, value in query:
        several.setdefault(name, []).append(value)
    return {
        "resource": resource,
        "path": split.path,
        "httpMethod": method,
        "headers": dict(headers),
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": dict(query) or None,
        "multiValueQueryStringParameters": several or None,
        "pathParameters": dict(parameters) or None,
        "stageVariables": None,
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
        "requestContext": {
            "resourcePath": resource,
            "httpMethod": method,
            "path": split.path,
            "stage": "api",
            "requestId": request_id,
            "accountId": ACCOUNT,
            "identity": {"sourceIp": "127.0.0.1"},
        },
    }


def _identifier(*parts: object) -> str:
    """Return an id in the form of a UUID, the same in every run."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
