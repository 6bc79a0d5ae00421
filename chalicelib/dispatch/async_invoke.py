"""Hands a pass over to the large `reconcile` function by an asynchronous invocation.

A separate queue would be polled all month, even while no cluster is large. An asynchronous invocation costs nothing
until it is used. Lambda stores its event, retries it where the function fails, and finally writes a record to the
dead-letter queue of the reconcile queue (infra/aws).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.aws import session
from chalicelib.dispatch.errors import NotInvoked
from chalicelib.model.resource_names import prefix_of

RECONCILE_LARGE = "reconcile_large"
"""Function name in app.py and .chalice/config.json."""

VARIABLE = "OUTSCALER_RECONCILE_LARGE"

_ACCEPTED = 202


class LargeFunction:
    """Invokes the large function of this deployment. name: the function's name in Lambda. client: created at the first
    use if not given, because most processes never invoke the function."""

    def __init__(self, name: str, client: Any = None) -> None:
        self._name, self._client = name, client

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> LargeFunction | None:
        """Return the function named by OUTSCALER_RECONCILE_LARGE, otherwise by OUTSCALER_PREFIX; None where neither is
        set."""
        prefix = prefix_of(environment)
        name = environment.get(VARIABLE, "") or (f"{prefix}-{RECONCILE_LARGE}" if prefix else "")
        return cls(name) if name else None

    def __call__(self, body: bytes) -> None:
        """Hand over a message of the reconcile queue. Returns when Lambda has accepted it; raises NotInvoked."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if self._client is None:
                self._client = _client()
            answer = self._client.invoke(FunctionName=self._name, InvocationType="Event", Payload=body)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "ClientError"))
            raise NotInvoked(RECONCILE_LARGE, code) from error
        except BotoCoreError as error:
            raise NotInvoked(RECONCILE_LARGE, type(error).__name__) from error
        if answer.get("StatusCode") != _ACCEPTED:
            raise NotInvoked(RECONCILE_LARGE, f"status {answer.get('StatusCode')}")


def _client() -> Any:
    return session.client(
        "lambda", connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3}
    )
