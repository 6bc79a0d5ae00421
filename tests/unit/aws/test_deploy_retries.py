"""A deployment retries while AWS settles, and only then."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from infra.aws.deploy.errors import DeployFailed
from infra.aws.deploy.retries import patiently


def _refusal(code: str, text: str = "") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": text}}, "UpdateEventSourceMapping")


@pytest.mark.parametrize(
    ("code", "text", "attempts"),
    [
        ("ResourceInUseException", "Cannot update the event source mapping while it is in use", 41),
        (
            "InvalidParameterValueException",
            "The role defined for the function cannot be assumed by Lambda.",
            41,
        ),
        (
            "ResourceConflictException",
            "The function is currently in the following state: Pending",
            41,
        ),
        ("ResourceConflictException", "An update is in progress for resource", 41),
        (
            "ResourceConflictException",
            "An event source mapping with these arguments already exists",
            1,
        ),
        ("AccessDeniedException", "User is not authorized", 1),
    ],
)
def test_deploy_retries_only_settling_errors_and_not_forever(
    code: str, text: str, attempts: int
) -> None:
    made: list[float] = []

    def call() -> None:
        made.append(0.0)
        raise _refusal(code, text)

    with pytest.raises(DeployFailed, match=f"mapping of a queue: .*{code}"):
        patiently(call, "mapping of a queue", lambda seconds: None)
    assert len(made) == attempts


def test_deploy_call_that_finally_succeeds_counts_as_succeeded() -> None:
    answers = [_refusal("ResourceInUseException"), _refusal("ResourceInUseException"), None]
    waited: list[float] = []

    def call() -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    patiently(call, "mapping", waited.append)
    assert waited == [3.0, 3.0]
