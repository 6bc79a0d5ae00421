"""Failing calls: the right error class, few attempts, no duplicate change, and
a clean state afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chalicelib.model.node import Node
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import ProviderError, Throttled
from tests.providers.suite.operations import OperationDriver, class_of
from tests.providers.suite.provider_fixture import Trouble
from tests.providers.suite.recording_provider import RecordingProvider

CLASSES = {
    Trouble.UNAUTHORIZED: "Unauthorized",
    Trouble.FORBIDDEN: "Unauthorized",
    Trouble.NOT_FOUND: "NotFound",
    Trouble.CONFLICT: "Conflict",
    Trouble.THROTTLED: "Throttled",
    Trouble.THROTTLED_FOR: "Throttled",
    Trouble.SERVER_ERROR: "Transient",
    Trouble.CUT_OFF: "Transient",
    Trouble.WEB_PAGE: "Transient",
    Trouble.HANGS: "Transient",
    Trouble.LOST_ANSWER: "Transient",
}
TEMPORARY = ("Conflict", "Throttled", "Transient")
# It is unknown whether the change was made, so it must not be repeated blindly.
UNSURE = (
    Trouble.SERVER_ERROR,
    Trouble.CUT_OFF,
    Trouble.WEB_PAGE,
    Trouble.HANGS,
    Trouble.LOST_ANSWER,
)
TRIES = 4
READS = [kind for kind in Trouble if kind is not Trouble.LOST_ANSWER]  # for a read it equals HANGS


def _observed(provider: RecordingProvider, nodes: Sequence[Node]) -> Observation | ProviderError:
    """Returns the observation; an error that is raised is returned as the answer."""
    try:
        return provider.observe(nodes)
    except ProviderError as error:
        return error


def _expected(yard: OperationDriver, kind: Trouble, on: str) -> str:
    yard.needs(kind.value)
    return yard.bench.differs.get(f"{kind.value} {on}", CLASSES[kind])


@pytest.mark.parametrize("kind", READS, ids=lambda kind: kind.name)
def test_provider_read_that_always_fails_has_its_class_and_few_attempts(
    yard: OperationDriver, kind: Trouble
) -> None:
    expected = _expected(yard, kind, "read")
    group = yard.bench.add_group("g", size=2)
    provider, nodes = yard.provider(), yard.bench.nodes()
    yard.bench.trouble(kind, on="read", times=-1)
    yard.bench.calls()
    with pytest.raises(ProviderError) as raised:
        provider.observe(nodes)
    calls = yard.bench.calls()
    assert raised.value.error_class == expected
    assert 1 <= len(calls) <= 2 * TRIES
    yard.bench.calm()
    yard.bench.settle(60.0)
    assert yard.group(group).target == 2


@pytest.mark.parametrize("kind", READS, ids=lambda kind: kind.name)
def test_provider_read_that_fails_once_is_complete_or_reports_its_class(
    yard: OperationDriver, kind: Trouble
) -> None:
    """It must never return incomplete data without an error."""
    expected = _expected(yard, kind, "read")
    group = yard.bench.add_group("g", size=2)
    provider, nodes = yard.provider(), yard.bench.nodes()
    yard.bench.trouble(kind, on="read", times=1)
    seen = _observed(provider, nodes)
    if isinstance(seen, ProviderError):
        assert seen.error_class == expected
        return
    (found,) = seen.groups
    assert found.id == group
    assert found.error or len(found.instances) == 2


@pytest.mark.parametrize("kind", Trouble, ids=lambda kind: kind.name)
def test_provider_scale_up_with_unknown_result_has_its_class_and_is_sent_once(
    yard: OperationDriver, kind: Trouble
) -> None:
    expected = _expected(yard, kind, "write")
    group = yard.bench.add_group("g", size=1)
    order = yard.growth(group, 3)
    yard.bench.trouble(kind, on="write", times=-1)
    yard.bench.calls()
    answer, order = yard.begin(order)
    writes = yard.bench.writes()
    assert class_of(answer) == expected
    assert 1 <= len(writes) <= (1 if kind in UNSURE and not yard.bench.repeatable else TRIES)
    assert yard.bench.target(group) in ((1, 2, 3) if "sizes" in yard.bench.lacks else (1, 3))
    yard.bench.calm()
    yard.bench.settle(60.0)
    assert isinstance(yard.run(order), Succeeded)
    assert (yard.bench.target(group), len(yard.finish(group))) == (3, 3)


@pytest.mark.parametrize("kind", Trouble, ids=lambda kind: kind.name)
def test_provider_removal_with_unknown_result_has_its_class_and_harms_no_other(
    yard: OperationDriver, kind: Trouble
) -> None:
    expected = _expected(yard, kind, "write")
    group = yard.bench.add_group("g", size=4)
    before, found = yard.bench.machines(group), yard.instances(group)
    order = yard.removal(group, found[1])
    yard.bench.trouble(kind, on="write", times=-1)
    answer = yard.ask(lambda provider: provider.delete_nodes(order))
    assert class_of(answer) == expected
    yard.bench.calm()
    yard.bench.settle(60.0)
    assert set(before) - {before[1]} <= set(yard.bench.machines(group))
    assert isinstance(yard.drive(order), Succeeded)
    assert yard.finish(group) == [before[0], *before[2:]]
    assert yard.bench.target(group) == 3


@pytest.mark.parametrize(
    "kind", [kind for kind in Trouble if CLASSES[kind] in TEMPORARY], ids=lambda kind: kind.name
)
@pytest.mark.parametrize("on", ["read", "write"])
def test_executor_completes_operations_despite_temporary_errors(
    yard: OperationDriver, kind: Trouble, on: str
) -> None:
    expected = _expected(yard, kind, on)
    assert expected in TEMPORARY
    group = yard.bench.add_group("g", size=2)
    yard.bench.trouble(kind, on=on, times=2)
    assert isinstance(yard.run(yard.growth(group, 4)), Succeeded)
    yard.bench.calm()
    assert len(yard.finish(group)) == 4
    victims = yard.instances(group)[:2]
    yard.bench.trouble(kind, on=on, times=2)
    assert isinstance(yard.run(yard.removal(group, *victims)), Succeeded)
    yard.bench.calm()
    after = yard.finish(group)
    assert len(after) == 2
    assert not {each.handle for each in victims} & set(after)
    assert yard.bench.target(group) == 2


@pytest.mark.parametrize("kind", [Trouble.FORBIDDEN, Trouble.NOT_FOUND], ids=lambda kind: kind.name)
def test_executor_ends_an_operation_on_a_permanent_error_without_a_trace(
    yard: OperationDriver, kind: Trouble
) -> None:
    expected = _expected(yard, kind, "write")
    group = yard.bench.add_group("g", size=3)
    before, victim = yard.bench.machines(group), yard.instances(group)[0]
    yard.bench.trouble(kind, on="write", times=-1)
    for outcome in (yard.run(yard.growth(group, 5)), yard.run(yard.removal(group, victim))):
        assert isinstance(outcome, Failed)
        assert outcome.error_class == expected
    yard.bench.calm()
    assert (yard.bench.target(group), yard.finish(group)) == (3, before)
    assert not [node for node in yard.cluster.nodes.values() if node.taints or node.unschedulable]


def test_provider_observes_or_reports_the_vendors_retry_delay(yard: OperationDriver) -> None:
    yard.needs(Trouble.THROTTLED_FOR.value)
    yard.bench.add_group("g", size=1)
    provider, nodes, slept = yard.provider(), yard.bench.nodes(), yard.bench.slept()
    yard.bench.trouble(Trouble.THROTTLED_FOR, on="read", times=-1)
    with pytest.raises(Throttled) as raised:
        provider.observe(nodes)
    assert raised.value.retry_after >= 7 or yard.bench.slept() - slept >= 7


def test_provider_retry_delay_of_one_function_is_observed_by_all_functions(
    yard: OperationDriver,
) -> None:
    yard.needs("pace")
    yard.needs(Trouble.THROTTLED_FOR.value)
    group = yard.bench.add_group("g", size=1)
    nodes = yard.bench.nodes()
    yard.bench.trouble(Trouble.THROTTLED_FOR, on="any", times=-1)
    with pytest.raises(Throttled):
        yard.provider().observe(nodes)
    asked_at = yard.bench.now()  # or a moment before: less than that remains of the pause
    yard.bench.calm()
    yard.bench.calls()
    seen = _observed(yard.provider(), nodes)
    if isinstance(seen, ProviderError):
        assert not yard.bench.calls()
        assert class_of(seen) == "Throttled"
        assert 0 < seen.retry_after <= 10
    else:
        assert yard.bench.now() >= asked_at + 5
    yard.bench.settle(10.0)
    assert yard.group(group).target == 1
