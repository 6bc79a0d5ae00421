"""A kind of operation as data: its steps in order, and how it is given up. run.py holds the table of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, Outcome
from chalicelib.operations.step_context import StepContext

Step = Callable[[Operation, StepContext, float], Outcome]
GiveUp = Callable[[Operation, Failed], Outcome]


def at_once(operation: Operation, failure: Failed) -> Outcome:
    """Giving up where there is nothing to roll back."""
    del operation
    return failure


@dataclass(frozen=True, slots=True)
class OperationDefinition:
    """steps: name and function, the first is where a new operation begins. give_up turns a failure into the outcome
    that leaves no trace behind. bounded: steps that end by themselves and are let run past the deadline. beyond: steps
    at which the vendor has the order already, so that calling it off would only hide what happens."""

    steps: tuple[tuple[str, Step], ...]
    rollback: GiveUp = at_once
    timed_steps: frozenset[str] = frozenset()
    irreversible_steps: frozenset[str] = frozenset({"poll"})

    def step(self, name: str) -> tuple[str, Step]:
        """By name; one that no longer exists (an older version planned it) starts over: every step may be repeated."""
        return next((entry for entry in self.steps if entry[0] == name), self.steps[0])
