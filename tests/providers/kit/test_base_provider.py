"""What the common provider calls for an operation of each kind that goes on."""

from __future__ import annotations

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, Outcome, Succeeded
from chalicelib.providers.kit.base import BaseProvider, NodeRestarter
from tests.cases import each_row
from tests.operations import new_operation


class NamedChanges(BaseProvider[None]):
    """A provider whose changes say their names."""

    name = "changes"

    def __init__(self) -> None:
        super().__init__(None)
        self.delete_nodes = lambda _: Succeeded({"called": "delete_nodes"})
        self.decrease_target = lambda _: Succeeded({"called": "decrease_target"})
        self.poll_scale_up = lambda _: Succeeded({"called": "poll_scale_up"})


class NamedRestarts(NamedChanges):
    def restart(self, operation: Operation) -> Outcome:
        return Succeeded({"called": f"restart of {operation.spec.group}"})


def polled(provider: NamedChanges, kind: OperationKind) -> Outcome:
    return provider.poll(new_operation("x", "c", provider.name, "g", kind, "p", 0.0))


@each_row(
    ("kind", "called"),
    [
        (OperationKind.SCALE_UP, "poll_scale_up"),
        (OperationKind.DECREASE_TARGET, "decrease_target"),
        (OperationKind.DELETE_NODES, "delete_nodes"),
        (OperationKind.DELETE_INSTANCES, "delete_nodes"),
        (OperationKind.RESTART_NODE, "restart of g"),
    ],
)
def test_poll_goes_on_with_the_change_of_the_operation(kind: OperationKind, called: str) -> None:
    provider = NamedRestarts()
    assert isinstance(provider, NodeRestarter)
    assert polled(provider, kind) == Succeeded({"called": called})


def test_poll_of_a_restart_deletes_nothing_where_nothing_is_restarted() -> None:
    provider = NamedChanges()
    assert not isinstance(provider, NodeRestarter)
    assert polled(provider, OperationKind.RESTART_NODE) == Failed(
        "InvalidRequest", "changes cannot restart a node"
    )
