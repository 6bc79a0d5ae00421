"""The same rules as a hypothesis state machine, which shrinks a failure to the
shortest sequence of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.faults import run_steps, user_actions
from tests.faults.final_checks import finish
from tests.faults.run_state import FaultRun


class StatefulFaults(RuleBasedStateMachine):
    """One run; all faults stop at its end."""

    def __init__(self) -> None:
        super().__init__()
        # without the status ConfigMap, which costs as much as everything else
        self.machine = FaultRun(1)
        self.machine.__enter__()
        self.broken = True  # until the last step has finished

    def take(self, chosen: run_steps.Rule, dice: Random) -> None:
        """Runs one step and advances time: hypothesis has no weights, and most
        effects need time to pass."""
        self.broken = True
        self.machine.take(chosen, dice)
        self.machine.take(run_steps.while_, dice)
        self.broken = False

    def teardown(self) -> None:
        """Runs the final checks, unless a step has already broken an invariant."""
        try:
            if not self.broken:
                finish(self.machine)
        finally:
            self.machine.__exit__(None, None, None)


def _method(chosen: run_steps.Rule) -> Callable[[StatefulFaults, Any], None]:
    def step(self: StatefulFaults, dice: Any) -> None:
        self.take(chosen, dice)

    step.__name__ = chosen.__name__
    return step


def _of_users(chosen: run_steps.Rule) -> run_steps.Rule:
    """A user rule for which a rejection by the API is a valid result."""

    def ruled(m: FaultRun, dice: Random) -> str:
        return user_actions.refusable(chosen, m, dice)

    ruled.__name__ = chosen.__name__
    return ruled


_WEATHER = [chosen for _, chosen in run_steps.RULES if chosen is not run_steps.a_user]
for _chosen in [*_WEATHER, *(_of_users(chosen) for _, chosen in user_actions.RULES)]:
    setattr(
        StatefulFaults,
        _chosen.__name__,
        rule(dice=st.randoms(use_true_random=False))(_method(_chosen)),
    )
