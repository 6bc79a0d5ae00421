"""A shorter way to the emulated AWS for scenarios: the same emulation and the same client, without a socket between.

A scenario makes thousands of requests, one after the other, from one thread. Over HTTP each costs a connection and a
thread (werkzeug keeps none open), several times what the request itself takes. Nothing but the transport is left out:
the client still signs, serializes, and raises what the emulation answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import Client

from infra.local.aws_server import one_at_a_time


class _Body(BytesIO):
    """What botocore reads an answer from."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        """Everything at once."""
        yield self.read()


class DirectWay:
    """Take as many clients as you like; all of them share moto's state with every server of this process."""

    def __init__(self) -> None:
        self._web = Client(one_at_a_time(DomainDispatcherApplication(create_backend_app)))

    def take(self, client: Any) -> Any:
        """This botocore client from now on goes the direct way."""
        client.meta.events.register("before-send", self._answer)
        return client

    def _answer(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        headers = {name: _text(value) for name, value in request.headers.items()}
        made = self._web.open(request.url, method=request.method, headers=headers, data=_text(request.body).encode())
        fields: Any = made.headers  # read like a mapping; the stubs ask for botocore's own kind
        return AWSResponse(request.url, made.status_code, fields, _Body(made.get_data()))


def _text(value: Any) -> str:
    """What botocore prepared as text, as bytes, or not at all; the services in here speak JSON."""
    return value.decode() if isinstance(value, bytes) else str(value or "")
