"""Reports one pass or operation to all destinations: the journal, the status ConfigMap, events and metrics.

The journal is the authoritative record, and its errors are raised to the caller. The status ConfigMap, events and
metrics are for observers: each is tried separately, failures are returned as text for the log, and no work is undone or
repeated for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from chalicelib.kube.errors import ClusterError, NotFound
from chalicelib.model.errors import published_name
from chalicelib.model.gauge_ring import EVERY
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.model.plan import Plan, TaintUpdate
from chalicelib.model.policy import Metrics, Options
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.state.readiness import is_ready
from chalicelib.record import (
    counters,
    event_dedup,
    events,
    gauges,
    journal,
    metric_summary,
    metrics,
    operation_events,
    status_configmap,
)
from chalicelib.record.carry_over import CarryOver, PublishedStatus
from chalicelib.record.events import Event
from chalicelib.store.errors import StoreError

_TRIES = 5


class WritableRecord(events.EventApi, status_configmap.ConfigMapApi, Protocol):
    """The cluster's API for writing events and the ConfigMap."""


class GaugeRing(Protocol):
    """The method of the store's rings that is used here."""

    def add(self, cluster: str, at: float, nodes: int, pending: int) -> None:
        """Store a point."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """Destinations of a report. board None: nothing is written to the cluster (a cluster in shadow mode is never
    written to). clock: epoch seconds. emit: writes one line of metrics. metrics: what is written for CloudWatch. ring:
    the points of the page's charts, None to store none."""

    journal: journal.Journal
    board: WritableRecord | None
    clock: Callable[[], float]
    options: Options
    emit: Callable[[str], None] = metrics.to_stdout
    metrics: Metrics = Metrics.SUMMARY
    ring: GaugeRing | None = None


class RecordResult(msgspec.Struct, frozen=True):
    """Result of reporting a pass. left, decision: for the next pass. trouble: what could not be reported, in words."""

    left: CarryOver
    decision: str
    trouble: tuple[str, ...] = ()


def record_plan(
    plan: Plan,
    snapshot: Snapshot,
    recorder: Recorder,
    old_carry_over: CarryOver,
    last: str,
    *,
    seconds: Mapping[str, float],
    marks: Sequence[TaintUpdate] = (),
) -> RecordResult:
    """Report a decision. old_carry_over, last: what the last pass carried over, and the digest of its decision.
    seconds: durations of the parts of the pass, by their names in metrics. marks: taints outside of operations that
    were written.

    A pass that decides the same as the last one writes nothing to the journal and posts no event for five minutes.
    """
    from chalicelib.record import pass_events, pass_facts  # of passes only: executors report the results of operations

    trouble: list[str] = []
    decision, decided = last, old_carry_over.decided
    try:
        decision, decided = journal.append_if_new(recorder.journal, plan, last, old_carry_over.decided)
    except StoreError as error:
        trouble.append(f"journal: {published_name(error)}: {error}")
    left = msgspec.structs.replace(_measured(plan, snapshot, recorder, old_carry_over, seconds), decided=decided)
    left = _with_point(plan, recorder, left, trouble)
    if recorder.board is None:
        return RecordResult(left, decision, tuple(trouble))
    if recorder.options.write_status_configmap:
        published, problem = _published(plan, recorder.options, left.published, recorder.board)
        left = msgspec.structs.replace(left, published=published)
        trouble += [f"status: {problem}"] * bool(problem)
    seen = pass_facts.PassFacts(plan, snapshot, recorder.options, tuple(marks))
    told, problem = _announced(pass_events.events_of_pass(seen), recorder, left.told, plan.at)
    trouble += [f"events: {problem}"] * bool(problem)
    return RecordResult(msgspec.structs.replace(left, told=told), decision, tuple(trouble))


def record_failure(
    cluster: str, error: BaseException, recorder: Recorder, old_carry_over: CarryOver, seconds: Mapping[str, float]
) -> CarryOver:
    """Report that a pass failed: an error of its type is counted. Returns what is carried over to the next pass."""
    grown = counters.of_error(error)
    _emit(cluster, grown | _durations(seconds), recorder, recorder.clock(), {"error": published_name(error)})
    return old_carry_over.counting(grown | gauges.timed(seconds))


def record_step(step: operation_events.OperationStep, recorder: Recorder) -> str:
    """Report a step of an operation that continues. Returns what stopped the events early, empty if nothing did. Raises
    StoreError."""
    operation, grown = step.before, counters.of_step(step)
    _emit(operation.spec.cluster, grown, recorder, recorder.clock(), {"node_group": operation.spec.group})
    return _entered(operation.spec.cluster, grown, operation_events.events_of_step(step), recorder)


def record_outcome(
    operation: Operation,
    outcome: Succeeded | Failed,
    recorder: Recorder,
    *,
    largest: int | None = None,
    unready: frozenset[str] = frozenset(),
) -> str:
    """Report the end of an operation, in its final state. largest: the group's maximum, if known. unready: nodes that
    were not ready when their removal was planned. Returns what stopped the events early, empty if nothing did.
    Raises StoreError."""
    now, grown = recorder.clock(), counters.of_end(operation, outcome, unready)
    fields = {"node_group": operation.spec.group}
    if isinstance(outcome, Failed) and outcome.code:
        fields["code"] = outcome.code
    _emit(operation.spec.cluster, grown, recorder, now, fields)
    recorder.journal.append(operation.spec.cluster, journal.of_outcome(operation, outcome, now))
    ending = operation_events.OperationEnd(operation, outcome, recorder.options, largest)
    return _entered(operation.spec.cluster, grown, operation_events.events_of_end(ending), recorder)


