"""Converts a step or the end of an operation to events: an ordered table from fact to event
(docs/reference/reporting.md "Kubernetes events").

The operation's row is written before the report, and only the executor that wrote it reports: each fact is reported
once, even if its message was delivered several times.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.model.policy import Options
from chalicelib.record.events import WARNING, Event, about_node, about_pods, about_status, sizes

MARKED = "marked the node as toBeDeleted/unschedulable"
REMOVED = "nodes removed by cluster autoscaler"


class OperationEnd(msgspec.Struct, frozen=True):
    """An operation that is over, in its final state. largest: the group's maximum, None where it is not known."""

    operation: Operation
    outcome: Succeeded | Failed
    options: Options = Options()
    largest: int | None = None


class OperationStep(msgspec.Struct, frozen=True):
    """A step that did not end its operation. why: the reason, for a step that is being rolled back."""

    before: Operation
    outcome: InProgress
    why: str = ""

    @property
    def gives_up(self) -> bool:
        """Return whether the next step is the rollback of (some of) its nodes."""
        return self.outcome.step == "undo"


def events_of_end(ending: OperationEnd) -> list[Event]:
    """Return every event of an operation's end."""
    return [
        event
        for fact, kind, outcome, tell in ENDS
        if ending.operation.spec.kind is kind and isinstance(ending.outcome, outcome)
        for event in tell(fact, ending)
    ]


def events_of_step(step: OperationStep) -> list[Event]:
    """Return every event of a step."""
    return [event for fact, tell in STEPS for event in tell(fact, step)]


def triggered(group: str, old: int, new: int, largest: int | None) -> str:
    """Return the message `pod triggered scale-up: [{g 1->3 (max: 5)}]` (docs/reference/reporting.md "Scale-up
    messages")."""
    bound = "" if largest is None else f" (max: {largest})"
    return f"pod triggered scale-up: [{{{group} {old}->{new}{bound}}}]"


# -- ends of operations


def _grown(fact: str, end: OperationEnd) -> list[Event]:
    one = end.operation
    words = f"Scale-up: group {one.spec.group} size set to " + sizes(one.spec.from_size, one.spec.to_size, end.largest)
    return about_status(fact, end.options, "ScaledUpGroup", words)


def _helped(fact: str, end: OperationEnd) -> list[Event]:
    one = end.operation
    return about_pods(
        fact,
        one.spec.pods,
        "TriggeredScaleUp",
        triggered(one.spec.group, one.spec.from_size, one.spec.to_size, end.largest),
    )


def _not_grown(fact: str, end: OperationEnd) -> list[Event]:
    return about_status(fact, end.options, "FailedToScaleUpGroup", _no_growth(end), type_=WARNING)


def _let_down(fact: str, end: OperationEnd) -> list[Event]:
    """Report the failure on the pods that triggered the scale-up as well, so that their owners see the vendor's
    response."""
    return about_pods(fact, end.operation.spec.pods, "FailedToScaleUpGroup", _no_growth(end), type_=WARNING)


def _no_growth(end: OperationEnd) -> str:
    return f"Scale-up failed for group {end.operation.spec.group}: {_error(end)}"


def _removed(fact: str, end: OperationEnd) -> list[Event]:
    events: list[Event] = []
    for target in end.operation.spec.targets:
        if kept(end.outcome, target.node):
            continue
        reason, words = (
            ("ScaleDown", f"Scale-down: node {target.node} removed with drain")
            if target.evict
            else ("ScaleDownEmpty", f"Scale-down: empty node {target.node} removed")
        )
        events += about_status(f"{fact}, {'drained' if target.evict else 'empty'}", end.options, reason, words)
    return events


def _left(fact: str, end: OperationEnd) -> list[Event]:
    """Report each node's own result, because some of several nodes may have been kept."""
    events = []
    for target in end.operation.spec.targets:
        why = kept(end.outcome, target.node)
        failed = "failed to drain and delete node" if target.evict else "failed to delete empty node"
        events.append(
            about_node(f"{fact}: kept", target.node, "ScaleDownFailed", f"{failed}: {why}", type_=WARNING)
            if why
            else about_node(fact, target.node, "ScaleDown", REMOVED)
        )
    return events


