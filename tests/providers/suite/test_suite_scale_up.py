"""Tests of scale-up: afterwards exactly the requested machines exist, however
often they are requested.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import ProviderError
from tests.providers.suite.operations import OperationDriver, class_of
from tests.providers.suite.provider_fixture import Misfortune, Trouble


@pytest.mark.parametrize(
    ("size", "to"), [(0, 1), (0, 3), (2, 10)], ids=["first", "from zero", "to the maximum"]
)
def test_provider_group_grows_to_the_requested_size(
    yard: OperationDriver, size: int, to: int
) -> None:
    group = yard.bench.add_group("g", size=size, most=10)
    assert isinstance(yard.run(yard.growth(group, to)), Succeeded)
    assert yard.bench.target(group) == to
    assert len(yard.finish(group)) == to
    assert len(yard.bench.nodes()) == to


def test_provider_scale_up_past_the_maximum_is_refused_before_any_write(
    yard: OperationDriver,
) -> None:
    group = yard.bench.add_group("g", size=2, most=3)
    order = yard.growth(group, 4)
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.scale_up(order))
    assert isinstance(answer, Failed)
    assert answer.error_class == "InvalidRequest"
    assert not yard.bench.writes()
    assert (yard.bench.target(group), len(yard.finish(group))) == (2, 2)


def test_provider_target_changed_by_others_is_left_unchanged(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 6, start=3)
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.scale_up(order))
    assert isinstance(answer, Failed)
    assert answer.error_class == "Conflict"
    assert not yard.bench.writes()
    assert len(yard.finish(group)) == 1


def test_provider_unknown_group_is_refused(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group.replace("g", "x") if group == "g" else group[:-1] + "x", 2, start=1)
    yard.bench.calls()
    assert class_of(yard.ask(lambda provider: provider.scale_up(order))) in (
        "NotFound",
        "InvalidRequest",
    )
    assert not yard.bench.writes()


def test_provider_repeated_scale_up_buys_nothing_more(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 4)
    for _ in range(3):
        assert class_of(yard.ask(lambda provider: provider.scale_up(order))) in (
            "Done",
            "Pending",
            "Conflict",
        )
    assert isinstance(yard.run(order), Succeeded)
    assert len(yard.finish(group)) == 4
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (4, 4)


def test_provider_two_concurrent_functions_buy_once(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 4)
    barrier = Barrier(2)

    def grow() -> Outcome | ProviderError:
        provider = yard.provider()
        barrier.wait(timeout=600)
        return yard.ask(lambda _: provider.scale_up(order))

    with ThreadPoolExecutor(2) as pool:
        answers = [future.result(timeout=600) for future in [pool.submit(grow) for _ in range(2)]]
    assert {class_of(answer) for answer in answers} <= {"Done", "Pending", "Conflict"}
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (4, 4)


def test_provider_two_interleaved_functions_buy_once(yard: OperationDriver) -> None:
    """The second function begins once the first has its answer, and the first
    continues with its old data."""
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 4)
    first, second = yard.provider(), yard.provider()
    yard.ask(lambda _: first.scale_up(order))
    yard.ask(lambda _: second.scale_up(order))
    yard.ask(lambda _: first.scale_up(order))
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (4, 4)


@pytest.mark.parametrize("lost", [1, 3])
def test_provider_lost_answer_never_buys_twice(yard: OperationDriver, lost: int) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 4)
    yard.bench.trouble(Trouble.LOST_ANSWER, on="write", times=lost)
    expected = {
        "Transient",
        "Done",
        "Pending",
        *filter(None, [yard.bench.differs.get(f"{Trouble.LOST_ANSWER} again")]),
    }
    assert class_of(yard.ask(lambda provider: provider.scale_up(order))) in expected
    yard.bench.calm()
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (4, 4)


@pytest.mark.parametrize("dies", [1, 2])
def test_provider_function_dying_after_the_call_never_buys_twice(
    yard: OperationDriver, dies: int
) -> None:
    group = yard.bench.add_group("g", size=2)
    assert isinstance(yard.run(yard.growth(group, 5), dies=dies), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (5, 5)


def test_provider_consecutive_scale_ups_add_up(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g")
    for size in (1, 2, 5):
        assert isinstance(yard.run(yard.growth(group, size, op=f"grow-to-{size}")), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (5, 5)


def test_provider_decrease_target_removes_no_running_machine(yard: OperationDriver) -> None:
    yard.needs("shrink")
    yard.needs(Misfortune.OUT_OF_STOCK.value)
    group = yard.bench.add_group("g", size=2)
    before = yard.bench.machines(group)
    yard.bench.misfortune(group, Misfortune.OUT_OF_STOCK, times=50)
    yard.run(yard.growth(group, 5))
    yard.bench.settle(120.0)
    assert yard.bench.target(group) == 5
    order = yard.shrinkage(group, 2)
    assert isinstance(yard.run(order), Succeeded)
    assert isinstance(yard.run(order), Succeeded)
    assert yard.bench.target(group) == 2
    assert yard.finish(group) == before


def test_provider_target_is_not_lowered_where_a_machine_runs(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=3)
    before = yard.bench.machines(group)
    outcome = yard.run(yard.shrinkage(group, 2))
    assert isinstance(outcome, Failed)
    assert (yard.bench.target(group), yard.finish(group)) == (3, before)


def test_provider_knows_whether_the_vendor_has_received_a_scale_up(yard: OperationDriver) -> None:
    """Also for the next function, after one that died before it recorded anything."""
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 3)
    yard.bench.calls()
    assert not yard.provider().has_requested(order)
    assert not yard.bench.writes()
    _, asked = yard.begin(order)
    assert yard.provider().has_requested(asked)
    assert yard.provider().has_requested(_next_attempt(asked))


def test_provider_scale_up_that_was_only_announced_counts_as_not_received(
    yard: OperationDriver,
) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 3)
    answer = yard.ask(lambda provider: provider.scale_up(order))
    if not isinstance(answer, InProgress) or answer.step != "announce":
        return  # this vendor needs no announcement
    announced = _next_attempt(order.with_status(step=answer.step, data=answer.data))
    assert not yard.provider().has_requested(announced)


def _next_attempt(order: Operation) -> Operation:
    return order.with_status(attempt=order.status.attempt + 1)
