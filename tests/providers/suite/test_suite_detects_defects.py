"""Proves that the suite detects defects: each of these clouds has one of the defects that the suite
exists for, and fails it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pytest

from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome, Succeeded
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import ProviderError, Transient, Unknown
from infra.emulators.fake_provider import InMemoryProvider
from tests.providers.suite import test_suite_failing_calls as failing_calls
from tests.providers.suite import test_suite_large as large
from tests.providers.suite import test_suite_observe as observations
from tests.providers.suite import test_suite_remove as removals
from tests.providers.suite import test_suite_scale_up as scale_up
from tests.providers.suite import test_suite_secrets as secrets
from tests.providers.suite.memory import SECRETS, MemoryBench
from tests.providers.suite.operations import OperationDriver
from tests.providers.suite.provider_fixture import Trouble
from tests.providers.suite.recording_provider import Ear

T = TypeVar("T")


class _BuysAgain(InMemoryProvider):
    """Interprets the absolute size as an increment."""

    def scale_up(self, operation: Operation) -> Outcome:
        pool = self.pools[operation.spec.group]
        pool.target = min(pool.max, pool.target + operation.spec.to_size - operation.spec.from_size)
        while len(pool.machines) < pool.target:
            self._make(pool, "creating")  # type: ignore[arg-type] # what is made of it nobody asks
        return Succeeded()


class _KnowsNoMaximum(InMemoryProvider):
    def scale_up(self, operation: Operation) -> Outcome:
        self.pools[operation.spec.group].max = 1000
        return super().scale_up(operation)


class _TakesTheOldest(InMemoryProvider):
    """Lowers the size and lets the vendor choose the machines."""

    def delete_nodes(self, operation: Operation) -> Outcome:
        pool = self.pools[operation.spec.group]
        for handle in list(pool.machines)[: len(operation.spec.targets)]:
            self._delete(pool, handle)
        return Succeeded()


class _AsksNoMinimum(InMemoryProvider):
    def delete_nodes(self, operation: Operation) -> Outcome:
        self.pools[operation.spec.group].min = 0
        return super().delete_nodes(operation)


class _SeesOthers(InMemoryProvider):
    """Shows a foreign group."""

    def observe(self, nodes: Sequence[Node]) -> Observation:
        seen = super().observe(nodes)
        return Observation((*seen.groups, *seen.groups[:1]))


class _Bench(MemoryBench):
    def __init__(self, cloud: type[InMemoryProvider] = InMemoryProvider) -> None:
        super().__init__()
        self.ours = cloud(self.name)


class _CallsPerNode(_Bench):
    def pass_through(self, verb: str, of: str, call: Callable[[], T], *, good: bool) -> T:
        self._log.extend(["read a node"] * len(self.nodes()))
        return super().pass_through(verb, of, call, good=good)


class _Repeats(_Bench):
    """Repeats a change although its result is unknown."""

    def pass_through(self, verb: str, of: str, call: Callable[[], T], *, good: bool) -> T:
        try:
            return super().pass_through(verb, of, call, good=good)
        except Transient:
            return super().pass_through(verb, of, call, good=good)


class _SaysUnknown(_Bench):
    def pass_through(self, verb: str, of: str, call: Callable[[], T], *, good: bool) -> T:
        try:
            return super().pass_through(verb, of, call, good=good)
        except ProviderError as error:
            raise Unknown(error.message) from None


class _Tells(_Bench):
    """Includes the key in the error."""

    def pass_through(self, verb: str, of: str, call: Callable[[], T], *, good: bool) -> T:
        try:
            return super().pass_through(verb, of, call, good=good)
        except ProviderError as error:
            raise type(error)(f"{error.message} with key {SECRETS[0]}") from None


CASES: dict[str, tuple[Callable[[], MemoryBench], Callable[[OperationDriver], None]]] = {
    "buys twice": (
        lambda: _Bench(_BuysAgain),
        scale_up.test_provider_repeated_scale_up_buys_nothing_more,
    ),
    "buys twice, in turns": (
        lambda: _Bench(_BuysAgain),
        scale_up.test_provider_two_interleaved_functions_buy_once,
    ),
    "past the maximum": (
        lambda: _Bench(_KnowsNoMaximum),
        scale_up.test_provider_scale_up_past_the_maximum_is_refused_before_any_write,
    ),
    "another machine": (
        lambda: _Bench(_TakesTheOldest),
        partial(removals.test_provider_removes_exactly_the_named_machines, which=(2,)),
    ),
    "another group's": (
        lambda: _Bench(_TakesTheOldest),
        removals.test_provider_removal_of_another_groups_machine_is_refused_before_any_write,
    ),
    "below the minimum": (
        lambda: _Bench(_AsksNoMinimum),
        removals.test_provider_removal_below_the_minimum_is_refused_before_any_write,
    ),
    "not its own": (
        lambda: _Bench(_SeesOthers),
        observations.test_provider_does_not_read_a_group_of_another_cluster,
    ),
    "a call per node": (
        _CallsPerNode,
        large.test_provider_reads_two_thousand_machines_without_a_call_for_each,
    ),
    "repeats": (
        _Repeats,
        partial(
            failing_calls.test_provider_scale_up_with_unknown_result_has_its_class_and_is_sent_once,
            kind=Trouble.HANGS,
        ),
    ),
    "wrong class": (
        _SaysUnknown,
        partial(
            failing_calls.test_provider_removal_with_unknown_result_has_its_class_and_harms_no_other,
            kind=Trouble.THROTTLED,
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_provider_suite_fails_for_each_defective_cloud(case: str) -> None:
    make, test = CASES[case]
    with make() as bench, pytest.raises(AssertionError):
        test(OperationDriver(bench, Ear()))


def test_provider_suite_detects_a_secret_in_an_error() -> None:
    ear = Ear()
    with _Tells() as bench:
        secrets.test_provider_wrong_credential_is_unauthorized_and_changes_nothing(
            OperationDriver(bench, ear)
        )
        assert ear.leaked(bench.secrets())
