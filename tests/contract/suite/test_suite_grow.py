"""Growing: exactly what was asked for exists afterwards, however often and by however many it is asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from chalicelib.model.outcome import Failed, Outcome, Succeeded
from chalicelib.providers.errors import ProviderError
from tests.contract.suite.operations import OperationDriver, class_of
from tests.contract.suite.provider_fixture import Misfortune, Trouble


@pytest.mark.parametrize(("size", "to"), [(0, 1), (0, 3), (2, 10)], ids=["first", "from zero", "to the maximum"])
def test_a_group_grows_to_the_size_asked_for(yard: OperationDriver, size: int, to: int) -> None:
    group = yard.bench.add_group("g", size=size, most=10)
    assert isinstance(yard.run(yard.growth(group, to)), Succeeded)
    assert yard.bench.target(group) == to
    assert len(yard.finish(group)) == to
    assert len(yard.bench.nodes()) == to


def test_past_the_maximum_is_refused_before_any_write(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=2, most=3)
    order = yard.growth(group, 4)
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.grow(order))
    assert isinstance(answer, Failed)
    assert answer.error_class == "InvalidRequest"
    assert not yard.bench.writes()
    assert (yard.bench.target(group), len(yard.finish(group))) == (2, 2)


def test_a_target_that_somebody_else_has_changed_is_left_alone(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 6, start=3)
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.grow(order))
    assert isinstance(answer, Failed)
    assert answer.error_class == "Conflict"
    assert not yard.bench.writes()
    assert len(yard.finish(group)) == 1


def test_a_group_that_there_is_not_is_refused(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group.replace("g", "x") if group == "g" else group[:-1] + "x", 2, start=1)
    yard.bench.calls()
    assert class_of(yard.ask(lambda provider: provider.grow(order))) in ("NotFound", "InvalidRequest")
    assert not yard.bench.writes()


def test_asked_again_it_buys_nothing_more(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 4)
    for _ in range(3):
        assert class_of(yard.ask(lambda provider: provider.grow(order))) in ("Done", "Pending", "Conflict")
    assert isinstance(yard.run(order), Succeeded)
    assert len(yard.finish(group)) == 4
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (4, 4)


def test_two_functions_at_once_buy_it_once(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 4)
    barrier = Barrier(2)

    def grow() -> Outcome | ProviderError:
        provider = yard.provider()
        barrier.wait(timeout=30)
        return yard.ask(lambda _: provider.grow(order))

    with ThreadPoolExecutor(2) as pool:
        answers = [future.result(timeout=60) for future in [pool.submit(grow) for _ in range(2)]]
    assert {class_of(answer) for answer in answers} <= {"Done", "Pending", "Conflict"}
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (4, 4)


def test_two_functions_in_turns_buy_it_once(yard: OperationDriver) -> None:
    """The second begins when the first has been told, and the first goes on with what it knew."""
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 4)
    first, second = yard.provider(), yard.provider()
    yard.ask(lambda _: first.grow(order))
    yard.ask(lambda _: second.grow(order))
    yard.ask(lambda _: first.grow(order))
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (4, 4)


@pytest.mark.parametrize("lost", [1, 3])
def test_an_answer_that_got_lost_buys_nothing_twice(yard: OperationDriver, lost: int) -> None:
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 4)
    yard.bench.trouble(Trouble.LOST_ANSWER, on="write", times=lost)
    expected = {"Transient", "Done", "Pending", *filter(None, [yard.bench.differs.get(f"{Trouble.LOST_ANSWER} again")])}
    assert class_of(yard.ask(lambda provider: provider.grow(order))) in expected
    yard.bench.calm()
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (4, 4)


@pytest.mark.parametrize("dies", [1, 2])
def test_a_function_that_dies_after_the_call_buys_nothing_twice(yard: OperationDriver, dies: int) -> None:
    group = yard.bench.add_group("g", size=2)
    assert isinstance(yard.run(yard.growth(group, 5), dies=dies), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (5, 5)


def test_one_growth_after_the_other(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g")
    for size in (1, 2, 5):
        assert isinstance(yard.run(yard.growth(group, size, op=f"grow-to-{size}")), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (5, 5)


def test_a_target_that_is_not_fulfilled_is_lowered_without_a_running_machine(yard: OperationDriver) -> None:
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


def test_a_target_is_not_lowered_where_a_machine_runs(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=3)
    before = yard.bench.machines(group)
    outcome = yard.run(yard.shrinkage(group, 2))
    assert isinstance(outcome, Failed)
    assert (yard.bench.target(group), yard.finish(group)) == (3, before)
