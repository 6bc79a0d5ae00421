"""Retries AWS calls that fail for a while because a resource was created or changed just before."""

from __future__ import annotations

from collections.abc import Callable

from botocore.exceptions import ClientError

from infra.aws.deploy.errors import DeployFailed

Sleep = Callable[[float], None]

_WAIT, _PATIENCE = 3.0, 120.0  # seconds between attempts, and until retrying ends

# A new role cannot be assumed yet, a mapping is being created or updated, or a role's access to
# its queue is not known yet.
_SETTLING = (
    "InvalidParameterValueException",
    "ResourceInUseException",
    "ResourceNotFoundException",
)
# The same code is also returned if the resource exists already, which retrying does not change.
_CONFLICT, _IN_PROGRESS = "ResourceConflictException", ("Pending", "in progress", "InProgress")


def patiently(call: Callable[[], object], about: str, sleep: Sleep) -> None:
    """Make the call and retry while AWS propagates changes. about: the subject of the call, for the
    error. Raises DeployFailed."""
    waited = 0.0
    while True:
        try:
            call()
            return
        except ClientError as error:
            if not _is_settling(error) or waited >= _PATIENCE:
                raise DeployFailed(f"{about}: {error}") from None
        sleep(_WAIT)
        waited += _WAIT


def _is_settling(error: ClientError) -> bool:
    code = error.response["Error"]["Code"]
    return code in _SETTLING or (
        code == _CONFLICT and any(word in str(error) for word in _IN_PROGRESS)
    )
