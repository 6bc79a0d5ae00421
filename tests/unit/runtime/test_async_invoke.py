"""A reconcile pass is started by an asynchronous invocation; every refusal by Lambda
becomes one error class.
"""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from chalicelib.runtime.messages import ReconcileMessage
from chalicelib.runtime.senders import LargeFunction, NotInvoked, NotSent
from infra.emulators.deployed_functions import AsyncLambda
from tests.cases import each_row

NAME = "outscaler-dev-reconcile_large"


class Kept:
    """Records what Lambda accepted. error: raised instead."""

    def __init__(self, error: Exception | None = None, status: int = 202) -> None:
        self.events: list[tuple[str, bytes]] = []
        self._error, self._status = error, status

    def invoke(self, **given: Any) -> dict[str, Any]:
        if self._error is not None:
            raise self._error
        AsyncLambda(
            frozenset({NAME}), lambda name, event: self.events.append((name, event))
        ).invoke(**given)
        return {"StatusCode": self._status}


def test_invoke_sends_the_message_as_the_event() -> None:
    kept = Kept()
    LargeFunction(NAME, kept)(ReconcileMessage("shop"))
    assert kept.events == [(NAME, b'{"cluster":"shop"}')]


@each_row(
    ("kept", "code"),
    [
        (
            Kept(
                ClientError({"Error": {"Code": "AccessDeniedException", "Message": ""}}, "Invoke")
            ),
            "AccessDeniedException",
        ),
        (Kept(ClientError({}, "Invoke")), "ClientError"),
        (Kept(ConnectTimeoutError(endpoint_url="https://lambda")), "ConnectTimeoutError"),
        (Kept(status=500), "status 500"),
    ],
)
def test_invoke_raises_not_invoked_for_every_lambda_error(kept: Kept, code: str) -> None:
    with pytest.raises(NotInvoked) as refused:
        LargeFunction(NAME, kept)(ReconcileMessage("shop"))
    assert refused.value.code == code


def test_invoke_raises_not_invoked_when_lambda_throttles() -> None:
    def full(function: str, event: bytes) -> None:
        raise NotSent(function, "full")

    with pytest.raises(NotInvoked, match="TooManyRequestsException"):
        LargeFunction(NAME, AsyncLambda(frozenset({NAME}), full))(ReconcileMessage("shop"))


@each_row(
    ("environment", "name"),
    [
        ({}, ""),
        ({"OUTSCALER_RECONCILE_LARGE": "stack-ReconcileLarge-1"}, "stack-ReconcileLarge-1"),
        ({"OUTSCALER_PREFIX": "outscaler-dev"}, NAME),
        ({"OUTSCALER_PREFIX": "outscaler-dev", "OUTSCALER_RECONCILE_LARGE": "another"}, "another"),
    ],
)
def test_invoke_names_the_function_by_its_variable_or_by_the_prefix(
    environment: dict[str, str], name: str
) -> None:
    found = LargeFunction.from_environment(environment)
    assert (found._name if found else "") == name
