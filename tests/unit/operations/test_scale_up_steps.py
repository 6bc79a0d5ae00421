from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

from chalicelib.cluster.errors import Forbidden, Unavailable
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.operation import BROKEN, Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import ABANDONED, Failed, InProgress, Outcome, Succeeded
from chalicelib.operations.runner import give_up, run_step
from chalicelib.operations.step_context import OWN
from chalicelib.operations.steps.scale_up import ANNOUNCED, LATE, NOT_NEEDED
from chalicelib.policy.timeouts import PROVISION
from chalicelib.providers.kit import errors
from chalicelib.providers.kit.base import Provider
from infra.emulators.fake_provider import Purchase
from tests.cases import each_row
from tests.unit.operations.harness import START, OperationFixture, grow, make


def test_scale_up_reports_old_and_new_size() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    assert fixture.play(grow(2, 5)) == Succeeded({"from": 2, "to": 5})
    assert fixture.provider.pools["g"].target == 5


def test_scale_up_that_takes_time_is_polled_in_later_messages() -> None:
    fixture = OperationFixture(polls=3)
    fixture.group(2)
    assert isinstance(fixture.play(grow(2, 5)), Succeeded)
    assert fixture.provider.calls == ["scale_up", "poll", "poll", "poll"]
    assert fixture.now == START + 15.0


@each_row("kill_at", [0, 1, 2])
def test_scale_up_killed_after_any_call_never_buys_twice(kill_at: int) -> None:
    fixture = OperationFixture(polls=2, kill_at=kill_at)
    fixture.group(2)
    assert isinstance(fixture.play(grow(2, 5)), Succeeded)
    assert fixture.provider.purchases == [Purchase("grow-1", "g", 3)]


def test_scale_up_with_a_lost_answer_is_checked_and_never_buys_twice() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.provider.fail_next("scale_up", errors.Transient("connection reset"), late=True)
    assert isinstance(fixture.play(grow(2, 5)), Succeeded)
    assert fixture.provider.purchases == [Purchase("grow-1", "g", 3)]


@each_row(
    "error", [errors.Throttled("slow down"), errors.Transient("503"), errors.Conflict("changing")]
)
def test_scale_up_temporary_error_is_retried_later(error: errors.ProviderError) -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.provider.fail_next("scale_up", error, times=2)
    assert isinstance(fixture.play(grow(2, 5)), Succeeded)
    assert 15.0 <= fixture.now - START <= 18.75


def test_scale_up_observes_the_vendors_retry_delay() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.provider.fail_next("scale_up", errors.Throttled("slow down", retry_after=42.0))
    fixture.play(grow(2, 5))
    assert 42.0 <= fixture.now - START <= 53.0


# Waiting here would keep the pods from the next group, or cannot help.
@each_row(
    "error",
    [
        errors.OutOfStock("no stock", code="STOCK"),
        errors.QuotaExceeded("limit", code="Q"),
        errors.Unauthorized("401"),
        errors.NotFound("no group"),
        errors.InvalidRequest("bad"),
        errors.Unknown("?"),
    ],
)
def test_scale_up_permanent_error_fails_at_once_with_its_class(error: errors.ProviderError) -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.provider.fail_next("scale_up", error)
    assert fixture.play(grow(2, 5)) == Failed(type(error).__name__, error.message, code=error.code)
    assert fixture.now == START


def test_scale_up_retries_are_bounded() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.provider.fail_next("scale_up", errors.Throttled("slow down"), times=100)
    outcome = fixture.play(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Throttled"
    assert len(fixture.provider.calls) == 9


def test_scale_up_counts_only_consecutive_errors() -> None:
    fixture = OperationFixture(polls=12)
    fixture.group(2)
    for _ in range(11):
        fixture.provider.fail_next("poll", errors.Transient("503"))
        fixture.provider.let_pass("poll")
    assert isinstance(fixture.play(grow(2, 5)), Succeeded)


def test_scale_up_deadline_names_the_step_and_the_last_error() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.provider.fail_next(
        "scale_up", errors.Throttled("slow down", retry_after=200.0), times=100
    )
    outcome = fixture.play(grow(2, 5, deadline=START + 300.0))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "DeadlineExceeded"
    assert outcome.message.endswith("at step request; last: Throttled: slow down")


def test_scale_up_target_moved_by_others_is_a_conflict_and_stays() -> None:
    fixture = OperationFixture()
    fixture.group(3)
    outcome = fixture.play(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert fixture.provider.pools["g"].target == 3


def test_decrease_target_touches_no_running_machine() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.play(grow(2, 5))
    assert fixture.play(make(OperationKind.DECREASE_TARGET, from_size=5, to_size=3)) == Succeeded(
        {"to": 3}
    )
    refused = fixture.play(make(OperationKind.DECREASE_TARGET, from_size=3, to_size=1))
    assert isinstance(refused, Failed)
    assert fixture.provider.pools["g"].target == 3


def test_delete_instances_deletes_unregistered_machines() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.play(grow(2, 3))
    assert isinstance(
        fixture.play(
            make(
                OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("", "memory://g-3", "g-3"),)
            )
        ),
        Succeeded,
    )
    assert fixture.provider.deleted == ["g-3"]


def test_delete_instances_spares_a_machine_that_joined_meanwhile() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    outcome = fixture.play(
        make(OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("g-2", "memory://g-2", "g-2"),))
    )
    assert isinstance(outcome, Failed)
    assert outcome.message == "instance memory://g-2 has joined as node g-2 meanwhile"
    assert fixture.provider.deleted == []


