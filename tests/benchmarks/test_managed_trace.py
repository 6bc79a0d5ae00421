"""What a declaration of machines saves in two hours of the trace, against groups made by hand."""

from __future__ import annotations

import pytest

from tests.benchmarks.consolidation_trace import trace
from tests.benchmarks.managed_trace import BY_HAND, managed_replay, managed_table
from tests.reference_data import needs_shared

HOURS = 2.0
OF_BY_HAND = 0.8
"""Price of managed pools as a part of the price of groups made by hand; measured: 0.62."""
WAITING_OF_BY_HAND = 1.2
"""The same of the pods' waiting; measured: 1.07. Nodes that fit better have less room for the pods
that come later, which then wait for the start of another one."""


@needs_shared
@pytest.mark.slow
def test_managed_pools_are_cheaper_than_groups_made_by_hand_and_all_pods_get_nodes() -> None:
    task_trace = trace(HOURS, unmeasured=0.0)
    outcomes = {
        rules: managed_replay(task_trace, rules, has_gpus=False) for rules in ("managed", BY_HAND)
    }
    print(f"\n{managed_table(outcomes)}")
    managed, by_hand = outcomes["managed"], outcomes[BY_HAND]
    assert managed.of_trace.price <= OF_BY_HAND * by_hand.of_trace.price
    assert managed.left <= by_hand.left
    assert managed.of_trace.pending <= WAITING_OF_BY_HAND * by_hand.of_trace.pending
