"""The functions' access to AWS: a proxy that checks each call against the policy of the caller's
role, and refuses as AWS does.

Each function signs its calls with its own key, by which the proxy identifies it. Signatures are not
verified. A call that this module cannot parse is refused.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from botocore import xform_name
from botocore.exceptions import ClientError

from infra.emulators.http_server import LoopbackServer, QuietHandler
from infra.emulators.iam import IamRequest, Judge, arn, of_dynamodb, of_secrets

_SIGNED = re.compile(r"Credential=([^/,]+)/[0-9]{8}/[^/]+/([a-z0-9-]+)/aws4_request")
_HOP = frozenset(
    {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "expect"}
)
_CLUSTER = re.compile(r"/clusters/([^/?]+)")

Needs = Callable[[str, str, Mapping[str, Any], str], Iterator[IamRequest]]
"""(method of botocore, action, arguments, account) -> required permissions."""


def _resource(service: str, name: Callable[[Mapping[str, Any]], str]) -> Needs:
    """Return the Needs of a service whose actions need one permission each. name: of the
    resource, from the arguments."""
    return lambda _, action, arguments, account: iter(
        [
            IamRequest(
                f"{service}:{action.removesuffix('Batch')}", arn(service, name(arguments), account)
            )
        ]
    )


_NEEDS: Mapping[str, Needs] = {
    "DynamoDB_20120810": lambda method, _, arguments, account: of_dynamodb(
        method, arguments, account
    ),
    "secretsmanager": lambda method, _, arguments, account: of_secrets(method, arguments, account),
    "AmazonSQS": _resource(
        "sqs", lambda given: given.get("QueueName") or given["QueueUrl"].rpartition("/")[2]
    ),
    "Logs_20140328": _resource(
        "logs",
        lambda given: (
            f"log-group:{given['logGroupName']}:log-stream:{given.get('logStreamName', '')}"
        ),
    ),
    "AmazonSSM": _resource("ssm", lambda given: f"parameter/{given['Name'].removeprefix('/')}"),
}


def needs(
    service: str, target: str, path: str, body: bytes, account: str
) -> tuple[IamRequest, ...]:
    """Return the permissions that a request needs. Raises LookupError or
    ValueError for an unknown request."""
    if service == "eks" and (found := _CLUSTER.fullmatch(path)):
        return (IamRequest("eks:DescribeCluster", arn("eks", f"cluster/{found[1]}", account)),)
    if service == "sns":
        form = dict(parse_qsl(body.decode()))
        return (IamRequest(f"sns:{form['Action']}", form["TopicArn"]),)
    prefix, _, action = target.partition(".")
    return tuple(_NEEDS[prefix](xform_name(action), action, json.loads(body), account))


class _PermissionProxyHandler(QuietHandler):
    door: ClassVar[Door]

    def serve(self) -> None:
        body = self.read_body()
        status, made = self.door.refusal(self.headers, self.path, body)
        headers: list[tuple[str, str]] = []
        if not status:
            status, headers, made = self.door.forward(self.command, self.path, self.headers, body)
        self.send(status, headers, made)


class Door:
    """endpoint: the emulated AWS. url: the functions' endpoint. judge: checks permissions; its
    `current` must be `caller`. strange: calls that could not be parsed. failing: (function, action)
    to which AWS currently responds with 503."""

    def __init__(self, endpoint: str, account: str) -> None:
        self._behind, self._account, self._here = (
            urlsplit(endpoint).netloc,
            account,
            threading.local(),
        )
        self._lock = threading.Lock()
        self.judge = Judge({}, self.caller)
        self.strange: list[str] = []
        self.failing: set[tuple[str, str]] = set()
        self._server = LoopbackServer(type("Handler", (_PermissionProxyHandler,), {"door": self}))
        self._server.start()
        self.url = self._server.url
        self.stop = self._server.stop

    def caller(self) -> str:
        return str(self._here.function)

    def refusal(self, headers: Message, path: str, body: bytes) -> tuple[int, bytes]:
        """Return AWS's status and text for a call that is not permitted or fails; status
        0 for a call to forward."""
        signed, target = (
            _SIGNED.search(headers.get("Authorization", "")),
            headers.get("X-Amz-Target", ""),
        )
        try:
            if signed is None or signed[1] not in self.judge.roles:
                raise LookupError(f"unknown caller of {target or path}")
            self._here.function = signed[1]
            asked = needs(signed[2], target, path, body, self._account)
            with self._lock:
                for each in asked:
                    self.judge.ask(each)
        except ClientError as error:
            message = error.response["Error"]["Message"]
        except (LookupError, ValueError) as error:
            message = f"{type(error).__name__}: {error}"
            self.strange.append(f"{target or path}: {message}")
        else:
            if not any((signed[1], each.action) in self.failing for each in asked):
                return 0, b""
            return 503, b'{"__type": "ServiceUnavailable", "message": "try again"}'
        return 403, json.dumps({"__type": "AccessDeniedException", "message": message}).encode()

    def forward(
        self, method: str, path: str, headers: Message, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._behind, timeout=600)
        try:
            kept = {name: value for name, value in headers.items() if name.lower() not in _HOP}
            connection.request(method, path, body, kept)
            answer = connection.getresponse()
            made = answer.read()
            return (
                answer.status,
                [pair for pair in answer.getheaders() if pair[0].lower() not in _HOP],
                made,
            )
        finally:
            connection.close()
