"""Orders, answers and lists that get lost, late or repeated: nothing is bought twice (cherryservers.md §4)."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import (
    Conflict,
    InvalidRequest,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
)
from tests.cases import each_row
from tests.unit.providers.cherryservers.fake_api import (
    CLUSTER,
    DROPPED,
    LATE,
    LOST,
    POOL,
    FakeCloud,
    claimed,
    continued,
    drive,
    grow,
    operation,
    provider,
)


def world(size: int = 0, **more: int) -> FakeCloud:
    cloud = FakeCloud(**more)
    cloud.add(size)
    return cloud


def test_CHERRY_8_an_order_whose_answer_is_lost_is_not_repeated() -> None:
    cloud = world(1)
    cloud.fates = [LOST]
    outcome = drive(cloud, grow(1, 2))
    assert isinstance(outcome, Succeeded)
    assert len(cloud.posts()) == 1
    assert len(cloud.alive()) == 2


@each_row("lag", [1, 2, 3, 4])
@each_row("fates", [[LOST], ["", LOST], ["", "", LOST, LOST]])
def test_CHERRY_8_nor_where_the_list_shows_it_late(lag: int, fates: list[str | ProviderError]) -> None:
    cloud = world(1, lag=lag)
    cloud.fates = fates
    assert isinstance(drive(cloud, grow(1, 5)), Succeeded)
    assert len(cloud.posts()) == 4
    assert len(cloud.alive()) == 5


def test_an_order_that_never_arrived_is_sent_once_more_after_a_minute() -> None:
    cloud = world(0)
    cloud.fates = [DROPPED]
    begun = cloud.time
    assert isinstance(drive(cloud, grow(0, 1)), Succeeded)
    assert len(cloud.posts()) == 2
    assert cloud.time - begun >= 60
    assert len(cloud.alive()) == 1


def test_and_a_third_and_a_fourth_time_and_not_a_fifth() -> None:
    cloud = world(0)
    cloud.fates = [DROPPED] * 9
    begun = cloud.time
    outcome = drive(cloud, grow(0, 1))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Transient"
    assert len(cloud.posts()) == 4
    assert cloud.time - begun >= 4 * 60


@each_row("fates", [[DROPPED] * 3, [DROPPED, DROPPED, LOST], ["", DROPPED, DROPPED, DROPPED]])
def test_errors_in_a_row_for_one_order_are_outlived(fates: list[str | ProviderError]) -> None:
    cloud = world(0)
    cloud.fates = fates
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.alive()) == 2
    assert len({cloud.all[number].hostname for number in cloud.alive()}) == 2


def test_an_order_without_an_answer_is_raised_and_nothing_else_is_sent() -> None:
    cloud = world(0)
    cloud.fates = [LOST]
    asked = claimed(grow(0, 3))
    announced = continued(asked, provider(cloud).grow(asked))
    with pytest.raises(Transient):
        provider(cloud).poll(announced)
    assert len(cloud.posts()) == 1


def test_a_function_that_died_with_the_orders_in_hand_is_followed_by_a_look_first() -> None:
    cloud = world(0, lag=3)
    asked = claimed(grow(0, 4))
    announced = continued(asked, provider(cloud).grow(asked))
    provider(cloud).poll(announced)  # bought, and dead before it was written down
    assert len(cloud.posts()) == 4
    current = claimed(announced)
    for _ in range(10):
        outcome = provider(cloud).poll(current)
        if isinstance(outcome, Succeeded):
            break
        current = continued(current, outcome)
    assert isinstance(outcome, Succeeded)
    assert len(cloud.posts()) == 4
    assert len(cloud.alive()) == 4


def test_two_functions_at_once_end_with_what_was_asked_for() -> None:
    """Claims keep it from happening. Should they fail, the younger of two machines of one name goes back."""
    cloud = world(0, lag=1)
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).grow(asked))
    first, second = provider(cloud).poll(announced), provider(cloud).poll(announced)
    assert len(cloud.alive()) == 4
    for told in (first, second):
        current = continued(announced, told)
        outcome = provider(cloud).poll(current)
        while isinstance(outcome, InProgress):
            current = continued(current, outcome)
            outcome = provider(cloud).poll(current)
        assert isinstance(outcome, Succeeded)
    assert cloud.alive() == [1000, 1001]
    assert len({cloud.all[number].hostname for number in cloud.alive()}) == 2


def test_a_machine_that_came_late_and_twice_goes_back_while_it_is_being_deployed() -> None:
    cloud = world(0)
    cloud.fates = [LATE]
    assert isinstance(drive(cloud, grow(0, 1)), Succeeded)
    assert len(cloud.alive()) == 1


def test_a_second_machine_of_a_name_that_runs_is_left_alone() -> None:
    cloud = world(0)
    asked = grow(0, 2)
    drive(cloud, asked)
    twin = cloud.all[1000]
    cloud.all[1002] = msgspec.structs.replace(twin, id=1002, state="active", status="deployed")
    assert isinstance(provider(cloud).grow(claimed(asked)), Succeeded)
    assert len(cloud.all) == 3


def test_CHERRY_10_too_many_calls_before_anything_was_bought_is_raised_and_comes_right_later() -> None:
    cloud = world(0)
    cloud.fates = [Throttled("429", retry_after=2.0)]
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).grow(asked))
    with pytest.raises(Throttled):
        provider(cloud).poll(announced)
    assert len(cloud.posts()) == 1
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.alive()) == 2


def test_a_first_order_that_our_own_pace_held_back_was_not_sent_and_need_not_be_looked_for() -> None:
    cloud = world(0)
    cloud.fates = [Throttled("our own pace", code="OwnPace", retry_after=7.0)]
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).grow(asked))
    outcome = provider(cloud).poll(announced)
    assert isinstance(outcome, InProgress)
    assert (outcome.after, outcome.step) == (7.0, "announce")
    provider(cloud).poll(continued(announced, outcome))
    assert len(cloud.alive()) == 2


def test_too_many_calls_in_the_middle_is_a_pause_and_not_a_failure() -> None:
    cloud = world(0)
    cloud.fates = ["", "", Throttled("429", retry_after=7.0)]
    asked = claimed(grow(0, 5))
    announced = continued(asked, provider(cloud).grow(asked))
    outcome = provider(cloud).poll(announced)
    assert isinstance(outcome, InProgress)
    assert outcome.after == 7.0
    assert len(cloud.posts()) == 3
    outcome = provider(cloud).poll(continued(announced, outcome))
    assert len(cloud.posts()) == 6
    assert len(cloud.alive()) == 5


def test_a_throttle_that_lasts_never_becomes_a_failed_growth_nor_a_second_machine() -> None:
    cloud = world(0)
    cloud.fates = [Throttled("429")] * 6
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.alive()) == 2
    assert len(cloud.posts()) == 8


@each_row("method", ["servers", "plan"])
@each_row("error", [Throttled("own pace", retry_after=3.0), Transient("down")])
def test_a_vendor_that_cannot_be_asked_just_now_costs_no_look(method: str, error: ProviderError) -> None:
    cloud = world(0)
    asked = claimed(grow(0, 1))
    announced = continued(asked, provider(cloud).grow(asked))
    cloud.trouble[method] = [error, error]
    for _ in range(2):
        outcome = provider(cloud).poll(announced)
        assert isinstance(outcome, InProgress)
        announced = continued(announced, outcome)
    provider(cloud).poll(announced)
    assert len(cloud.posts()) == 1


def test_a_vendor_that_can_never_be_asked_is_raised_at_last() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 1))
    announced = continued(asked, provider(cloud).grow(asked))
    cloud.trouble["servers"] = [Transient("down")] * 99

    def go_on(current: Operation) -> None:
        for _ in range(20):
            current = continued(current, provider(cloud).poll(current))

    with pytest.raises(Transient):
        go_on(announced)


def test_a_conflict_at_the_vendor_is_raised() -> None:
    cloud = world(0)
    cloud.fates = [Conflict("409")]
    asked = claimed(grow(0, 1))
    with pytest.raises(Conflict):
        provider(cloud).poll(continued(asked, provider(cloud).grow(asked)))


def test_a_list_that_never_shows_them_does_not_hold_the_growth_for_ever() -> None:
    cloud = world(0, lag=1000)
    outcome = drive(cloud, grow(0, 2))
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["unlisted"] == 2
    assert len(cloud.posts()) == 2


def test_lost_tags_are_written_again() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).grow(asked))
    bought = continued(announced, provider(cloud).poll(announced))
    cloud.change(1000, tags={"note": "mine"})
    provider(cloud).poll(bought)
    assert cloud.all[1000].tags == {
        "note": "mine",
        "k8s-cluster": CLUSTER,
        "k8s-nodepool": POOL,
        "outscaler-operation": asked.spec.id,
    }
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.posts()) == 2


def test_a_renamed_machine_is_found_by_its_operation() -> None:
    cloud = world(0)
    cloud.fates = ["", LOST]
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).grow(asked))
    waiting = provider(cloud).poll(announced)
    cloud.change(1001, hostname="renamed")
    assert isinstance(provider(cloud).poll(continued(announced, waiting)), Succeeded)
    assert len(cloud.posts()) == 2


def test_a_renamed_machine_stands_for_none_that_the_vendor_has_told_us_of() -> None:
    cloud = world(0)
    cloud.fates = ["", LOST]
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).grow(asked))
    waiting = provider(cloud).poll(announced)
    cloud.change(1001, hostname="renamed")
    cloud._hidden[1000] = 1000
    current, outcome = announced, waiting
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        outcome = provider(cloud).poll(current)
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
        {"something": "else"},
    ],
)
def test_rubbish_in_an_operation_is_no_crash(kind: OperationKind, data: dict[str, str]) -> None:
    cloud = world(2)
    for asked in (operation(kind, POOL, 2, 3), operation(kind, POOL, -1, 10**9), operation(kind, POOL, 2, 1)):
        outcome = provider(cloud).poll(asked.with_status(data=data, attempt=7))
        assert isinstance(outcome, Succeeded | InProgress | Failed)
    assert cloud.posts() == []


def test_data_that_cannot_be_read_are_taken_for_sent_orders() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 2)).with_status(data={"growth": "[1"})
    current, outcome = asked, provider(cloud).poll(asked)
    waits = []
    while isinstance(outcome, InProgress):
        waits.append(outcome.after)
        current = continued(current, outcome)
        outcome = provider(cloud).poll(current)
    assert isinstance(outcome, Succeeded)
    assert sum(waits) >= 60
    assert len(cloud.posts()) == 2


def test_a_machine_that_was_renamed_after_it_was_bought_is_found_at_once() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).grow(asked))
    bought = continued(announced, provider(cloud).poll(announced))
    cloud.change(1000, hostname="renamed")
    assert provider(cloud).poll(bought) == Succeeded({"from": 0, "to": 2, "created": 2, "asked": 2})


@each_row("error", [Unauthorized("403", code="403"), Unknown("no plan")])
def test_what_was_bought_before_a_refusal_is_still_looked_for(error: ProviderError) -> None:
    """Over before the list shows what it bought, a growth would leave the pool smaller than it is, and more would be
    bought."""
    cloud = world(0, lag=4)
    config = f"0:60:{POOL}"
    asked = claimed(grow(0, 30))
    first = continued(asked, provider(cloud, config).grow(asked))
    second = continued(first, provider(cloud, config).poll(first))
    cloud.trouble["plan"] = [error]
    current, outcome = second, provider(cloud, config).poll(second)
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        outcome = provider(cloud, config).poll(current)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.facts["created"]) == (error.error_class, 20)
    assert provider(cloud, config).observe([]).groups[0].target == 20
    assert len(cloud.posts()) == 20


def test_a_machine_that_lost_its_name_and_its_tags_is_told_and_not_touched() -> None:
    """Its number alone, which may be a slip of the vendor's, is no ground to write tags on somebody's server."""
    cloud = world(0)
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).grow(asked))
    current, outcome = announced, provider(cloud).poll(announced)
    cloud.change(1000, hostname="renamed", tags={})
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        outcome = provider(cloud).poll(current)
    assert isinstance(outcome, Failed)
    assert "servers 1000 do not keep their tags" in outcome.message
    assert cloud.writes() == cloud.posts()


def test_tags_that_the_vendor_will_not_write_end_the_growth_only_when_all_is_looked_for() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 3))
    cloud.fates = ["", "", LOST]
    announced = continued(asked, provider(cloud).grow(asked))
    current, outcome = announced, provider(cloud).poll(announced)
    cloud.change(1000, tags={})
    cloud.trouble["tag"] = [InvalidRequest("400 no tags"), Unauthorized("403")] + [InvalidRequest("400")] * 9
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        outcome = provider(cloud).poll(current)
    assert isinstance(outcome, Failed)
    assert "servers 1000 do not keep their tags" in outcome.message
    assert outcome.facts["created"] == 3


def test_a_second_machine_that_the_vendor_will_not_take_back_ends_no_growth() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 1))
    announced = continued(asked, provider(cloud).grow(asked))
    bought = continued(announced, provider(cloud).poll(announced))
    cloud.all[1001] = msgspec.structs.replace(cloud.all[1000], id=1001)
    cloud.trouble["delete"] = [InvalidRequest("400 locked")]
    assert isinstance(provider(cloud).poll(bought), Succeeded)
    assert sorted(cloud.all) == [1000, 1001]
    assert provider(cloud).observe([]).groups[0].target == 2
