"""What providers have in common that carry changes out as functions of a context: which function which question asks.

Each call stands by itself: a change first reads how far it has come, so the next step of one is the change once more;
only a growth is followed by a function of its own where the vendor takes its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Outcome
from chalicelib.providers.errors import Conflict, ProviderError
from chalicelib.providers.outcomes import outcome_of

C = TypeVar("C")


@dataclass(frozen=True)
class ProviderActions(Generic[C]):
    """A provider's changes, as base.py's protocol wants them; each raises ProviderError. remove: also of machines that
    never joined. final: the Conflict that waiting does not mend."""

    grow: Callable[[C, Operation], Outcome]
    poll: Callable[[C, Operation], Outcome]
    remove: Callable[[C, Operation], Outcome]
    shrink: Callable[[C, Operation], Outcome]
    release: Callable[[C, Operation], bool]
    permanent_conflict: type[Conflict]


class BaseProvider(Generic[C]):
    """The changing half of the Provider protocol; observing is the vendor's own."""

    def __init__(self, name: str, context: C, steps: ProviderActions[C]) -> None:
        self._name, self._context, self._steps = name, context, steps
        self._next = {
            OperationKind.SCALE_UP: steps.poll,
            OperationKind.DELETE_NODES: steps.remove,
            OperationKind.DELETE_INSTANCES: steps.remove,
            OperationKind.DECREASE_TARGET: steps.shrink,
        }

    @property
    def name(self) -> str:
        """The provider's name in the policy."""
        return self._name

    def grow(self, operation: Operation) -> Outcome:
        """from_size -> to_size."""
        try:
            return self._steps.grow(self._context, operation)
        except (ProviderError, BadInput) as error:
            return outcome_of(error, final=self._steps.permanent_conflict)

    def remove(self, operation: Operation) -> Outcome:
        """Exactly these machines; the size goes down with them."""
        try:
            return self._steps.remove(self._context, operation)
        except (ProviderError, BadInput) as error:
            return outcome_of(error, final=self._steps.permanent_conflict)

    def release(self, operation: Operation) -> bool:
        """False where every target is gone or going."""
        return self._steps.release(self._context, operation)

    def shrink_target(self, operation: Operation) -> Outcome:
        """Lower the size as long as every machine stays."""
        try:
            return self._steps.shrink(self._context, operation)
        except (ProviderError, BadInput) as error:
            return outcome_of(error, final=self._steps.permanent_conflict)

    def poll(self, operation: Operation) -> Outcome:
        """The next step of a change."""
        try:
            return self._next[operation.spec.kind](self._context, operation)
        except (ProviderError, BadInput) as error:
            return outcome_of(error, final=self._steps.permanent_conflict)