@each_row("name", ["g-1", "m-7"])
def test_delete_instances_spares_all_where_a_node_has_the_name_of_one(name: str) -> None:
    fixture = OperationFixture()
    fixture.group(2)
    targets = (
        RemovalTarget("", "memory://a", "gone"),
        RemovalTarget("", "pending-machine-ns_m", f"ns/{name}"),
    )
    outcome = fixture.play(make(OperationKind.DELETE_INSTANCES, targets=targets))
    assert isinstance(outcome, Failed if name == "g-1" else Succeeded)
    assert fixture.provider.calls == ([] if name == "g-1" else ["delete_nodes"])


def test_delete_instances_may_go_below_the_minimum() -> None:
    fixture = OperationFixture()
    fixture.group(1, least=3)
    fixture.provider.spoil("g", "dead")
    fixture.play(grow(1, 3))
    fixture.provider.boot()
    assert isinstance(
        fixture.play(
            make(
                OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("", "memory://g-2", "g-2"),)
            )
        ),
        Succeeded,
    )
    assert (fixture.provider.deleted, fixture.provider.pools["g"].target) == (["g-2"], 2)


def test_delete_instances_killed_or_repeated_deletes_once() -> None:
    for kill_at in (0, 1):
        fixture = OperationFixture(polls=1, kill_at=kill_at)
        fixture.group(2)
        fixture.play(grow(2, 4))
        assert isinstance(
            fixture.play(
                make(
                    OperationKind.DELETE_INSTANCES,
                    targets=(RemovalTarget("", "memory://g-3", "g-3"),),
                )
            ),
            Succeeded,
        )
        assert (fixture.provider.deleted, fixture.provider.pools["g"].target) == (["g-3"], 3)


def test_decrease_target_removes_never_created_machines() -> None:
    fixture = OperationFixture()
    fixture.group(1)
    fixture.provider.spoil("g", "phantom", times=2)
    fixture.play(grow(1, 4))
    assert sorted(fixture.provider.pools["g"].machines) == ["g-1", "g-4"]
    assert fixture.play(make(OperationKind.DECREASE_TARGET, from_size=4, to_size=2)) == Succeeded(
        {"to": 2}
    )
    assert sorted(fixture.provider.pools["g"].machines) == ["g-1", "g-4"]


def test_scale_up_state_is_returned_to_every_provider() -> None:
    assert PROVISION.startswith(OWN)
    fixture = OperationFixture(polls=3)
    fixture.group(1)
    operation = fixture.play_until(grow(1, 2, data={PROVISION: "2700.0"}), "poll")
    assert operation.status.data[PROVISION] == "2700.0"


class _Announcing:
    """A provider that first announces and then orders; the arguments of grow decide."""

    def __init__(self) -> None:
        self.ordered: list[str] = []

    def scale_up(self, operation: Operation) -> Outcome:
        if "lot" not in operation.status.data:
            return InProgress(0.0, ANNOUNCED, {"lot": "0"})
        self.ordered.append(operation.spec.id)
        return InProgress(5.0, "create", {"made": "0"})

    def poll(self, operation: Operation) -> Outcome:
        return Succeeded({"made": operation.status.data["made"]})


def _after(operation: Operation, outcome: Outcome) -> Operation:
    assert isinstance(outcome, InProgress)
    return operation.with_status(step=outcome.step, data=outcome.data)


def test_scale_up_only_announced_is_cancelled_and_ordered_one_is_completed() -> None:
    provider = _Announcing()
    fixture = OperationFixture()
    world = dataclasses.replace(fixture.world(), provider=lambda: cast(Provider, provider))
    announced = _after(grow(0, 1), run_step(grow(0, 1), world, START))
    called_off = give_up(announced, world, START, "SwitchedOff", "the mode is off")
    assert (called_off, provider.ordered) == (Failed("SwitchedOff", "the mode is off"), [])

    ordered = _after(announced, run_step(announced, world, START))
    assert provider.ordered == ["grow-1"]
    assert give_up(ordered, world, START, "SwitchedOff", "the mode is off") == Succeeded(
        {"made": "0"}
    )


