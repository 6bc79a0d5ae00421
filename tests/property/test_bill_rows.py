"""Random clusters with hostile requests: the rows of a bill are what is paid, and
no amount is below zero.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from chalicelib.model.cluster_bill import CostParts
from chalicelib.plan.cost_breakdown import cluster_bill
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.node_prices import NodePrices
from tests.amounts import examples
from tests.property.clusters import make
from tests.property.replay_case import recorded

LISTS = (
    None,
    NodePrices(cpu=0.03, memory=0.004, gpu=1.0),
    NodePrices(memory=0.1),
    NodePrices(cpu=0.0),
)
AMOUNTS = (2**62, 2**53, -5, 0)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(examples(60, 600)))
def test_rows_of_any_cluster_are_what_is_paid(seed: int) -> None:
    lot, decision = random.Random(seed), recorded(make(seed))
    snapshot = decision.snapshot
    if snapshot.classes and lot.random() < 0.5:
        classes = list(snapshot.classes)
        at, name = lot.randrange(len(classes)), lot.choice(("cpu", "memory", "nvidia.com/gpu"))
        requests = {**classes[at].requests, name: lot.choice(AMOUNTS)}
        classes[at] = msgspec.structs.replace(classes[at], requests=requests)
        snapshot = msgspec.structs.replace(snapshot, classes=tuple(classes))
    policy = msgspec.structs.replace(decision.policy, prices=lot.choice(LISTS))
    bill = cluster_bill(build_cluster_state(snapshot, policy, decision.memory, decision.now))
    priced = policy.prices is not None and policy.prices.gpu is not None and bool(snapshot.nodes)
    assert bill is not None or not priced
    for own in bill.bills if bill is not None else ():
        parts = msgspec.structs.astuple(own.parts)
        assert sum(parts[1:]) == own.parts.paid
        assert min(parts) >= 0
        assert CostParts.total(row.parts for row in own.groups) == own.parts
        assert sum(row.workload for row in own.owners) == own.parts.workload
        assert -1 <= own.bound <= own.parts.paid
