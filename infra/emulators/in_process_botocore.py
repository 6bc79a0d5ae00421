"""A shorter way to the emulated AWS for scenarios: the same emulation and the same client, without a socket between.

A scenario makes thousands of requests, one after the other, from one thread. Over HTTP each costs a connection and a
thread (werkzeug keeps none open), several times what the request itself takes. Nothing but the transport is left out
(and what aws_rows.py leaves out): the client still signs, serializes, and raises what the emulation answers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.core.request import normalize_request
from moto.core.responses import BaseResponse
from moto.secretsmanager.responses import SecretsManagerResponse
from moto.ssm.responses import SimpleSystemManagerResponse

from infra.emulators.moto_fast_path import TARGET, Answer, Rows


class _Body(BytesIO):
    """What botocore reads an answer from."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        """Everything at once."""
        yield self.read()


class DirectWay:
    """Take as many clients as you like; all of them share moto's state with every server of this process."""

    _HANDLERS: Mapping[str, type[BaseResponse]] = {
        TARGET: Rows,
        "secretsmanager": SecretsManagerResponse,
        "AmazonSSM": SimpleSystemManagerResponse,
    }

    def __init__(self) -> None:
        self._lock = threading.RLock()  # moto's tables have none (aws_server.py)

    def take(self, client: Any) -> Any:
        """This botocore client from now on goes the direct way."""
        client.meta.events.register("before-send", self._answer)
        return client

    def _answer(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        service = _text(request.headers["X-Amz-Target"]).partition(".")[0]
        with self._lock:
            made: Answer = self._HANDLERS[service].dispatch(normalize_request(request))
        status, headers, body = made
        fields: Any = headers  # read like a mapping; the stubs ask for botocore's own kind
        raw: Any = _Body(body if isinstance(body, bytes) else body.encode())
        return AWSResponse(str(request.url), status, fields, raw)


def _text(value: Any) -> str:
    """What botocore prepared as text or as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
