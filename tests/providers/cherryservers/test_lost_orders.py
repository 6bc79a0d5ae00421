"""Orders, answers and lists that are lost, late or repeated: nothing is bought twice."""

from __future__ import annotations

import dataclasses

import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.errors import Conflict, Throttled, Transient
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import Answer, scripted
from tests.cases import each_row
from tests.providers.cherryservers.emulated import (
    CLUSTER,
    POOL,
    EmulatedCloud,
    claimed,
    continued,
    drive,
    finish,
    grow,
    operation,
    refusal,
)
from tests.providers.emulated import RecordedLimits

LOST, DROPPED = VendorFault.LOST_ANSWER, VendorFault.HANGS_UP
"""An order that is carried out and its answer is lost, and one that never arrives."""


@pytest.fixture(autouse=True)
def orders_in_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test names the order that fails and what was sent by then, which concurrent orders would
    leave to chance."""
    monkeypatch.setattr("chalicelib.providers.cherryservers.api.THREADS", 1)


def _announced(cloud: EmulatedCloud, from_size: int, to_size: int) -> Operation:
    """Returns a scale-up that may order now."""
    asked = claimed(grow(from_size, to_size))
    return continued(cloud, asked, cloud.build().scale_up(asked))


@each_row("lag", [3.0, 10.0, 30.0, 50.0])
@each_row("fates", [[LOST], [None, LOST], [None, None, LOST, LOST]])
def test_cherry_order_with_lost_answer_and_late_list_is_sent_once(
    lag: float, fates: list[VendorFault | None]
) -> None:
    cloud = EmulatedCloud(1, lag=lag)
    cloud.server.reply("POST", *fates)
    assert isinstance(drive(cloud, grow(1, 5)), Succeeded)
    assert len(cloud.posts()) == 4
    assert len(cloud.alive()) == 5


def test_cherry_order_that_never_arrived_is_repeated_after_a_minute() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", DROPPED)
    begun = cloud.now()
    assert isinstance(drive(cloud, grow(0, 1)), Succeeded)
    assert len(cloud.posts()) == 2
    assert cloud.now() - begun >= 60
    assert len(cloud.alive()) == 1


def test_cherry_order_is_sent_at_most_four_times() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", *[DROPPED] * 9)
    begun = cloud.now()
    outcome = drive(cloud, grow(0, 1))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Transient"
    assert len(cloud.posts()) == 4
    assert cloud.now() - begun >= 4 * 60


@each_row("fates", [[DROPPED] * 3, [DROPPED, DROPPED, LOST], [None, DROPPED, DROPPED, DROPPED]])
def test_cherry_order_survives_consecutive_errors(fates: list[VendorFault | None]) -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", *fates)
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.alive()) == 2
    assert len({cloud.all[number].hostname for number in cloud.alive()}) == 2


def test_cherry_order_without_an_answer_is_raised_and_stops_further_orders() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", LOST)
    announced = _announced(cloud, 0, 3)
    with pytest.raises(Transient):
        cloud.build().poll(announced)
    assert len(cloud.posts()) == 1


def test_cherry_function_after_a_crash_during_orders_lists_before_ordering() -> None:
    cloud = EmulatedCloud(0, lag=30.0)
    announced = _announced(cloud, 0, 4)
    cloud.build().poll(announced)  # bought, and dead before it was recorded
    assert len(cloud.posts()) == 4
    current = claimed(announced)
    assert isinstance(finish(cloud, current, cloud.build().poll(current)), Succeeded)
    assert len(cloud.posts()) == 4
    assert len(cloud.alive()) == 4


def test_cherry_two_concurrent_functions_end_with_the_requested_size() -> None:
    """Claims prevent this case. If they fail, the younger of two machines
    with one name is deleted."""
    cloud = EmulatedCloud(0, lag=3.0)
    announced = _announced(cloud, 0, 2)
    first, second = cloud.build().poll(announced), cloud.build().poll(announced)
    assert len(cloud.alive()) == 4
    for reported in (first, second):
        current = continued(cloud, announced, reported)
        assert isinstance(finish(cloud, current, cloud.build().poll(current)), Succeeded)
    assert cloud.alive() == [1000, 1001]
    assert len({cloud.all[number].hostname for number in cloud.alive()}) == 2


def test_cherry_late_duplicate_machine_is_deleted_during_its_deployment() -> None:
    cloud = EmulatedCloud(0)
    announced = _announced(cloud, 0, 1)
    cloud.cloud.lag = 30.0
    outcome = cloud.build().poll(announced)
    cloud.all[1001] = dataclasses.replace(cloud.all[1000], id=1001)
    assert isinstance(finish(cloud, announced, outcome), Succeeded)
    assert cloud.alive() == [1000]


def test_cherry_running_duplicate_machine_is_untouched() -> None:
    cloud = EmulatedCloud(0)
    asked = grow(0, 2)
    drive(cloud, asked)
    twin = cloud.all[1000]
    cloud.all[1002] = dataclasses.replace(twin, id=1002, state="active", status="deployed")
    assert isinstance(cloud.build().scale_up(claimed(asked)), Succeeded)
    assert len(cloud.all) == 3


def test_cherry_throttling_before_any_order_is_raised_and_retried_later() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", refusal(429, Retry_After="2"))
    announced = _announced(cloud, 0, 2)
    with pytest.raises(Throttled):
        cloud.build().poll(announced)
    assert len(cloud.posts()) == 1
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.alive()) == 2


def test_cherry_first_order_delayed_by_our_rate_limit_was_not_sent() -> None:
    cloud = EmulatedCloud(0)
    announced = _announced(cloud, 0, 2)
    # for the list, the plan, the order
    cloud._pacer = RecordedLimits([0.0, 0.0, 70.0])  # type: ignore[assignment]
    outcome = cloud.build().poll(announced)
    assert isinstance(outcome, InProgress)
    assert (outcome.after, outcome.step) == (70.0, "announce")
    assert cloud.posts() == []
    cloud.build().poll(continued(cloud, announced, outcome))
    assert len(cloud.alive()) == 2


def test_cherry_throttling_between_orders_is_a_pause_and_not_a_failure() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", None, None, refusal(429, Retry_After="7"))
    announced = _announced(cloud, 0, 5)
    outcome = cloud.build().poll(announced)
    assert isinstance(outcome, InProgress)
    assert outcome.after == 7.0
    assert len(cloud.posts()) == 3
    outcome = cloud.build().poll(continued(cloud, announced, outcome))
    assert len(cloud.posts()) == 6
    assert len(cloud.alive()) == 5


def test_cherry_lasting_throttling_causes_no_failure_and_no_second_machine() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", *[refusal(429)] * 6)
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.alive()) == 2
    assert len(cloud.posts()) == 8


@each_row("requests", ["GET /v1/projects", "GET /v1/plans"])
@each_row("error", [[refusal(429, Retry_After="7")], [refusal(500)] * 3])
def test_cherry_temporarily_unreachable_vendor_uses_up_no_attempt(
    requests: str, error: list[Answer]
) -> None:
    cloud = EmulatedCloud(0)
    announced = _announced(cloud, 0, 1)
    cloud.server.reply(requests, *error, *error)
    for _ in range(2):
        outcome = cloud.build().poll(announced)
        assert isinstance(outcome, InProgress)
        announced = continued(cloud, announced, outcome)
    cloud.build().poll(announced)
    assert len(cloud.posts()) == 1


def test_cherry_permanently_unreachable_vendor_is_finally_raised() -> None:
    cloud = EmulatedCloud(0)
    announced = _announced(cloud, 0, 1)
    cloud.fail("GET /v1/projects", times=99)

    def go_on(current: Operation) -> None:
        for _ in range(20):
            current = continued(cloud, current, cloud.build().poll(current))

    with pytest.raises(Transient):
        go_on(announced)


def test_cherry_conflict_at_the_vendor_is_raised() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", refusal(409))
    asked = claimed(grow(0, 1))
    with pytest.raises(Conflict):
        cloud.build().poll(continued(cloud, asked, cloud.build().scale_up(asked)))


def test_cherry_list_that_never_shows_the_machines_ends_the_scale_up() -> None:
    cloud = EmulatedCloud(0, lag=100_000.0)
    outcome = drive(cloud, grow(0, 2))
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["unlisted"] == 2
    assert len(cloud.posts()) == 2


def test_cherry_lost_tags_are_written_again() -> None:
    cloud = EmulatedCloud(0)
    announced = _announced(cloud, 0, 2)
    bought = continued(cloud, announced, cloud.build().poll(announced))
    cloud.change(1000, tags={"note": "mine"})
    cloud.build().poll(bought)
    assert cloud.all[1000].tags == {
        "note": "mine",
        "k8s-cluster": CLUSTER,
        "k8s-nodepool": POOL,
        "outscaler-operation": announced.spec.id,
    }
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.posts()) == 2


def test_cherry_renamed_machine_is_found_by_its_operation() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", None, LOST)
    announced = _announced(cloud, 0, 2)
    waiting = cloud.build().poll(announced)
    cloud.change(1001, hostname="renamed")
    assert isinstance(cloud.build().poll(continued(cloud, announced, waiting)), Succeeded)
    assert len(cloud.posts()) == 2


def test_cherry_renamed_machine_does_not_replace_a_confirmed_one() -> None:
    cloud = EmulatedCloud(0)
    cloud.server.reply("POST", None, LOST)
    announced = _announced(cloud, 0, 2)
    waiting = cloud.build().poll(announced)
    cloud.change(1001, hostname="renamed")
    cloud.all[1000].listed = float("inf")
    outcome = finish(cloud, announced, waiting)
    assert isinstance(outcome, Succeeded)
    assert len(cloud.posts()) == 2


@each_row("kind", list(OperationKind))
@each_row(
    "data",
    [
        {"growth": "[1"},
        {"growth": '{"lot":[99,-1],"made":{"7":1},"looks":-5,"tries":-1}'},
        {"growth": ""},
        {"removal": '{"gone":["x"]}', "names": "7"},
        {"removal": "\ud800", "growth": "\ud800"},
        {"something": "else"},
    ],
)
def test_cherry_scale_up_survives_invalid_operation_data(
    kind: OperationKind, data: dict[str, str]
) -> None:
    cloud = EmulatedCloud(2)
    for asked in (
        operation(kind, POOL, 2, 3),
        operation(kind, POOL, -1, 10**9),
        operation(kind, POOL, 2, 1),
    ):
        outcome = cloud.build().poll(asked.with_status(data=data, attempt=7))
        assert isinstance(outcome, Succeeded | InProgress | Failed)
    assert cloud.posts() == []


def test_cherry_unreadable_data_count_as_sent_orders() -> None:
    cloud = EmulatedCloud(0)
    asked = claimed(grow(0, 2)).with_status(data={"growth": "[1"})
    current, outcome = asked, cloud.build().poll(asked)
    waits = []
    while isinstance(outcome, InProgress):
        waits.append(outcome.after)
        current = continued(cloud, current, outcome)
        outcome = cloud.build().poll(current)
    assert isinstance(outcome, Succeeded)
    assert sum(waits) >= 60
    assert len(cloud.posts()) == 2


def test_cherry_machine_renamed_after_its_purchase_is_found_at_once() -> None:
    cloud = EmulatedCloud(0)
    announced = _announced(cloud, 0, 2)
    bought = continued(cloud, announced, cloud.build().poll(announced))
    cloud.change(1000, hostname="renamed")
    assert cloud.build().poll(bought) == Succeeded({"from": 0, "to": 2, "created": 2, "asked": 2})


@each_row(("error", "cls"), [(refusal(403), "Unauthorized"), (scripted(200, {}), "Unknown")])
def test_cherry_machines_bought_before_a_refusal_are_awaited_in_the_list(
    error: Answer, cls: str
) -> None:
    """If the scale-up ended before the list shows what it bought, the pool would look smaller than
    it is, and more would be bought."""
    cloud = EmulatedCloud(0, lag=50.0)
    config = f"0:60:{POOL}"
    asked = claimed(grow(0, 30))
    first = continued(cloud, asked, cloud.build(config).scale_up(asked))
    second = continued(cloud, first, cloud.build(config).poll(first))
    cloud.server.reply("GET /v1/plans", error)
    outcome = finish(cloud, second, cloud.build(config).poll(second), config)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.facts["created"]) == (cls, 20)
    assert cloud.build(config).observe([]).groups[0].target == 20
    assert len(cloud.posts()) == 20


def test_cherry_machine_without_its_name_and_tags_is_reported_and_untouched() -> None:
    """Its number alone may be an error of the vendor, and does not justify
    writing tags on another server."""
    cloud = EmulatedCloud(0)
    announced = _announced(cloud, 0, 2)
    outcome = cloud.build().poll(announced)
    cloud.change(1000, hostname="renamed", tags={})
    outcome = finish(cloud, announced, outcome)
    assert isinstance(outcome, Failed)
    assert "servers 1000 do not keep their tags" in outcome.message
    assert cloud.changes() == cloud.posts()


def test_cherry_refused_tags_end_the_scale_up_only_after_all_lookups() -> None:
    cloud = EmulatedCloud(0)
    asked = claimed(grow(0, 3))
    cloud.server.reply("POST", None, None, LOST)
    announced = continued(cloud, asked, cloud.build().scale_up(asked))
    outcome = cloud.build().poll(announced)
    cloud.change(1000, tags={})
    cloud.server.reply("PUT", refusal(400, "no tags"), refusal(403), *[refusal(400)] * 9)
    outcome = finish(cloud, announced, outcome)
    assert isinstance(outcome, Failed)
    assert "servers 1000 do not keep their tags" in outcome.message
    assert outcome.facts["created"] == 3


def test_cherry_undeletable_duplicate_machine_does_not_end_the_scale_up() -> None:
    cloud = EmulatedCloud(0)
    announced = _announced(cloud, 0, 1)
    bought = continued(cloud, announced, cloud.build().poll(announced))
    cloud.all[1001] = dataclasses.replace(cloud.all[1000], id=1001)
    cloud.fail("DELETE", 400)
    assert isinstance(cloud.build().poll(bought), Succeeded)
    assert sorted(cloud.all) == [1000, 1001]
    assert cloud.build().observe([]).groups[0].target == 2
