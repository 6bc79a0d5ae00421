"""One thing to tell, told everywhere it belongs: what a pass decided, what an operation came to.

The journal is the account and must be written; its errors are the caller's. Events and metrics are for those who watch:
they are given up silently but for the answer, which the caller logs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from chalicelib.model.operation import Kind, Operation
from chalicelib.model.outcome import Done, Failed
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Reason
from chalicelib.plan import explain
from chalicelib.record import events, journal, metrics
from chalicelib.record.events import Event, EventApi

EVENTS_APART = 300.0
"""Seconds in which the same event is not repeated (state.md §11)."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """Where to tell. events None: nobody in the cluster is told (a cluster in shadow is not written to at all).
    first_use: (key, seconds) -> whether this key was not used within so many seconds. emit: one line of metrics."""

    journal: journal.Journal
    events: EventApi | None
    first_use: Callable[[str, float], bool]
    emit: Callable[[str], None] = metrics.to_stdout
    repeat_events: bool = False


def record_plan(plan: Plan, recorder: Recorder, *, seconds: float, uids: Mapping[str, str] | None = None,
                text: Callable[[Reason], str] = explain.text) -> str:
    """Tell a decision. seconds: how long the pass took; uids: of pods, by namespace/name, where the caller knows them.

    A pass that decides what the last one decided writes nothing at all: no entry, and no event, for five minutes.
    The answer is the error that cut the events short, empty if none did.
    """
    for line in metrics.of_plan(plan, seconds):
        recorder.emit(line)
    journal.append_if_new(recorder.journal, plan)
    if recorder.events is None:
        return ""
    told = [event for verdict in plan.unschedulable for event in events.about_pods(
        verdict.pods, "NotTriggerScaleUp", events.not_triggered(verdict, text), uids=uids)][: events.PODS_TOLD]
    if not told or not (recorder.repeat_events or recorder.first_use(_signature(told), EVENTS_APART)):
        return ""
    return events.post_all(told, recorder.events, plan.at)[1]


def record_outcome(operation: Operation, outcome: Done | Failed, recorder: Recorder, now: float, *,
                   largest: int | None = None) -> str:
    """Tell the end of an operation, in its final state. largest: the group's maximum, if known. Answer as above."""
    for line in metrics.of_outcome(operation, outcome, now):
        recorder.emit(line)
    recorder.journal.append(operation.cluster, journal.of_outcome(operation, outcome, now))
    if recorder.events is None:
        return ""
    return events.post_all(_events_of(operation, outcome, largest), recorder.events, now)[1]


def record_marked(operation: Operation, recorder: Recorder, now: float) -> str:
    """Tell that an operation's nodes have been tainted and cordoned. Answer as above."""
    if recorder.events is None:
        return ""
    words = "marked the node as toBeDeleted/unschedulable"
    told = [events.about_node(target.node, "ScaleDown", words) for target in operation.targets]
    return events.post_all(told, recorder.events, now)[1]


def _events_of(operation: Operation, outcome: Done | Failed, largest: int | None) -> list[Event]:
    """Upstream's events for this end (state.md §11)."""
    if operation.kind is Kind.GROW and isinstance(outcome, Done):
        words = events.triggered(operation.group, operation.from_size, operation.to_size, largest)
        return events.about_pods(operation.pods, "TriggeredScaleUp", words)
    if operation.kind is not Kind.REMOVE:
        return []
    return [_node_event(target.node, _why_kept(target.node, outcome), occupied=bool(target.evict))
            for target in operation.targets]


def _why_kept(node: str, outcome: Done | Failed) -> str:
    if isinstance(outcome, Failed):
        return outcome.message
    return str(outcome.facts.get(f"kept {node}", ""))


def _node_event(node: str, why_kept: str, *, occupied: bool) -> Event:
    if not why_kept:
        return events.about_node(node, "ScaleDown", "nodes removed by cluster autoscaler")
    failed = "failed to drain and delete node" if occupied else "failed to delete empty node"
    return events.about_node(node, "ScaleDownFailed", f"{failed}: {why_kept}", type_=events.WARNING)


def _signature(told: list[Event]) -> str:
    """One row stands for all of them: what is told again is told whole, once anything in it has changed."""
    return "events:" + hashlib.sha256(msgspec.json.encode([(e.namespace, e.name, e.message) for e in told])).hexdigest()
