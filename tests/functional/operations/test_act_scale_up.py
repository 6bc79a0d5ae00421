from __future__ import annotations

from typing import Any, cast

from chalicelib.model.errors import BadInput
from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.net.time_limit import time_left
from chalicelib.operations.runner import REPORTED, STEP, STEPS_WITHIN
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.providers.kit import errors
from chalicelib.providers.kit.base import Provider
from infra.emulators.fake_provider import InMemoryProvider
from tests.functional.operations.harness import POLICY, START, OperationHarness

TWO_PROVIDERS = POLICY.replace(
    "clusterapi: {{}}",
    (
        "clusterapi: {{}}\n    exoscale: {{zone: ch-gva-2, credentialsSecret: "
        "outscaler/{name}/exoscale}}"
    ),
)


def test_scale_up_is_bought_and_recorded_and_requests_a_new_plan(stage: OperationHarness) -> None:
    stage.group(2)
    stage.pod("waiting")
    operation = stage.planned(
        OperationKind.SCALE_UP,
        from_size=2,
        to_size=4,
        pods=("default/waiting", "default/gone-by-now"),
    )
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    memory = stage.memory()
    request = memory.groups["g"].request
    assert request is not None
    assert (request.increase, request.since, request.expected_at) == (2, START, START + 900.0)
    assert (memory.groups["g"].last_add, memory.last_scale_up, memory.groups["g"].target) == (
        START,
        START,
        4,
    )
    assert memory.operations == ()
    assert [wake["reason"] for wake in stage.wakes] == ["operation"]


def test_scale_up_opens_its_own_provider_and_no_other(stage: OperationHarness) -> None:
    text = TWO_PROVIDERS.format(name=stage.name, mode="active")
    current = stage.store.policies.current(stage.name)
    assert current is not None
    stage.store.policies.put(stage.name, text, "active", current.version)
    opened: list[tuple[str, ...]] = []

    def opening(policy: Policy, *_: object) -> tuple[InMemoryProvider, ...]:
        opened.append(tuple(policy.providers))
        if "exoscale" in policy.providers:
            raise BadInput("spec.providers.exoscale.endpoint", "is not permitted", "remove it")
        return (stage.provider,)

    stage.replace(providers=opening)
    stage.group(2)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert set(opened) == {("clusterapi",)}


def test_second_scale_up_is_added_to_the_open_request(stage: OperationHarness) -> None:
    stage.group(2)
    stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    stage.play()
    stage.clock.advance(60.0)
    stage.planned(OperationKind.SCALE_UP, id="grow-2", from_size=4, to_size=5)
    stage.play()
    request = stage.memory().groups["g"].request
    assert request is not None
    assert (request.increase, request.since, request.expected_at) == (
        3,
        START + 60.0,
        START + 960.0,
    )


def test_scale_up_is_reported_in_journal_events_and_metrics(stage: OperationHarness) -> None:
    stage.group(2)
    stage.pod("waiting")
    stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4, pods=("default/waiting",))
    stage.play()
    assert stage.events("TriggeredScaleUp") == [
        ("waiting", "pod triggered scale-up: [{g 2->4 (max: 10)}]")
    ]
    entry = stage.store.journal.recent(stage.name)[0]
    assert (entry.kind, entry.operation, entry.group, entry.facts["to"]) == (
        "operation",
        "grow-1",
        "g",
        4,
    )
    assert stage.lines[0]["cluster_autoscaler_scaled_up_nodes_total"] == 2
    assert stage.lines[0]["node_group"] == "g"


def test_failed_scale_up_backs_off_by_error_class_and_requests_a_plan_at_once(
    stage: OperationHarness,
) -> None:
    stage.group(2)
    stage.provider.fail_next("scale_up", errors.OutOfStock("none left", code="ZONE_STOCK"))
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    stage.play()
    ended = stage.now(operation)
    assert (ended.status.state, ended.status.error_class, ended.status.error_code) == (
        OperationState.FAILED,
        "OutOfStock",
        "ZONE_STOCK",
    )
    backoff = stage.memory().groups["g"].backoff
    assert backoff is not None
    assert (backoff.cls, backoff.code, backoff.until) == ("OutOfStock", "ZONE_STOCK", START + 300.0)
    assert stage.memory().last_scale_up == 0.0
    assert len(stage.wakes) == 1


