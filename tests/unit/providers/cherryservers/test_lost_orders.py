"""Orders, answers and lists that are lost, late or repeated: nothing is bought twice."""

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


def test_cherry_order_with_a_lost_answer_is_not_repeated() -> None:
    cloud = world(1)
    cloud.fates = [LOST]
    outcome = drive(cloud, grow(1, 2))
    assert isinstance(outcome, Succeeded)
    assert len(cloud.posts()) == 1
    assert len(cloud.alive()) == 2


@each_row("lag", [1, 2, 3, 4])
@each_row("fates", [[LOST], ["", LOST], ["", "", LOST, LOST]])
def test_cherry_order_with_lost_answer_and_late_list_is_sent_once(lag: int, fates: list[str | ProviderError]) -> None:
    cloud = world(1, lag=lag)
    cloud.fates = fates
    assert isinstance(drive(cloud, grow(1, 5)), Succeeded)
    assert len(cloud.posts()) == 4
    assert len(cloud.alive()) == 5


def test_cherry_order_that_never_arrived_is_repeated_after_a_minute() -> None:
    cloud = world(0)
    cloud.fates = [DROPPED]
    begun = cloud.time
    assert isinstance(drive(cloud, grow(0, 1)), Succeeded)
    assert len(cloud.posts()) == 2
    assert cloud.time - begun >= 60
    assert len(cloud.alive()) == 1


def test_cherry_order_is_sent_at_most_four_times() -> None:
    cloud = world(0)
    cloud.fates = [DROPPED] * 9
    begun = cloud.time
    outcome = drive(cloud, grow(0, 1))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Transient"
    assert len(cloud.posts()) == 4
    assert cloud.time - begun >= 4 * 60


@each_row("fates", [[DROPPED] * 3, [DROPPED, DROPPED, LOST], ["", DROPPED, DROPPED, DROPPED]])
def test_cherry_order_survives_consecutive_errors(fates: list[str | ProviderError]) -> None:
    cloud = world(0)
    cloud.fates = fates
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.alive()) == 2
    assert len({cloud.all[number].hostname for number in cloud.alive()}) == 2


def test_cherry_order_without_an_answer_is_raised_and_stops_further_orders() -> None:
    cloud = world(0)
    cloud.fates = [LOST]
    asked = claimed(grow(0, 3))
    announced = continued(asked, provider(cloud).scale_up(asked))
    with pytest.raises(Transient):
        provider(cloud).poll(announced)
    assert len(cloud.posts()) == 1


def test_cherry_function_after_a_crash_during_orders_lists_before_ordering() -> None:
    cloud = world(0, lag=3)
    asked = claimed(grow(0, 4))
    announced = continued(asked, provider(cloud).scale_up(asked))
    provider(cloud).poll(announced)  # bought, and dead before it was recorded
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


def test_cherry_two_concurrent_functions_end_with_the_requested_size() -> None:
    """Claims prevent this case. If they fail, the younger of two machines with one name is deleted."""
    cloud = world(0, lag=1)
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).scale_up(asked))
    first, second = provider(cloud).poll(announced), provider(cloud).poll(announced)
    assert len(cloud.alive()) == 4
    for reported in (first, second):
        current = continued(announced, reported)
        outcome = provider(cloud).poll(current)
        while isinstance(outcome, InProgress):
            current = continued(current, outcome)
            outcome = provider(cloud).poll(current)
        assert isinstance(outcome, Succeeded)
    assert cloud.alive() == [1000, 1001]
    assert len({cloud.all[number].hostname for number in cloud.alive()}) == 2


def test_cherry_late_duplicate_machine_is_deleted_during_its_deployment() -> None:
    cloud = world(0)
    cloud.fates = [LATE]
    assert isinstance(drive(cloud, grow(0, 1)), Succeeded)
    assert len(cloud.alive()) == 1


