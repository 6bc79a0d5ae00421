"""How a pass is handed over to the large `reconcile` function: by an asynchronous invocation.

A queue of its own would be polled all month, also while no cluster is large. An asynchronous invocation costs nothing
until it is used. Lambda keeps its event, repeats it where the function fails, and leaves a record in the dead letters
of the reconcile queue in the end (infra/aws).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.aws import session
from chalicelib.dispatch.errors import NotInvoked
from chalicelib.model.resource_names import prefix_of

RECONCILE_LARGE = "reconcile_large"
"""The function's name in app.py and .chalice/config.json."""

VARIABLE = "OUTSCALER_RECONCILE_LARGE"

_ACCEPTED = 202


class LargeFunction:
    """Invokes the large function of this deployment. name: as Lambda knows it. client: made at the first use if not
    given, for most processes never invoke it."""

    def __init__(self, name: str, client: Any = None) -> None:
        self._name, self._client = name, client

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> LargeFunction | None:
        """The function of OUTSCALER_RECONCILE_LARGE, else of OUTSCALER_PREFIX; None where there is neither."""
        prefix = prefix_of(environment)
        name = environment.get(VARIABLE, "") or (f"{prefix}-{RECONCILE_LARGE}" if prefix else "")
        return cls(name) if name else None

    def __call__(self, body: bytes) -> None:
        """Hand over a message of the reconcile queue. Returns when Lambda has taken it; raises NotInvoked."""
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
