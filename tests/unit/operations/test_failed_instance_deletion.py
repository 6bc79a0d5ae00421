"""A failed deletion of unregistered instances rolls back the vendor call,
whatever state it was left in.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers.kit import errors
from infra.emulators.fake_provider import InMemoryProvider
from tests.cases import each_row
from tests.unit.operations.harness import OperationFixture, grow, make


class DiscardReleaseRequest(InMemoryProvider):
    """Records the targets for which a rollback was requested."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[str] = []

    def cancel_delete(self, operation: Operation) -> bool:
        """See Provider."""
        self.released += [target.handle for target in operation.spec.targets]
        return super().cancel_delete(operation)


def _story() -> tuple[OperationFixture, DiscardReleaseRequest]:
    fixture, provider = OperationFixture(), DiscardReleaseRequest()
    fixture.provider = provider
    provider.add_pool("g", size=2)
    return fixture, provider


def _discard(step: str = "", **data: str) -> Operation:
    return make(
        OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("", "memory://g-2", "g-2"),)
    ).with_status(step=step, data=data)


@each_row("left", ["", "{", "null", "[]", '{"cls":1}'])
def test_delete_instances_with_an_unreadable_reason_still_ends(left: str) -> None:
    fixture, provider = _story()
    outcome = fixture.play(_discard("release", **{"own.failure": left}))
    assert isinstance(outcome, Failed)
    assert provider.released == ["g-2"]


def test_delete_instances_of_a_dead_attempt_is_rolled_back_once_joined() -> None:
    fixture, provider = _story()
    fixture.cluster.add_node("g-2")
    outcome = fixture.play(_discard("delete"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert provider.released == ["g-2"]
    assert provider.deleted == []


def test_delete_instances_refusal_is_the_outcome_after_the_rollback() -> None:
    fixture, provider = _story()
    provider.fail_next("delete_nodes", errors.Unauthorized("no"))
    outcome = fixture.play(_discard())
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unauthorized"
    assert provider.released == ["g-2"]


def test_delete_instances_counts_a_vanished_machine_as_deleted() -> None:
    fixture, provider = _story()
    fixture.play(grow(2, 3))
    provider.fail_next("delete_nodes", errors.Unauthorized("no"), late=True)
    late = make(OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("", "memory://g-3", "g-3"),))
    assert isinstance(fixture.play(late), Succeeded)
    assert provider.deleted == ["g-3"]