def test_cherry_running_duplicate_machine_is_untouched() -> None:
    cloud = world(0)
    asked = grow(0, 2)
    drive(cloud, asked)
    twin = cloud.all[1000]
    cloud.all[1002] = msgspec.structs.replace(twin, id=1002, state="active", status="deployed")
    assert isinstance(provider(cloud).scale_up(claimed(asked)), Succeeded)
    assert len(cloud.all) == 3


def test_cherry_throttling_before_any_order_is_raised_and_retried_later() -> None:
    cloud = world(0)
    cloud.fates = [Throttled("429", retry_after=2.0)]
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).scale_up(asked))
    with pytest.raises(Throttled):
        provider(cloud).poll(announced)
    assert len(cloud.posts()) == 1
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.alive()) == 2


def test_cherry_first_order_delayed_by_our_rate_limit_was_not_sent() -> None:
    cloud = world(0)
    cloud.fates = [Throttled("our own pace", code="OwnPace", retry_after=7.0)]
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).scale_up(asked))
    outcome = provider(cloud).poll(announced)
    assert isinstance(outcome, InProgress)
    assert (outcome.after, outcome.step) == (7.0, "announce")
    provider(cloud).poll(continued(announced, outcome))
    assert len(cloud.alive()) == 2


def test_cherry_throttling_between_orders_is_a_pause_and_not_a_failure() -> None:
    cloud = world(0)
    cloud.fates = ["", "", Throttled("429", retry_after=7.0)]
    asked = claimed(grow(0, 5))
    announced = continued(asked, provider(cloud).scale_up(asked))
    outcome = provider(cloud).poll(announced)
    assert isinstance(outcome, InProgress)
    assert outcome.after == 7.0
    assert len(cloud.posts()) == 3
    outcome = provider(cloud).poll(continued(announced, outcome))
    assert len(cloud.posts()) == 6
    assert len(cloud.alive()) == 5


def test_cherry_lasting_throttling_causes_no_failure_and_no_second_machine() -> None:
    cloud = world(0)
    cloud.fates = [Throttled("429")] * 6
    assert isinstance(drive(cloud, grow(0, 2)), Succeeded)
    assert len(cloud.alive()) == 2
    assert len(cloud.posts()) == 8


@each_row("method", ["servers", "plan"])
@each_row("error", [Throttled("own pace", retry_after=3.0), Transient("down")])
def test_cherry_temporarily_unreachable_vendor_uses_up_no_attempt(method: str, error: ProviderError) -> None:
    cloud = world(0)
    asked = claimed(grow(0, 1))
    announced = continued(asked, provider(cloud).scale_up(asked))
    cloud.trouble[method] = [error, error]
    for _ in range(2):
        outcome = provider(cloud).poll(announced)
        assert isinstance(outcome, InProgress)
        announced = continued(announced, outcome)
    provider(cloud).poll(announced)
    assert len(cloud.posts()) == 1


def test_cherry_permanently_unreachable_vendor_is_finally_raised() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 1))
    announced = continued(asked, provider(cloud).scale_up(asked))
    cloud.trouble["servers"] = [Transient("down")] * 99

    def go_on(current: Operation) -> None:
        for _ in range(20):
            current = continued(current, provider(cloud).poll(current))

    with pytest.raises(Transient):
        go_on(announced)


def test_cherry_conflict_at_the_vendor_is_raised() -> None:
    cloud = world(0)
    cloud.fates = [Conflict("409")]
    asked = claimed(grow(0, 1))
    with pytest.raises(Conflict):
        provider(cloud).poll(continued(asked, provider(cloud).scale_up(asked)))


def test_cherry_list_that_never_shows_the_machines_ends_the_scale_up() -> None:
    cloud = world(0, lag=1000)
    outcome = drive(cloud, grow(0, 2))
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["unlisted"] == 2
    assert len(cloud.posts()) == 2


def test_cherry_lost_tags_are_written_again() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).scale_up(asked))
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


