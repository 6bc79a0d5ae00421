"""The base class of providers that implement changes as functions of a context.

Each call is independent: a change first reads its own progress, so its next step is a repeated call. Only a scale-up
has a separate poll function, if the vendor takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Outcome
from chalicelib.providers.errors import Conflict, InvalidRequest, ProviderError
from chalicelib.providers.outcomes import outcome_of

C = TypeVar("C")


@dataclass(frozen=True)
class ProviderActions(Generic[C]):
    """A provider's changes, according to the protocol in base.py; each raises ProviderError.

    delete_nodes: also for machines that never joined. permanent_conflict: the Conflict that a retry cannot resolve."""

    scale_up: Callable[[C, Operation], Outcome]
    has_requested: Callable[[C, Operation], bool]
    poll: Callable[[C, Operation], Outcome]
    delete_nodes: Callable[[C, Operation], Outcome]
    decrease_target: Callable[[C, Operation], Outcome]
    cancel_delete: Callable[[C, Operation], bool]
    permanent_conflict: type[Conflict]


class BaseProvider(Generic[C]):
    """The part of the Provider protocol that makes changes; observe is implemented by each vendor."""

    def __init__(self, name: str, context: C, steps: ProviderActions[C]) -> None:
        self._name, self._context, self._steps = name, context, steps
        self._next = {
            OperationKind.SCALE_UP: steps.poll,
            OperationKind.DELETE_NODES: steps.delete_nodes,
            OperationKind.DELETE_INSTANCES: steps.delete_nodes,
            OperationKind.DECREASE_TARGET: steps.decrease_target,
        }

    @property
    def name(self) -> str:
        """The provider's name in the policy."""
        return self._name

    def scale_up(self, operation: Operation) -> Outcome:
        """Scale from from_size to to_size."""
        try:
            return self._steps.scale_up(self._context, operation)
        except (ProviderError, BadInput) as error:
            return outcome_of(error, final=self._steps.permanent_conflict)

    def has_requested(self, operation: Operation) -> bool:
        """Whether the vendor may have received the request of this scale-up."""
        try:
            return self._steps.has_requested(self._context, operation)
        except BadInput as error:
            raise InvalidRequest(str(error)) from error

    def delete_nodes(self, operation: Operation) -> Outcome:
        """Remove exactly these machines and lower the size accordingly."""
        try:
            return self._steps.delete_nodes(self._context, operation)
        except (ProviderError, BadInput) as error:
            return outcome_of(error, final=self._steps.permanent_conflict)

    def cancel_delete(self, operation: Operation) -> bool:
        """Undo a prepared removal; False if every target is gone or leaving."""
        return self._steps.cancel_delete(self._context, operation)

    def decrease_target(self, operation: Operation) -> Outcome:
        """Lower the size without removing a machine."""
        try:
            return self._steps.decrease_target(self._context, operation)
        except (ProviderError, BadInput) as error:
            return outcome_of(error, final=self._steps.permanent_conflict)

    def poll(self, operation: Operation) -> Outcome:
        """Execute the next step of a change."""
        try:
            return self._next[operation.spec.kind](self._context, operation)
        except (ProviderError, BadInput) as error:
            return outcome_of(error, final=self._steps.permanent_conflict)
