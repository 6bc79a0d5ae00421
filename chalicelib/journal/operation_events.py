"""Converts a step or the end of an operation to events: an ordered table from fact to event
(docs/events.md "Published events").

The operation's row is written before the report, and only the executor that wrote it reports: each
fact is reported once, even if its message was delivered several times.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.journal.events import (
    NORMAL,
    WARNING,
    Event,
    EventRow,
    about_node,
    about_pods,
    about_status,
    sizes,
)
from chalicelib.model.operation import Operation, OperationKind, OperationSpec
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.policy.settings.cluster_options import Options


class OperationEnd(msgspec.Struct, frozen=True):
    """An operation that is over, in its final state. largest: the group's maximum,
    None where it is not known."""

    operation: Operation
    outcome: Succeeded | Failed
    options: Options = Options()
    largest: int | None = None

    @property
    def spec(self) -> OperationSpec:
        """Return what was planned."""
        return self.operation.spec

    @property
    def error(self) -> str:
        """Return the vendor's message with the error class and the vendor's code,
        which operators search for."""
        failed = self.outcome
        assert isinstance(failed, Failed)
        name = f"{failed.error_class}.{failed.code}" if failed.code else failed.error_class
        return f"{name}: {failed.message}" if failed.message else name

    def status_event(
        self, fact: str, reason: str, message: str, type_: str = NORMAL
    ) -> list[Event]:
        """Return an event on the status ConfigMap; none where that is disabled."""
        return about_status(fact, self.options, reason, message, type_=type_)


class OperationStep(msgspec.Struct, frozen=True):
    """A step that did not end its operation. why: the reason, for a step
    that is being rolled back."""

    before: Operation
    outcome: InProgress
    why: str = ""

    @property
    def gives_up(self) -> bool:
        """Return whether the next step is the rollback of (some of) its nodes."""
        return self.outcome.step == "undo"

    @property
    def sets_taint(self) -> bool:
        """Return whether it was the step of a removal or a restart that marks the nodes."""
        kinds = (OperationKind.DELETE_NODES, OperationKind.RESTART_NODE)
        return self.before.spec.kind in kinds and self.before.status.step == "taint"


class EndEvent(EventRow, frozen=True):
    """A fact at the end of an operation of a kind, with one of these outcomes."""

    events: Callable[[str, OperationEnd], list[Event]]
    kind: OperationKind
    outcomes: tuple[type[Succeeded] | type[Failed], ...]


class StepEvent(EventRow, frozen=True):
    """A fact that a step makes."""

    events: Callable[[str, OperationStep], list[Event]]


def events_of_end(ending: OperationEnd) -> list[Event]:
    """Return every event of an operation's end."""
    all_events: list[Event] = []
    for row in ENDS:
        if ending.spec.kind is row.kind and isinstance(ending.outcome, row.outcomes):
            all_events += row.events(row.fact, ending)
    return all_events


def events_of_step(step: OperationStep) -> list[Event]:
    """Return every event of a step."""
    return [event for row in STEPS for event in row.events(row.fact, step)]


def triggered(group: str, old: int, new: int, largest: int | None) -> str:
    """Return the message `pod triggered scale-up: [{g 1->3 (max: 5)}]`
    (docs/events.md "Published events")."""
    bound = "" if largest is None else f" (max: {largest})"
    return f"pod triggered scale-up: [{{{group} {old}->{new}{bound}}}]"


def kept(outcome: Succeeded | Failed, node: str) -> str:
    """Return why this node of a removal still exists, empty if it does not."""
    if isinstance(outcome, Failed):
        return outcome.message
    return str(outcome.facts.get(f"kept {node}", ""))


def reason_of(spec: OperationSpec) -> str:
    """Return the reason of events about a drain: upstream's, but for what upstream does not do."""
    if spec.kind is OperationKind.RESTART_NODE:
        return "NodeRestart"
    return "NodeInterruption" if spec.interrupted else "ScaleDown"


# -- ends of operations


def _scaled_up(fact: str, end: OperationEnd) -> list[Event]:
    spec = end.spec
    size = sizes(spec.from_size, spec.to_size, end.largest)
    message = f"Scale-up: group {spec.group} size set to {size}"
    return end.status_event(fact, "ScaledUpGroup", message)


def _pods_helped(fact: str, end: OperationEnd) -> list[Event]:
    spec = end.spec
    message = triggered(spec.group, spec.from_size, spec.to_size, end.largest)
    return about_pods(fact, spec.pods, "TriggeredScaleUp", message)


def _scale_up_failed(fact: str, end: OperationEnd) -> list[Event]:
    message = f"Scale-up failed for group {end.spec.group}: {end.error}"
    return end.status_event(fact, "FailedToScaleUpGroup", message, WARNING)


def _pods_not_helped(fact: str, end: OperationEnd) -> list[Event]:
    """Report the failure on the pods that triggered the scale-up as well, so that their owners
    see the vendor's response."""
    message = f"Scale-up failed for group {end.spec.group}: {end.error}"
    return about_pods(fact, end.spec.pods, "FailedToScaleUpGroup", message, type_=WARNING)