def test_cherry_renamed_machine_is_found_by_its_operation() -> None:
    cloud = world(0)
    cloud.fates = ["", LOST]
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).scale_up(asked))
    waiting = provider(cloud).poll(announced)
    cloud.change(1001, hostname="renamed")
    assert isinstance(provider(cloud).poll(continued(announced, waiting)), Succeeded)
    assert len(cloud.posts()) == 2


def test_cherry_renamed_machine_does_not_replace_a_confirmed_one() -> None:
    cloud = world(0)
    cloud.fates = ["", LOST]
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).scale_up(asked))
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
def test_cherry_scale_up_survives_invalid_operation_data(kind: OperationKind, data: dict[str, str]) -> None:
    cloud = world(2)
    for asked in (operation(kind, POOL, 2, 3), operation(kind, POOL, -1, 10**9), operation(kind, POOL, 2, 1)):
        outcome = provider(cloud).poll(asked.with_status(data=data, attempt=7))
        assert isinstance(outcome, Succeeded | InProgress | Failed)
    assert cloud.posts() == []


def test_cherry_unreadable_data_count_as_sent_orders() -> None:
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


def test_cherry_machine_renamed_after_its_purchase_is_found_at_once() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).scale_up(asked))
    bought = continued(announced, provider(cloud).poll(announced))
    cloud.change(1000, hostname="renamed")
    assert provider(cloud).poll(bought) == Succeeded({"from": 0, "to": 2, "created": 2, "asked": 2})


@each_row("error", [Unauthorized("403", code="403"), Unknown("no plan")])
def test_cherry_machines_bought_before_a_refusal_are_awaited_in_the_list(error: ProviderError) -> None:
    """If the scale-up ended before the list shows what it bought, the pool would look smaller than it is, and more
    would be
    bought."""
    cloud = world(0, lag=4)
    config = f"0:60:{POOL}"
    asked = claimed(grow(0, 30))
    first = continued(asked, provider(cloud, config).scale_up(asked))
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


def test_cherry_machine_without_its_name_and_tags_is_reported_and_untouched() -> None:
    """Its number alone may be an error of the vendor, and does not justify writing tags on another server."""
    cloud = world(0)
    asked = claimed(grow(0, 2))
    announced = continued(asked, provider(cloud).scale_up(asked))
    current, outcome = announced, provider(cloud).poll(announced)
    cloud.change(1000, hostname="renamed", tags={})
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        outcome = provider(cloud).poll(current)
    assert isinstance(outcome, Failed)
    assert "servers 1000 do not keep their tags" in outcome.message
    assert cloud.writes() == cloud.posts()


def test_cherry_refused_tags_end_the_scale_up_only_after_all_lookups() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 3))
    cloud.fates = ["", "", LOST]
    announced = continued(asked, provider(cloud).scale_up(asked))
    current, outcome = announced, provider(cloud).poll(announced)
    cloud.change(1000, tags={})
    cloud.trouble["tag"] = [InvalidRequest("400 no tags"), Unauthorized("403")] + [InvalidRequest("400")] * 9
    while isinstance(outcome, InProgress):
        current = continued(current, outcome)
        outcome = provider(cloud).poll(current)
    assert isinstance(outcome, Failed)
    assert "servers 1000 do not keep their tags" in outcome.message
    assert outcome.facts["created"] == 3


def test_cherry_undeletable_duplicate_machine_does_not_end_the_scale_up() -> None:
    cloud = world(0)
    asked = claimed(grow(0, 1))
    announced = continued(asked, provider(cloud).scale_up(asked))
    bought = continued(announced, provider(cloud).poll(announced))
    cloud.all[1001] = msgspec.structs.replace(cloud.all[1000], id=1001)
    cloud.trouble["delete"] = [InvalidRequest("400 locked")]
    assert isinstance(provider(cloud).poll(bought), Succeeded)
    assert sorted(cloud.all) == [1000, 1001]
    assert provider(cloud).observe([]).groups[0].target == 2