def kept(outcome: Succeeded | Failed, node: str) -> str:
    """Return why this node of a removal still exists, empty if it does not."""
    return outcome.message if isinstance(outcome, Failed) else str(outcome.facts.get(f"kept {node}", ""))


def _not_reverted(fact: str, end: OperationEnd) -> list[Event]:
    words = f"Failed to decrease target size for group {end.operation.spec.group} after scale-up timeout: {_error(end)}"
    return about_status(fact, end.options, "FailedToRevertScaleUp", words, type_=WARNING)


def _discarded(fact: str, end: OperationEnd) -> list[Event]:
    return [
        event
        for target in end.operation.spec.targets
        for event in about_status(
            fact, end.options, "DeleteUnregistered", f"Removed unregistered node {target.instance}"
        )
    ]


def _not_discarded(fact: str, end: OperationEnd) -> list[Event]:
    return [
        event
        for target in end.operation.spec.targets
        for event in about_status(
            fact,
            end.options,
            "DeleteUnregisteredFailed",
            f"Failed to remove node {target.instance}: {_error(end)}",
            type_=WARNING,
        )
    ]


def _error(end: OperationEnd) -> str:
    """Return the vendor's message with the error class and the vendor's code, which operators search for."""
    failed = end.outcome
    assert isinstance(failed, Failed)
    name = f"{failed.error_class}.{failed.code}" if failed.code else failed.error_class
    return f"{name}: {failed.message}" if failed.message else name


_End = Callable[[str, OperationEnd], list[Event]]
ENDS: tuple[tuple[str, OperationKind, type[Succeeded] | type[Failed], _End], ...] = (
    ("scale-up done", OperationKind.SCALE_UP, Succeeded, _grown),
    ("scale-up failed", OperationKind.SCALE_UP, Failed, _not_grown),
    ("removal done", OperationKind.DELETE_NODES, Succeeded, _removed),
    ("node removed", OperationKind.DELETE_NODES, Succeeded, _left),
    ("node removed", OperationKind.DELETE_NODES, Failed, _left),
    ("target not lowered", OperationKind.DECREASE_TARGET, Failed, _not_reverted),
    ("instance discarded", OperationKind.DELETE_INSTANCES, Succeeded, _discarded),
    ("instance not discarded", OperationKind.DELETE_INSTANCES, Failed, _not_discarded),
    ("pod helped", OperationKind.SCALE_UP, Succeeded, _helped),
    ("pod let down", OperationKind.SCALE_UP, Failed, _let_down),
)


# -- steps of operations


def _marked(fact: str, step: OperationStep) -> list[Event]:
    if step.before.spec.kind is not OperationKind.DELETE_NODES or (step.before.status.step, step.outcome.step) != (
        "taint",
        "recheck",
    ):
        return []
    return [about_node(fact, target.node, "ScaleDown", MARKED) for target in step.before.spec.targets]


def _not_marked(fact: str, step: OperationStep) -> list[Event]:
    if (
        step.before.spec.kind is not OperationKind.DELETE_NODES
        or step.before.status.step != "taint"
        or not step.gives_up
    ):
        return []
    words = f"failed to mark the node as toBeDeleted/unschedulable: {step.why or 'see the end of the operation'}"
    return [
        about_node(fact, target.node, "ScaleDownFailed", words, type_=WARNING) for target in step.before.spec.targets
    ]


def _evicted(fact: str, step: OperationStep) -> list[Event]:
    return about_pods(fact, step.outcome.evicted, "ScaleDown", "deleting pod for node scale down")


def _not_evicted(fact: str, step: OperationStep) -> list[Event]:
    """Report a refused eviction only when the drain gives up, as upstream does, because it is retried every few
    seconds."""
    if not step.gives_up:
        return []
    return about_pods(
        fact, step.outcome.refused, "ScaleDownFailed", "failed to delete pod for ScaleDown", type_=WARNING
    )


STEPS: tuple[tuple[str, Callable[[str, OperationStep], list[Event]]], ...] = (
    ("node marked", _marked),
    ("node not marked", _not_marked),
    ("pod evicted", _evicted),
    ("pod not evicted", _not_evicted),
)
