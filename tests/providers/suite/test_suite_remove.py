"""Tests of removal: exactly the named machines are removed, or none."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import msgspec
import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.base import OneChangeAtATime
from chalicelib.providers.kit.errors import Conflict, ProviderError, Transient
from tests.providers.suite.operations import OperationDriver, class_of
from tests.providers.suite.provider_fixture import Misfortune, Trouble


@pytest.mark.parametrize("which", [(0,), (2,), (4,), (1, 3), (0, 1, 2, 3, 4)], ids=str)
def test_provider_removes_exactly_the_named_machines(
    yard: OperationDriver, which: tuple[int, ...]
) -> None:
    if len(which) == 5:
        yard.needs("zero")
    group = yard.bench.add_group("g", size=5)
    before, found = yard.bench.machines(group), yard.instances(group)
    victims = [found[at] for at in which]
    assert isinstance(yard.run(yard.removal(group, *victims)), Succeeded)
    gone = {each.handle for each in victims}
    assert yard.finish(group) == [handle for handle in before if handle not in gone]
    assert yard.bench.target(group) == 5 - len(which)
    assert len(yard.bench.nodes()) == 5 - len(which)


def test_provider_repeated_removal_removes_no_other_machine(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=4)
    before, found = yard.bench.machines(group), yard.instances(group)
    order = yard.removal(group, found[1], found[2])
    for _ in range(3):
        assert class_of(yard.ask(lambda provider: provider.delete_nodes(order))) in (
            "Done",
            "Pending",
            "Conflict",
        )
    assert isinstance(yard.drive(order), Succeeded)
    yard.bench.settle()
    assert isinstance(yard.drive(order), Succeeded)
    assert yard.finish(group) == [before[0], before[3]]
    assert yard.bench.target(group) == 2


def test_provider_machine_already_gone_counts_as_removed(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=4)
    before, found = yard.bench.machines(group), yard.instances(group)
    yard.run(yard.removal(group, found[0]))
    yard.bench.settle()
    both = yard.removal(group, found[0], found[1], op="remove-2", start=3)
    assert isinstance(yard.drive(both.with_spec(to_size=2)), Succeeded)
    assert yard.finish(group) == before[2:]
    assert yard.bench.target(group) == 2
    yard.bench.calls()
    alone = yard.removal(group, found[0], op="remove-3")
    assert isinstance(yard.drive(alone), Succeeded)
    assert (yard.bench.target(group), yard.finish(group)) == (2, before[2:])


def test_provider_removal_of_another_groups_machine_is_refused_before_any_write(
    yard: OperationDriver,
) -> None:
    ours, other = yard.bench.add_group("one", size=3), yard.bench.add_group("two", size=3)
    victims = [yard.instances(ours)[0], yard.instances(other)[0]]
    before = yard.bench.machines(ours), yard.bench.machines(other)
    order = yard.removal(ours, *victims)
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.delete_nodes(order))
    assert isinstance(answer, Failed)
    assert not yard.bench.writes()
    yard.bench.settle()
    assert (yard.bench.machines(ours), yard.bench.machines(other)) == before
    assert (yard.bench.target(ours), yard.bench.target(other)) == (3, 3)


def test_provider_removal_below_the_minimum_is_refused_before_any_write(
    yard: OperationDriver,
) -> None:
    yard.needs("min")
    group = yard.bench.add_group("g", size=3, least=2)
    before, found = yard.bench.machines(group), yard.instances(group)
    order = yard.removal(group, found[0], found[1])
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.delete_nodes(order))
    writes = yard.bench.writes()
    assert isinstance(answer, Failed)
    assert answer.error_class == "InvalidRequest"
    assert not writes
    assert isinstance(yard.run(order), Failed)
    assert (yard.bench.target(group), yard.finish(group)) == (3, before)
    assert isinstance(yard.run(yard.removal(group, found[2], op="remove-2")), Succeeded)
    assert yard.finish(group) == before[:2]


def test_provider_two_concurrent_functions_remove_a_machine_once(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=5)
    before, found = yard.bench.machines(group), yard.instances(group)
    order = yard.removal(group, found[1], found[3])
    barrier = Barrier(2)

    def remove() -> Outcome | ProviderError:
        provider = yard.provider()
        barrier.wait(timeout=600)
        return yard.ask(lambda _: provider.delete_nodes(order))

    with ThreadPoolExecutor(2) as pool:
        answers = [future.result(timeout=600) for future in [pool.submit(remove) for _ in range(2)]]
    assert {class_of(answer) for answer in answers} <= {"Done", "Pending", "Conflict", "Transient"}
    assert isinstance(yard.drive(order), Succeeded)
    assert yard.finish(group) == [before[0], before[2], before[4]]
    assert yard.bench.target(group) == 3


def test_provider_concurrent_removals_remove_one_machine_each(yard: OperationDriver) -> None:
    """Nodes of one group are drained concurrently: two operations, both
    planned from the same size."""
    group = yard.bench.add_group("g", size=5)
    before, found = yard.bench.machines(group), yard.instances(group)
    orders = [yard.removal(group, found[at], op=f"remove-{at}") for at in (0, 2)]
    for order in orders:
        yard.ask(lambda provider, order=order: provider.delete_nodes(order))  # type: ignore[misc]
    for order in orders:
        assert isinstance(yard.drive(order), Succeeded)
    assert yard.finish(group) == [before[1], before[3], before[4]]
    assert yard.bench.target(group) == 3


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_provider_removal_with_a_lost_answer_removes_no_other_machine(
    yard: OperationDriver, lost: int
) -> None:
    group = yard.bench.add_group("g", size=5)
    before, found = yard.bench.machines(group), yard.instances(group)
    order = yard.removal(group, found[1], found[3])
    yard.bench.trouble(Trouble.LOST_ANSWER, on="write", times=lost)
    for _ in range(lost):
        assert class_of(yard.ask(lambda provider: provider.delete_nodes(order))) in (
            "Transient",
            "Done",
            "Pending",
        )
    yard.bench.calm()
    assert isinstance(yard.drive(order), Succeeded)
    assert yard.finish(group) == [before[0], before[2], before[4]]
    assert yard.bench.target(group) == 3


@pytest.mark.parametrize("dies", [1, 3])
def test_provider_removal_by_a_dying_function_removes_no_other_machine(
    yard: OperationDriver, dies: int
) -> None:
    group = yard.bench.add_group("g", size=4)
    before, found = yard.bench.machines(group), yard.instances(group)
    assert isinstance(yard.run(yard.removal(group, found[0]), dies=dies), Succeeded)
    assert (yard.bench.target(group), yard.finish(group)) == (3, before[1:])


def test_provider_scale_up_after_a_removal_creates_new_machines(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=3)
    before, found = yard.bench.machines(group), yard.instances(group)
    assert isinstance(yard.run(yard.removal(group, found[0])), Succeeded)
    assert isinstance(yard.run(yard.growth(group, 4)), Succeeded)
    after = yard.finish(group)
    assert len(after) == 4
    assert before[0] not in after
    assert before[1:] == [handle for handle in after if handle in before]


def test_provider_deletes_an_unregistered_machine(yard: OperationDriver) -> None:
    yard.needs("discard")
    yard.needs(Misfortune.NEVER_COMES.value)
    group = yard.bench.add_group("g", size=2)
    before = yard.bench.machines(group)
    yard.bench.misfortune(group, Misfortune.NEVER_COMES, times=1)
    yard.run(yard.growth(group, 3))
    yard.bench.settle(120.0)
    dead = [each for each in yard.group(group).instances if each.error]
    if not dead:  # the vendor has reported it by the operation, and created another machine
        assert yard.bench.target(group) >= 2
        return
    assert isinstance(
        yard.run(yard.removal(group, *dead, kind=OperationKind.DELETE_INSTANCES, op="discard-1")),
        Succeeded,
    )
    assert yard.finish(group) == before
    assert yard.bench.target(group) == 2


def test_provider_does_not_delete_a_joined_machine_as_unregistered(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=3)
    before, victim = yard.bench.machines(group), yard.instances(group)[0]
    order = yard.removal(group, victim, kind=OperationKind.DELETE_INSTANCES, op="discard-1")
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.delete_nodes(order))
    assert class_of(answer) == "Conflict"
    assert isinstance(answer, Failed)
    assert not yard.bench.writes()
    assert isinstance(yard.run(order), Failed)
    assert (yard.bench.target(group), yard.finish(group)) == (3, before)


def test_provider_removal_not_yet_accepted_can_be_rolled_back(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=3)
    before, found = yard.bench.machines(group), yard.instances(group)
    order = yard.removal(group, found[0])
    for _ in range(2):
        assert yard.provider().cancel_delete(order) is True
    assert (yard.bench.target(group), yard.finish(group)) == (3, before)
    yard.run(yard.removal(group, found[2], op="remove-2"))
    assert yard.finish(group) == before[:2]


def test_provider_accepted_removal_cannot_be_rolled_back(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=3)
    before, found = yard.bench.machines(group), yard.instances(group)
    order = yard.removal(group, found[1])
    assert isinstance(yard.run(order), Succeeded)
    yard.bench.settle()
    assert yard.provider().cancel_delete(order) is False
    assert yard.finish(group) == [before[0], before[2]]


def test_provider_leaving_machines_stay_leaving_when_removal_is_repeated(
    yard: OperationDriver,
) -> None:
    group = yard.bench.add_group("g", size=3)
    victim = yard.instances(group)[0]
    order = yard.removal(group, victim)
    yard.ask(lambda provider: provider.delete_nodes(order))
    yard.bench.settle(3.0)
    again = yard.removal(group, victim, op="remove-2", start=3)
    assert class_of(yard.ask(lambda provider: provider.delete_nodes(again))) in (
        "Done",
        "Pending",
        "Conflict",
    )
    assert isinstance(yard.drive(order), Succeeded)
    assert isinstance(yard.drive(again), Succeeded)
    assert len(yard.finish(group)) == 2
    assert yard.bench.target(group) == 2
    assert [each.state for each in yard.group(group).instances] == [InstanceState.RUNNING] * 2


# -- several removals in one request


def _shares(yard: OperationDriver) -> OneChangeAtATime:
    """Returns a new provider; skips the test where the vendor takes several
    changes of a group at a time."""
    provider = yard.bench.provider(credential="good")
    if not isinstance(provider, OneChangeAtATime):
        pytest.skip(f"{yard.bench.name}: removals do not wait for each other")
    return provider


def _next_call(order: Operation, outcome: Outcome) -> Operation:
    """Returns the operation as it is stored after this outcome."""
    assert isinstance(outcome, InProgress)
    return order.with_status(step=outcome.step, data=outcome.data)


def test_provider_ready_removals_leave_in_one_request_and_end_by_themselves(
    yard: OperationDriver,
) -> None:
    group = yard.bench.add_group("g", size=5)
    before, found, provider = yard.bench.machines(group), yard.instances(group), _shares(yard)
    first, *others = [yard.removal(group, found[at], op=f"remove-{at}") for at in (0, 2, 3)]
    yard.bench.calls()
    outcome, joined = provider.delete_together(first, others)
    assert len(yard.bench.writes()) == 1
    assert sorted(joined) == sorted(other.spec.id for other in others)
    for order in others:
        assert isinstance(yard.drive(_next_call(order, joined[order.spec.id])), Succeeded)
    assert isinstance(yard.drive(_next_call(first, outcome)), Succeeded)
    assert yard.finish(group) == [before[1], before[4]]
    assert yard.bench.target(group) == 2


def test_provider_removal_that_would_be_refused_is_left_out_of_a_shared_request(
    yard: OperationDriver,
) -> None:
    yard.needs("min")
    group, foreign = (
        yard.bench.add_group("g", size=6, least=3),
        yard.bench.add_group("other", size=2),
    )
    before, found, provider = yard.bench.machines(group), yard.instances(group), _shares(yard)
    first, second, changed, third, too_many = [
        yard.removal(group, found[at], op=f"remove-{at}") for at in (0, 1, 2, 3, 4)
    ]
    targets = tuple(
        msgspec.structs.replace(target, uid="of-another-node") for target in changed.spec.targets
    )
    changed = changed.with_spec(targets=targets)
    elsewhere = yard.removal(group, yard.instances(foreign)[0], op="remove-foreign")
    again = second.with_spec(id="remove-again-0123456789abcdef")
    _, joined = provider.delete_together(
        first, [elsewhere, second, again, changed, third, too_many]
    )
    assert sorted(joined) == sorted([second.spec.id, third.spec.id])
    assert yard.finish(group) == [before[2], before[4], before[5]]
    assert (yard.bench.target(group), len(yard.bench.machines(foreign))) == (3, 2)


def test_provider_others_are_not_read_while_the_vendor_takes_no_change(
    yard: OperationDriver,
) -> None:
    group = yard.bench.add_group("g", size=4)
    first, second = (
        yard.removal(group, victim, op=f"remove-{victim.handle}")
        for victim in yard.instances(group)[:2]
    )
    _shares(yard).delete_together(first, [])

    read: list[str] = []

    def others() -> Iterator[Operation]:
        read.append("read")
        yield from ()

    yard.bench.calls()
    with pytest.raises(Conflict):
        _shares(yard).delete_together(second, others())
    assert not yard.bench.writes()
    assert not read


def test_provider_shared_request_with_a_lost_answer_removes_each_machine_once(
    yard: OperationDriver,
) -> None:
    group = yard.bench.add_group("g", size=5)
    before, found, provider = yard.bench.machines(group), yard.instances(group), _shares(yard)
    first, other = (yard.removal(group, found[at], op=f"remove-{at}") for at in (1, 3))
    # every attempt of a client that repeats it
    yard.bench.trouble(Trouble.LOST_ANSWER, on="write", times=3)
    with pytest.raises(Transient):
        provider.delete_together(first, [other])
    yard.bench.calm()
    for order in (other, first):
        assert isinstance(yard.drive(order), Succeeded)
    assert yard.finish(group) == [before[0], before[2], before[4]]
    assert yard.bench.target(group) == 3


def test_provider_refusal_of_a_shared_request_concerns_no_single_removal(
    yard: OperationDriver,
) -> None:
    group = yard.bench.add_group("g", size=4)
    before, found, provider = yard.bench.machines(group), yard.instances(group), _shares(yard)
    first, other = (yard.removal(group, found[at], op=f"remove-{at}") for at in (0, 1))
    yard.bench.trouble(Trouble.NOT_FOUND, on="write", times=1)
    outcome, joined = provider.delete_together(first, [other])
    assert not joined
    assert isinstance(yard.drive(_next_call(first, outcome)), Succeeded)
    yard.bench.settle()
    assert isinstance(yard.drive(other), Succeeded)
    assert yard.finish(group) == before[2:]