def _removal_done(fact: str, end: OperationEnd) -> list[Event]:
    events: list[Event] = []
    for target in end.spec.targets:
        if kept(end.outcome, target.node):
            continue
        if end.spec.interrupted:
            message = f"Node {target.node} is gone: its vendor has taken it back"
            events += end.status_event(f"{fact}, interrupted", "NodeInterruption", message)
        elif target.evict:
            message = f"Scale-down: node {target.node} removed with drain"
            events += end.status_event(f"{fact}, drained", "ScaleDown", message)
        else:
            message = f"Scale-down: empty node {target.node} removed"
            events += end.status_event(f"{fact}, empty", "ScaleDownEmpty", message)
    return events


def _node_result(fact: str, end: OperationEnd) -> list[Event]:
    """Report each node's own result, because some of several nodes may have been kept."""
    events = []
    for target in end.spec.targets:
        node = target.node
        why = kept(end.outcome, node)
        own_fact = f"{fact}: kept" if why else fact
        if end.spec.interrupted:
            message = f"the node stays: {why}" if why else "the vendor has taken the node back"
            events.append(about_node(own_fact, node, "NodeInterruption", message))
        elif why:
            kind = "drain and delete node" if target.evict else "delete empty node"
            message = f"failed to {kind}: {why}"
            events.append(about_node(own_fact, node, "ScaleDownFailed", message, type_=WARNING))
        else:
            message = "nodes removed by cluster autoscaler"
            events.append(about_node(own_fact, node, "ScaleDown", message))
    return events


def _restarted(fact: str, end: OperationEnd) -> list[Event]:
    return [
        about_node(fact, target.node, "NodeRestart", "the node was restarted")
        for target in end.spec.targets
    ]


def _not_restarted(fact: str, end: OperationEnd) -> list[Event]:
    message = f"failed to restart the node: {end.error}"
    return [
        about_node(fact, target.node, "NodeRestartFailed", message, type_=WARNING)
        for target in end.spec.targets
    ]


def _target_not_lowered(fact: str, end: OperationEnd) -> list[Event]:
    group = end.spec.group
    message = (
        f"Failed to decrease target size for group {group} after scale-up timeout: {end.error}"
    )
    return end.status_event(fact, "FailedToRevertScaleUp", message, WARNING)


def _discarded(fact: str, end: OperationEnd) -> list[Event]:
    events: list[Event] = []
    for target in end.spec.targets:
        message = f"Removed unregistered node {target.instance}"
        events += end.status_event(fact, "DeleteUnregistered", message)
    return events


def _not_discarded(fact: str, end: OperationEnd) -> list[Event]:
    events: list[Event] = []
    for target in end.spec.targets:
        message = f"Failed to remove node {target.instance}: {end.error}"
        events += end.status_event(fact, "DeleteUnregisteredFailed", message, WARNING)
    return events


def _group_deleted(fact: str, end: OperationEnd) -> list[Event]:
    message = f"Deleted empty node group {end.spec.group}"
    return end.status_event(fact, "DeletedNodeGroup", message)


def _group_not_deleted(fact: str, end: OperationEnd) -> list[Event]:
    message = f"Failed to delete node group {end.spec.group}: {end.error}"
    return end.status_event(fact, "FailedToDeleteNodeGroup", message, WARNING)