# -- metrics


def _with_point(plan: Plan, recorder: Recorder, carry_over: CarryOver, trouble: list[str]) -> CarryOver:
    """Store a point of the charts every five minutes; `carry_over` has the instant of the last one."""
    if recorder.ring is None or plan.at // EVERY == carry_over.ring_at // EVERY:
        return carry_over
    pending = sum(len(each.pods) for each in plan.unschedulable) + sum(len(each.pods) for each in plan.scale_ups)
    try:
        recorder.ring.add(plan.cluster, plan.at, plan.health.registered, pending)
    except StoreError as error:
        trouble.append(f"chart: {published_name(error)}: {error}")
    return msgspec.structs.replace(carry_over, ring_at=plan.at)


def _measured(
    plan: Plan, snapshot: Snapshot, recorder: Recorder, old_carry_over: CarryOver, seconds: Mapping[str, float]
) -> CarryOver:
    now_gauges, grown = gauges.of_pass(plan, recorder.options, old_carry_over.gauges), gauges.counted(plan)
    _emit(plan.cluster, now_gauges | grown | _durations(seconds), recorder, plan.at, {"plan": plan.id})
    left = old_carry_over.counting(grown | gauges.timed(seconds)).removing(
        _unready(plan, snapshot, recorder.options), plan.at
    )
    return msgspec.structs.replace(left, gauges=now_gauges)


def _unready(plan: Plan, snapshot: Snapshot, options: Options) -> dict[str, float]:
    """Return the nodes that this pass removes although they are not ready, for the executor, which only sees their
    removal."""
    leaving = {
        target.node
        for operation in plan.operations
        if operation.spec.kind is OperationKind.DELETE_NODES
        for target in operation.spec.targets
    }
    return {node.name: plan.at for node in snapshot.nodes if node.name in leaving and not is_ready(node, options)}


def _durations(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return single durations, of which CloudWatch makes its own statistics; buckets are for the Prometheus page."""
    return {metrics.key("function_duration_seconds", function=name): round(took, 3) for name, took in seconds.items()}


def _emit(cluster: str, values: metrics.Values, recorder: Recorder, now: float, fields: Mapping[str, str]) -> None:
    for line in metrics.lines(cluster, metric_summary.chosen(values, recorder.metrics), now, fields=fields):
        recorder.emit(line)


# -- the cluster


def _published(
    plan: Plan, options: Options, old_status: PublishedStatus, record: WritableRecord
) -> tuple[PublishedStatus, str]:
    """Publish the status. A refusal counts as written: it is retried in a minute, not in every pass. A missing
    ConfigMap is reported once, until it has existed again."""
    try:
        return status_configmap.publish(plan, options, old_status, record), ""
    except ClusterError as error:
        said, missing = status_configmap.digest(status_configmap.document(plan, {})), isinstance(error, NotFound)
        problem = status_configmap.how_to_make(options) if missing else f"{published_name(error)}: {error}"
        return PublishedStatus(said, plan.at, missing), "" if missing and old_status.missing else problem


def _announced(told_of: Sequence[Event], recorder: Recorder, told: bytes, now: float) -> tuple[bytes, str]:
    """Post events that are not known yet; return the known ones afterwards.

    The event that was refused counts as reported, those after it do not: an API that accepts none is called once per
    pass, and one object that cannot have events (its namespace is being deleted) does not block the others permanently.
    """
    assert recorder.board is not None
    chosen = _chosen(told_of, event_dedup.filter_new(told, [event.key for event in told_of], now)[0], recorder)
    tried, problem = events.post_all(chosen, recorder.board, recorder.clock)
    return event_dedup.filter_new(told, [event.key for event in chosen[:tried]], now)[1], problem


def _chosen(told_of: Sequence[Event], new: frozenset[bytes], recorder: Recorder) -> list[Event]:
    """Return each fact once; all of them where the option recordDuplicatedEvents is set."""
    if recorder.options.record_duplicated_events:
        return list(told_of)
    return list({event.key: event for event in reversed(told_of) if event.key in new}.values())[::-1]


def _entered(cluster: str, grown: metrics.Values, told_of: Sequence[Event], recorder: Recorder) -> str:
    """Write counters and the reported events to the ledger, then post: one write, and one read where there are events.

    The events are recorded before they are posted: a crash in between loses an event and never repeats one. Where other
    writers keep changing the ledger, or the table fails, all events count as new and are posted.
    """
    if recorder.board is None:
        told_of = ()
    new, trouble = frozenset(event.key for event in told_of), ""
    try:
        new = _ledger(cluster, grown, new, recorder)
    except StoreError as error:
        trouble = f"ledger: {published_name(error)}: {error}"
    chosen = _chosen(told_of, new, recorder)
    if recorder.board is None or not chosen:
        return trouble
    problem = events.post_all(chosen, recorder.board, recorder.clock)[1]
    return "; ".join(filter(None, (trouble, f"events: {problem}" if problem else "")))


def _ledger(cluster: str, grown: metrics.Values, keys: frozenset[bytes], recorder: Recorder) -> frozenset[bytes]:
    """Return those of the keys that were not reported yet. Raises StoreError."""
    for _ in range(_TRIES if keys else 0):
        ledger = recorder.journal.ledger(cluster)
        new, told = event_dedup.filter_new(ledger.state, keys, recorder.clock())
        if told == ledger.state:
            keys = new
            break
        if recorder.journal.tell(cluster, grown, told, expected=ledger.version):
            return new
    if grown:
        recorder.journal.count(cluster, grown)
    return keys
