"""A pass plans once the pending pods have stopped arriving, at the latest two seconds
after the first of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import pytest

from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import Cause, ReconcileMessage, decode_reconcile, encode
from chalicelib.runtime.wakeup import request_reconcile
from tests.functional.operations.harness import OperationHarness

READING = 0.4  # seconds that each reading of the cluster takes
REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


class Arrivals:
    """Pods that the scheduler refuses at given instants, seconds from now, and the
    messages that follow from them.

    plans: for each growth, when it was saved, seconds from now, and the size.
    """

    def __init__(
        self, stage: OperationHarness, instants: Sequence[float], *, webhook: bool = True
    ) -> None:
        self._stage, self._start, self._webhook = stage, stage.clock(), webhook
        self._due = [self._start + instant for instant in instants]
        self._messages: list[tuple[float, bytes]] = []
        self.plans: list[tuple[float, int]] = []
        room = {"cpu": 30_000, "memory": 64 << 30, "pods": 110}
        stage.policy()
        stage.provider.add_pool(
            "g", template_node=Node(name="template", labels={}, allocatable=room, capacity=room)
        )
        stage.replace(sleep=self.sleep, sender=self)
        stage.at_checkpoint["reconcile:observed"] = lambda: self.sleep(READING)
        stage.at_checkpoint["reconcile:saved"] = self._note

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """See Sender."""
        if queue == "reconcile":
            heapq.heappush(self._messages, (self._stage.clock() + delay, body))
        else:
            self._stage.send(queue, body, delay)

    def sleep(self, seconds: float) -> None:
        """Let time pass, in which pods arrive."""
        end = self._stage.clock() + seconds
        while self._due and self._due[0] <= end:
            self._advance_to(self._due.pop(0))
            number = 1_000 + len(self._due)
            self._stage.pod(
                f"p-{number}", containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
            )
            pod = self._stage.kube.get("pods", f"p-{number}", "default")
            assert pod is not None
            pod["status"] = {"phase": "Pending", "conditions": [REFUSED]}
            self._stage.kube.update("pods", pod)
            policy = self._stage.runtime.policy(self._stage.name)
            assert policy is not None
            if self._webhook:
                request_reconcile(policy, Cause.WEBHOOK, self._stage.runtime, prompt=True)
        self._advance_to(end)

    def play(self) -> None:
        """Deliver messages until none is left and no pod is to arrive."""
        while self._due or self._messages:
            due = self._messages[0][0] if self._messages else self._due[0]
            self.sleep(max(0.0, min(due, self._due[0] if self._due else due) - self._stage.clock()))
            if self._messages and self._messages[0][0] <= self._stage.clock():
                self.run_pass(decode_reconcile(heapq.heappop(self._messages)[1]))

    def run_pass(self, message: ReconcileMessage) -> None:
        """Run a pass and the operations that it plans."""
        handle(encode(message).decode(), self._stage.runtime)
        self._stage.play()

    def _advance_to(self, instant: float) -> None:
        self._stage.clock.advance(max(0.0, instant - self._stage.clock()))

    def _note(self) -> None:
        operations = self._stage.memory().operations
        for operation in operations:
            if operation.spec.kind is OperationKind.SCALE_UP and operation.status.attempt == 0:
                self.plans.append(
                    (round(self._stage.clock() - self._start, 3), operation.spec.to_size)
                )


@pytest.mark.parametrize(("offset", "latest"), [(0.0, 1.5), (0.3, 1.2), (0.95, 0.8)])
def test_single_refused_pod_is_planned_for_within_a_second_and_a_half(
    stage: OperationHarness, offset: float, latest: float
) -> None:
    """offset: of the pod within the second, to which Kubernetes rounds its time."""
    stage.clock.advance(offset)
    arrivals = Arrivals(stage, [0.0])
    arrivals.play()
    [(at, size)] = arrivals.plans
    assert size == 1
    assert READING <= at <= latest + READING
    # the second one is of the pass after the operation
    assert stage.provider.calls.count("observe") <= 2


def test_burst_of_300_pods_in_three_seconds_is_at_most_two_plans(stage: OperationHarness) -> None:
    arrivals = Arrivals(stage, [number / 100 for number in range(300)])
    arrivals.play()
    sizes = [size for _, size in arrivals.plans]
    assert len(sizes) == 2
    assert sizes[-1] == 10  # nodes of 30 pods
    assert arrivals.plans[0][0] <= 2.0 + 2 * READING
    assert arrivals.plans[1][0] <= 3.0 + 2.0 + 2 * READING


def test_deployment_that_is_created_within_a_second_is_one_plan(stage: OperationHarness) -> None:
    arrivals = Arrivals(stage, [number / 50 for number in range(30)])
    arrivals.play()
    assert [size for _, size in arrivals.plans] == [1]


def test_scheduled_pass_waits_for_arriving_pods_too(stage: OperationHarness) -> None:
    arrivals = Arrivals(stage, [0.0, 0.5], webhook=False)
    arrivals.sleep(0.1)
    arrivals.run_pass(ReconcileMessage(stage.name, at=stage.clock()))
    assert [size for _, size in arrivals.plans] == [1]


def test_pass_does_not_wait_for_pods_of_a_cluster_whose_clock_is_ahead(
    stage: OperationHarness,
) -> None:
    arrivals = Arrivals(stage, [3_600.0], webhook=False)
    arrivals.sleep(3_600.0)
    ahead, stage.clock = stage.clock(), type(stage.clock)(stage.clock() - 3_000.0)
    stage.replace(clock=stage.clock)
    handle(encode(ReconcileMessage(stage.name, Cause.PERSON.value)).decode(), stage.runtime)
    assert stage.clock() < ahead - 2_990.0
    assert arrivals.plans == []
