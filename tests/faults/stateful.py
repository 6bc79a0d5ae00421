"""The same rules as a state machine of hypothesis, which shrinks what it breaks to the shortest story."""

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
    """One run; at its end all faults stop."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = FaultRun()
        self.machine.__enter__()
        self.broken = True  # until the last step has come through

    def take(self, chosen: run_steps.Rule, dice: Random) -> None:
        """One step, and a while after it: hypothesis knows no weights, and it is time that makes things happen."""
        self.broken = True
        self.machine.take(chosen, dice)
        self.machine.take(run_steps.while_, dice)
        self.broken = False

    def teardown(self) -> None:
        """The end, unless a step has broken a promise already."""
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
    """A user's rule whose refusal by the API is an answer."""

    def ruled(m: FaultRun, dice: Random) -> str:
        return user_actions.refusable(chosen, m, dice)

    ruled.__name__ = chosen.__name__
    return ruled


_WEATHER = [chosen for _, chosen in run_steps.RULES if chosen is not run_steps.a_user]
for _chosen in [*_WEATHER, *(_of_users(chosen) for _, chosen in user_actions.RULES)]:
    setattr(StatefulFaults, _chosen.__name__, rule(dice=st.randoms(use_true_random=False))(_method(_chosen)))
