"""Defines a kind of operation as data: its steps in order, and its rollback. registry.py holds the table of all
kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Outcome
from chalicelib.operations.step_context import StepContext

Step = Callable[[Operation, StepContext, float], Outcome]
GiveUp = Callable[[Operation, Failed], Outcome]


def at_once(operation: Operation, failure: Failed) -> Outcome:
    """Give up where there is nothing to roll back."""
    del operation
    return failure


@dataclass(frozen=True, slots=True)
class OperationDefinition:
    """steps: names and functions; a new operation begins with the first. give_up turns a failure into the outcome that
    leaves no changes behind. bounded: steps that end by themselves and may continue past the deadline. beyond: steps
    at which the vendor has already accepted the request, so that cancelling would only hide its result."""

    steps: tuple[tuple[str, Step], ...]
    rollback: GiveUp = at_once
    timed_steps: frozenset[str] = frozenset()
    irreversible_steps: frozenset[str] = frozenset({"poll"})

    def step(self, name: str) -> tuple[str, Step]:
        """Return the step of that name. A name that no longer exists (planned by an older version) starts over, which
        is safe because every step may be repeated."""
        return next((entry for entry in self.steps if entry[0] == name), self.steps[0])
