"""A tick without news costs a handful of items, however large the cluster
(docs/architecture.md "Reconcile pass").

Reporting state (the digest of the decision, the event memory, gauges and counters) is in rows
that are written anyway.
"""

from __future__ import annotations

from typing import Any

from chalicelib.passes import scan_scheduler
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from chalicelib.store.tables import GAUGES, HOURS, OVERVIEW
from tests.functional.operations.harness import OperationHarness

NODES, WAITING = 1000, 60
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}
READS = {"GetItem", "BatchGetItem", "Query"}


class Costs:
    """Counts read requests and written items of the table: `with Costs(stage) as costs:`.
    rings: writes of the charts and the overview among them, once in five minutes at most;
    `items` has none of these."""

    def __init__(self, stage: OperationHarness) -> None:
        self.reads = self.items = self.rings = 0
        self._events = stage.store.table.client.meta.events

    def __enter__(self) -> Costs:
        self._events.register("before-parameter-build.dynamodb", self._sent)
        return self

    def __exit__(self, *error: object) -> None:
        self._events.unregister("before-parameter-build.dynamodb", self._sent)

    def _sent(self, params: dict[str, Any], model: Any, **_: object) -> None:
        if model.name in READS:
            self.reads += 1
        elif params.get("Item", {}).get("item", {}).get("S") in (GAUGES, HOURS, OVERVIEW):
            self.rings += 1
        else:
            self.items += sum(
                "ConditionCheck" not in part for part in params.get("TransactItems", [{}])
            )


def a_large_cluster(stage: OperationHarness) -> None:
    """A full group of a thousand nodes, most of them unneeded, and pods that fit nowhere."""
    stage.provider.add_pool("g", size=NODES)
    for number in range(1, NODES + 1):
        stage.kube.create(
            "nodes",
            {
                "metadata": {"name": f"g-{number}"},
                "spec": {"providerID": f"memory://g-{number}"},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": ROOM,
                    "capacity": ROOM,
                },
            },
        )
    for number in range(WAITING):
        name = f"waits-{number}"
        stage.pod(
            name, containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "99"}}}]
        )
        pod = stage.kube.get("pods", name, "default")
        assert pod is not None
        pod["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        }
        stage.kube.update("pods", pod)
    stage.clock.advance(10)


def a_tick(stage: OperationHarness) -> None:
    """One minute later: a tick, and the pass it requests."""
    stage.clock.advance(60)
    scan_scheduler.run(stage.runtime)
    handle(encode(ReconcileMessage(stage.name, "schedule", stage.clock())).decode(), stage.runtime)


def test_quiet_tick_of_1000_nodes_writes_five_items_at_most_and_reads_little(
    stage: OperationHarness,
) -> None:
    a_large_cluster(stage)
    a_tick(stage)
    reported = len(stage.events("NotTriggerScaleUp"))
    entries = len(stage.store.journal.recent(stage.name))
    for _ in range(3):
        with Costs(stage) as costs:
            a_tick(stage)
        assert costs.items <= 5
        assert costs.reads <= 25
    assert len(stage.memory().nodes) > NODES / 2, "their timers run"
    assert reported == len(stage.events("NotTriggerScaleUp")) == 50
    assert entries == len(stage.store.journal.recent(stage.name)) == 1


def test_row_written_by_a_quiet_pass_is_small(stage: OperationHarness) -> None:
    a_large_cluster(stage)
    a_tick(stage)
    lease = stage.store.leases.acquire(stage.name, "looking", 60.0)
    assert 0 < len(lease.carry_over) < 3000
    assert lease.decision