ENDS: tuple[EndEvent, ...] = (
    EndEvent(
        "scale-up done",
        events=_scaled_up,
        kind=OperationKind.SCALE_UP,
        outcomes=(Succeeded,),
        on="status",
        reason="`ScaledUpGroup`",
        message="`Scale-up: group G size set to N instead of M (max: K)`",
    ),
    EndEvent(
        "scale-up failed",
        events=_scale_up_failed,
        kind=OperationKind.SCALE_UP,
        outcomes=(Failed,),
        on="status",
        reason="`FailedToScaleUpGroup` (Warning)",
        message="`Scale-up failed for group G: <class>.<code>: <the vendor's words>`",
    ),
    EndEvent(
        "removal done",
        events=_removal_done,
        kind=OperationKind.DELETE_NODES,
        outcomes=(Succeeded,),
        on="status",
        reason="`ScaleDownEmpty`, `ScaleDown`, `NodeInterruption`",
        message=(
            "`Scale-down: empty node X removed`, `Scale-down: node X removed with drain`; `Node X"
            " is gone: its vendor has taken it back`"
        ),
    ),
    EndEvent(
        "node removed",
        events=_node_result,
        kind=OperationKind.DELETE_NODES,
        outcomes=(Succeeded, Failed),
        on="node",
        reason="`ScaleDown`, `ScaleDownFailed` (Warning), `NodeInterruption`",
        message=(
            "`nodes removed by cluster autoscaler`; `failed to drain and delete node: …`, `failed"
            " to delete empty node: …`; `the vendor has taken the node back`, `the node stays: …`"
        ),
    ),
    EndEvent(
        "node restarted",
        events=_restarted,
        kind=OperationKind.RESTART_NODE,
        outcomes=(Succeeded,),
        on="node",
        reason="`NodeRestart`",
        message="`the node was restarted`",
    ),
    EndEvent(
        "node not restarted",
        events=_not_restarted,
        kind=OperationKind.RESTART_NODE,
        outcomes=(Failed,),
        on="node",
        reason="`NodeRestartFailed` (Warning)",
        message="`failed to restart the node: …`",
    ),
    EndEvent(
        "target not lowered",
        events=_target_not_lowered,
        kind=OperationKind.DECREASE_TARGET,
        outcomes=(Failed,),
        on="status",
        reason="`FailedToRevertScaleUp` (Warning)",
        message="`Failed to decrease target size for group G after scale-up timeout: …`",
    ),
    EndEvent(
        "instance discarded",
        events=_discarded,
        kind=OperationKind.DELETE_INSTANCES,
        outcomes=(Succeeded,),
        on="status",
        reason="`DeleteUnregistered`",
        message="`Removed unregistered node I`",
    ),
    EndEvent(
        "instance not discarded",
        events=_not_discarded,
        kind=OperationKind.DELETE_INSTANCES,
        outcomes=(Failed,),
        on="status",
        reason="`DeleteUnregisteredFailed` (Warning)",
        message="`Failed to remove node I: …`",
    ),
    EndEvent(
        "group deleted",
        events=_group_deleted,
        kind=OperationKind.REMOVE_GROUP,
        outcomes=(Succeeded,),
        on="status",
        reason="`DeletedNodeGroup`",
        message="`Deleted empty node group G`",
    ),
    EndEvent(
        "group not deleted",
        events=_group_not_deleted,
        kind=OperationKind.REMOVE_GROUP,
        outcomes=(Failed,),
        on="status",
        reason="`FailedToDeleteNodeGroup` (Warning)",
        message="`Failed to delete node group G: …`",
    ),
    EndEvent(
        "pod helped",
        events=_pods_helped,
        kind=OperationKind.SCALE_UP,
        outcomes=(Succeeded,),
        on="pod",
        reason="`TriggeredScaleUp`",
        message="`pod triggered scale-up: [{G M->N (max: K)}]`",
    ),
    EndEvent(
        "pod let down",
        events=_pods_not_helped,
        kind=OperationKind.SCALE_UP,
        outcomes=(Failed,),
        on="pod",
        reason="`FailedToScaleUpGroup` (Warning)",
        message="as `scale-up failed`; upstream publishes no event on the pods",
    ),
)


# -- steps of operations


def _marked(fact: str, step: OperationStep) -> list[Event]:
    spec = step.before.spec
    next_step = "evict" if spec.interrupted else "recheck"
    if not step.sets_taint or step.outcome.step != next_step:
        return []
    message = "marked the node as toBeDeleted/unschedulable"
    return [about_node(fact, target.node, reason_of(spec), message) for target in spec.targets]


def _not_marked(fact: str, step: OperationStep) -> list[Event]:
    if not step.sets_taint or not step.gives_up:
        return []
    why = step.why or "see the end of the operation"
    message = f"failed to mark the node as toBeDeleted/unschedulable: {why}"
    return [
        about_node(fact, target.node, "ScaleDownFailed", message, type_=WARNING)
        for target in step.before.spec.targets
    ]


_EVICTIONS = {
    "NodeRestart": "evicting pod, because its node will be restarted",
    "NodeInterruption": "evicting pod, because the vendor takes its node back",
}


def _evicted(fact: str, step: OperationStep) -> list[Event]:
    reason = reason_of(step.before.spec)
    message = _EVICTIONS.get(reason, "deleting pod for node scale down")
    return about_pods(fact, step.outcome.evicted, reason, message)


def _not_evicted(fact: str, step: OperationStep) -> list[Event]:
    """Report a refused eviction only when the drain gives up, as upstream does, because it is
    retried every few seconds."""
    refused = step.outcome.refused if step.gives_up else ()
    message = "failed to delete pod for ScaleDown"
    return about_pods(fact, refused, "ScaleDownFailed", message, type_=WARNING)


STEPS: tuple[StepEvent, ...] = (
    StepEvent(
        "node marked",
        events=_marked,
        on="node",
        reason="`ScaleDown`, `NodeInterruption`, `NodeRestart`",
        message="`marked the node as toBeDeleted/unschedulable`",
    ),
    StepEvent(
        "node not marked",
        events=_not_marked,
        on="node",
        reason="`ScaleDownFailed` (Warning)",
        message="`failed to mark the node as toBeDeleted/unschedulable: …`",
    ),
    StepEvent(
        "pod evicted",
        events=_evicted,
        on="pod",
        reason="`ScaleDown`, `NodeInterruption`, `NodeRestart`",
        message=(
            "`deleting pod for node scale down`; `evicting pod, because the vendor takes its node"
            " back`, `evicting pod, because its node will be restarted`"
        ),
    ),
    StepEvent(
        "pod not evicted",
        events=_not_evicted,
        on="pod",
        reason="`ScaleDownFailed` (Warning)",
        message="`failed to delete pod for ScaleDown`, when the drain has failed",
    ),
)
