"""Calls that AWS refuses for a while: what was made or changed just before is not settled everywhere at once."""

from __future__ import annotations

from collections.abc import Callable

from botocore.exceptions import ClientError

from infra.aws.deploy.errors import DeployFailed

Sleep = Callable[[float], None]

_WAIT, _PATIENCE = 3.0, 120.0  # seconds between attempts, and until it is given up

# A new role cannot be assumed yet; a mapping is being created or updated; a role's queue is not known yet.
_SETTLING = ("InvalidParameterValueException", "ResourceInUseException", "ResourceNotFoundException")
# The same code also says that something exists already, which no waiting changes.
_CONFLICT, _IN_PROGRESS = "ResourceConflictException", ("Pending", "in progress", "InProgress")


def patiently(call: Callable[[], object], about: str, sleep: Sleep) -> None:
    """Make the call, again while AWS is settling. about: what it concerns, for the error. Raises DeployFailed."""
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
    return code in _SETTLING or (code == _CONFLICT and any(word in str(error) for word in _IN_PROGRESS))
