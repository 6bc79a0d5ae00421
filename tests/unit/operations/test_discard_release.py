"""A discard that is given up takes back what the vendor was told, whatever state it was left in."""

from __future__ import annotations

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers import errors
from infra.emulators.fake_provider import InMemoryProvider
from tests.cases import each_row
from tests.unit.operations.harness import Story, grow, make


class DiscardReleaseRequest(InMemoryProvider):
    """Writes down for whom it was asked to take something back."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[str] = []

    def release(self, operation: Operation) -> bool:
        """See Provider."""
        self.released += [target.handle for target in operation.spec.targets]
        return super().release(operation)


def _story() -> tuple[Story, DiscardReleaseRequest]:
    story, provider = Story(), DiscardReleaseRequest()
    story.provider = provider
    provider.add_pool("g", size=2)
    return story, provider


def _discard(step: str = "", **data: str) -> Operation:
    return make(OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("", "memory://g-2", "g-2"),)).with_status(
        step=step, data=data
    )


@each_row("left", ["", "{", "null", "[]", '{"cls":1}'])
def test_a_reason_that_cannot_be_read_ends_the_discard_all_the_same(left: str) -> None:
    story, provider = _story()
    outcome = story.play(_discard("release", **{"own.failure": left}))
    assert isinstance(outcome, Failed)
    assert provider.released == ["g-2"]


def test_what_an_attempt_that_died_has_told_is_taken_back_when_the_machine_has_joined_since() -> None:
    story, provider = _story()
    story.cluster.add_node("g-2")
    outcome = story.play(_discard("delete"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert provider.released == ["g-2"]
    assert provider.deleted == []


def test_a_refusal_is_the_outcome_once_it_is_taken_back() -> None:
    story, provider = _story()
    provider.fail_next("remove", errors.Unauthorized("no"))
    outcome = story.play(_discard())
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unauthorized"
    assert provider.released == ["g-2"]


def test_a_machine_that_is_gone_by_then_was_discarded() -> None:
    story, provider = _story()
    story.play(grow(2, 3))
    provider.fail_next("remove", errors.Unauthorized("no"), late=True)
    late = make(OperationKind.DELETE_INSTANCES, targets=(RemovalTarget("", "memory://g-3", "g-3"),))
    assert isinstance(story.play(late), Succeeded)
    assert provider.deleted == ["g-3"]
