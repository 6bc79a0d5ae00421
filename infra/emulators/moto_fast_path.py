"""moto's DynamoDB, entered without what surrounds it, because most of a test's time on the emulated AWS went there.

For every request moto's server asks which service is meant, takes it through a web framework, lists its own methods by
inspection, and looks for the members of every single value under all names they might have in its own classes. Requests
about rows need none of that: the target names the action, and moto has the results in the shape of the wire.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from moto.core.exceptions import ServiceException
from moto.core.request import Request
from moto.core.responses import ActionResult
from moto.core.utils import camelcase_to_underscores
from moto.dynamodb.responses import DynamoHandler
from werkzeug.exceptions import HTTPException

TARGET = "DynamoDB_20120810"
"""What the header X-Amz-Target begins with."""
Answer = tuple[int, dict[str, Any], str | bytes]

_ROWS = frozenset(
    {
        "BatchGetItem",
        "BatchWriteItem",
        "DeleteItem",
        "GetItem",
        "PutItem",
        "Query",
        "Scan",
        "TransactGetItems",
        "TransactWriteItems",
        "UpdateItem",
    }
)
"""Actions whose results moto already has in the shape of the wire."""


class Rows(DynamoHandler):
    """`Rows.dispatch(request)` is the answer: status, headers, body. Callers hold a lock: moto's tables have none."""

    def call_action(self) -> Answer:
        """See BaseResponse: carry out the request that has been read, and write the answer."""
        self.body = self.params
        action = getattr(self, camelcase_to_underscores(self._get_action()))
        try:
            made = action()
        except ServiceException as error:
            made = ActionResult(error)
        except HTTPException as error:
            return error.code or 500, dict(error.get_headers()), error.description or ""
        return self.serialized(made)

    def serialized(self, action_result: ActionResult) -> Answer:
        """See BaseResponse."""
        if self._get_action() in _ROWS and isinstance(action_result.result, dict):
            return 200, self.response_headers, json.dumps(action_result.result, default=_blob)
        made: Answer = super().serialized(action_result)
        return made


class WireRequest(Request):
    """A request that came over a socket: the server dates its answer."""

    from_wsgi_server = True


def _blob(value: object) -> str:
    """Binary values, which moto has as bytes. Raises TypeError for anything else: moto has changed."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"moto answers with a {type(value).__name__}")