# -- growth judged again

POD = "default/web"
AFTER_A_BREAK: dict[str, Any] = {"attempt": 2, "data": {BROKEN: "2"}}


def judged(fixture: OperationFixture, operation: Operation) -> Outcome:
    _, outcome = fixture.step(operation)
    return outcome


def is_given_up(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and (outcome.error_class, outcome.code) == (
        ABANDONED,
        NOT_NEEDED,
    )


def is_gone(fixture: OperationFixture) -> None:
    del fixture


def runs_elsewhere(fixture: OperationFixture) -> None:
    fixture.cluster.add_pod(POD, "g-1")


def is_being_deleted(fixture: OperationFixture) -> None:
    fixture.cluster.add_pod(POD, "", phase="Pending", deleted=fixture.now + 30.0)


def has_finished(fixture: OperationFixture) -> None:
    fixture.cluster.add_pod(POD, "", phase="Failed")


def waits(fixture: OperationFixture) -> None:
    fixture.cluster.add_pod(POD, "", phase="Pending")


def is_on_a_node_that_is_removed(fixture: OperationFixture) -> None:
    fixture.cluster.add_pod(POD, "g-1")
    fixture.cluster.taint(
        "g-1", Taint(TO_BE_DELETED, "NoSchedule", "1"), operation="remove-1", cordon=True
    )


@each_row("pod", [is_gone, runs_elsewhere, is_being_deleted, has_finished])
def test_scale_up_after_a_break_buys_nothing_for_a_pod_that_no_longer_waits(
    pod: Callable[[OperationFixture], None],
) -> None:
    fixture = OperationFixture()
    fixture.group(2)
    pod(fixture)
    outcome = judged(fixture, grow(2, 5, pods=(POD,), **AFTER_A_BREAK))
    assert is_given_up(outcome)
    assert "scale_up" not in fixture.provider.calls


@each_row("pod", [waits, is_on_a_node_that_is_removed])
def test_scale_up_after_a_break_is_requested_while_one_of_its_pods_waits(
    pod: Callable[[OperationFixture], None],
) -> None:
    fixture = OperationFixture()
    fixture.group(2)
    pod(fixture)
    assert isinstance(
        judged(fixture, grow(2, 5, pods=("default/gone", POD), **AFTER_A_BREAK)), Succeeded
    )


def test_scale_up_after_a_break_follows_what_the_vendor_has_received() -> None:
    fixture = OperationFixture(polls=1)
    fixture.group(2)
    first = grow(2, 5, pods=(POD,))
    fixture.provider.scale_up(first)
    assert isinstance(judged(fixture, grow(2, 5, pods=(POD,), **AFTER_A_BREAK)), InProgress)
    assert fixture.provider.purchases == [Purchase("grow-1", "g", 3)]


@each_row("seconds", [LATE, LATE + 1.0])
def test_scale_up_that_begins_late_asks_whether_its_pods_wait(seconds: float) -> None:
    fixture = OperationFixture(now=START + seconds)
    fixture.group(2)
    assert is_given_up(judged(fixture, grow(2, 5, pods=(POD,)))) is (seconds > LATE)


def test_scale_up_for_no_pods_is_left_to_the_next_pass_after_a_break_only() -> None:
    fixture = OperationFixture(now=START + 10 * LATE)
    fixture.group(2)
    assert is_given_up(judged(fixture, grow(2, 5, **AFTER_A_BREAK)))
    assert isinstance(judged(fixture, grow(2, 5)), Succeeded)


def test_scale_up_of_a_replacement_is_requested_after_a_break_too() -> None:
    fixture = OperationFixture(now=START + 10 * LATE)
    fixture.group(2)
    assert isinstance(judged(fixture, grow(2, 3, replacement="r1", **AFTER_A_BREAK)), Succeeded)
    assert fixture.provider.purchases == [Purchase("grow-1", "g", 1)]


def test_scale_up_whose_pods_may_not_be_read_is_requested() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    fixture.cluster.fail_next("pod", Forbidden("no right"))
    assert isinstance(judged(fixture, grow(2, 5, pods=(POD,), **AFTER_A_BREAK)), Succeeded)


def test_scale_up_whose_pods_cannot_be_read_now_asks_again_later() -> None:
    fixture = OperationFixture()
    fixture.group(2)
    waits(fixture)
    fixture.cluster.fail_next("pod", Unavailable("no answer"))
    operation = grow(2, 5, pods=(POD,), **AFTER_A_BREAK)
    later, outcome = fixture.step(operation)
    assert isinstance(outcome, InProgress)
    assert "scale_up" not in fixture.provider.calls
    assert isinstance(judged(fixture, later), Succeeded)