def test_conflict_does_not_back_off_the_group(stage: OperationHarness) -> None:
    stage.group(3)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    stage.play()
    assert stage.now(operation).status.error_class == "Conflict"
    assert "g" not in stage.memory().groups
    assert stage.wakes == []


def test_operations_that_end_together_request_one_reconcile(stage: OperationHarness) -> None:
    stage.group(2)
    stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=3)
    stage.planned(OperationKind.SCALE_UP, id="grow-2", from_size=3, to_size=4)
    stage.play()
    assert len(stage.wakes) == 1


def test_asynchronous_scale_up_is_polled_by_message(stage: OperationHarness) -> None:
    stage.group(2)
    stage.provider.polls = 3
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    stage.deliver()
    waiting = stage.now(operation)
    assert (waiting.status.state, waiting.status.step, waiting.status.due_at) == (
        OperationState.WAITING,
        "poll",
        START + 5.0,
    )
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert len(stage.invocations) == 4


def test_duplicate_message_of_a_finished_step_does_nothing(stage: OperationHarness) -> None:
    stage.group(2)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    stage.deliver_later(operation.spec.id)
    stage.play()
    assert stage.provider.calls == ["scale_up"]


def test_early_message_is_requeued_until_due(stage: OperationHarness) -> None:
    stage.group(2)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4, due_at=START + 30.0)
    stage.deliver()
    assert stage.provider.calls == []
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert stage.clock() == START + 30.0


def test_delay_above_the_queue_maximum_is_split(stage: OperationHarness) -> None:
    stage.group(2)
    operation = stage.planned(
        OperationKind.SCALE_UP,
        from_size=2,
        to_size=4,
        due_at=START + 2000.0,
        deadline=START + 9000.0,
    )
    stage.deliver()
    assert stage.sent[0][0] - stage.clock() == 900.0
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED


def test_duplicate_messages_do_not_multiply(stage: OperationHarness) -> None:
    stage.group(2)
    stage.provider.polls = 1
    stage.provider.fail_next("poll", errors.Throttled("slow down", retry_after=600.0))
    operation = stage.planned(
        OperationKind.SCALE_UP, from_size=2, to_size=4, deadline=START + 5000.0
    )
    stage.deliver()
    stage.deliver()
    for _ in range(5):
        stage.deliver_later(operation.spec.id)
        stage.deliver()
    assert len(stage.sent) == 1


def test_provider_missing_in_the_policy_fails_the_operation_as_invalid_request(
    stage: OperationHarness,
) -> None:
    stage.group(2)
    stage.providers = list
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    stage.play()
    assert (
        stage.now(operation).status.outcome == "provider clusterapi is not in the policy any more"
    )
    assert stage.now(operation).status.error_class == "InvalidRequest"


def test_events_name_the_maximum_at_planning_time(stage: OperationHarness) -> None:
    stage.group(2)
    stage.pod("waiting")
    stage.planned(
        OperationKind.SCALE_UP,
        from_size=2,
        to_size=4,
        pods=("default/waiting",),
        data={"own.largest": "7"},
    )
    stage.play()
    assert stage.events("TriggeredScaleUp") == [
        ("waiting", "pod triggered scale-up: [{g 2->4 (max: 7)}]")
    ]


class _Timed:
    """Passes everything on, and notes the time that requests have left."""

    def __init__(self, provider: Provider, seen: list[float]) -> None:
        self._provider, self._seen = provider, seen

    def __getattr__(self, name: str) -> Any:
        self._seen.append(time_left())
        return getattr(self._provider, name)


def test_requests_of_a_step_leave_time_to_record_its_outcome(stage: OperationHarness) -> None:
    seen: list[float] = []
    stage.providers = lambda: [cast(Provider, _Timed(stage.provider, seen))]
    stage.group(2)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert seen
    assert max(seen) <= STEP
    assert STEPS_WITHIN + STEP + REPORTED <= 55.0  # of the 60 seconds of an invocation
