"""Converts the errors of a change to its outcome, for all vendors alike.

An error that rules out success is Failed. Errors after which the change may have happened or may succeed soon
(Transient, Throttled, Conflict) are raised: the caller waits and calls again, and every change first reads its own
progress. A busy group is therefore never counted as failed. A configuration error is a failure that names it.
"""

from __future__ import annotations

from chalicelib.model.errors import BadInput
from chalicelib.model.outcome import Failed
from chalicelib.providers.errors import Conflict, ProviderError, Throttled, Transient


def outcome_of(error: ProviderError | BadInput, *, final: type[Conflict]) -> Failed:
    """Return the outcome of a change that failed. final: the Conflict that a retry cannot resolve.

    Raises the error again if it is Transient, Throttled or another Conflict.
    """
    if isinstance(error, BadInput):
        return Failed("InvalidRequest", str(error).splitlines()[0])
    if isinstance(error, Transient | Throttled | Conflict) and not isinstance(error, final):
        raise error
    return Failed(error.error_class, error.message, error.code, error.retry_after)
