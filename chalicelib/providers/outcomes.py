"""From a change's errors to its outcome, for every vendor alike.

What will not happen is Failed. What may have happened, or may happen in a moment (Transient, Throttled, Conflict), is
raised: the caller waits and calls again, and every change first reads how far it has come. So a busy group is never a
failed one. What a person wrote and is wrong is a failure that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Outcome
from chalicelib.providers.errors import Conflict, ProviderError, Throttled, Transient

C = TypeVar("C")


def settled(
    step: Callable[[C, Operation], Outcome], context: C, operation: Operation, *, final: type[Conflict]
) -> Outcome:
    """What the step came to. final: the Conflict that waiting does not mend. Raises Transient, Throttled, Conflict."""
    try:
        return step(context, operation)
    except BadInput as mistake:
        return Failed("InvalidRequest", str(mistake).splitlines()[0])
    except ProviderError as error:
        if isinstance(error, Transient | Throttled | Conflict) and not isinstance(error, final):
            raise
        return Failed(error.cls, error.message, error.code, error.retry_after)
