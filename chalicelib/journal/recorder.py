"""Reports one pass or operation to all destinations: the journal, the status
ConfigMap, events and metrics.

The journal is the authoritative record, and its errors are raised to the caller. The status
ConfigMap, events and metrics are for observers: each is tried separately, failures are returned as
text for the log, and no work is undone or repeated for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from chalicelib.cluster import objects
from chalicelib.cluster.client import LazyKubeClient
from chalicelib.cluster.errors import ClusterError, NotFound, Unavailable
from chalicelib.cluster.objects import ConfigMap, get_pod, post_event
from chalicelib.journal import (
    events,
    journal,
    metric_values,
    metrics,
    operation_events,
    status_configmap,
)
from chalicelib.journal.carry_over import CarryOver, PublishedStatus
from chalicelib.journal.events import Event
from chalicelib.journal.metrics import Values
from chalicelib.model.cluster_bill import ClusterBill
from chalicelib.model.errors import published_name
from chalicelib.model.machine_offers import ClassFit, PodFits
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.model.overview import ClusterOverview
from chalicelib.model.pause import in_force, whole
from chalicelib.model.plan import Plan, TaintUpdate
from chalicelib.model.snapshot import OF_PROVIDER, Snapshot
from chalicelib.plan.state.readiness import is_ready
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Metrics
from chalicelib.store.codec import encode, fingerprint
from chalicelib.store.errors import StoreError
from chalicelib.store.gauge_ring import EVERY, NO_EXTREMES, Extremes, GaugePoint
from chalicelib.store.journal import OFFERS_USED

if TYPE_CHECKING:
    from chalicelib.plan.state.cluster_state import ClusterState

_TRIES = 5


class WritableRecord(events.EventApi, status_configmap.ConfigMapApi, Protocol):
    """The cluster's API for writing events and the ConfigMap."""


class GaugeRing(Protocol):
    """The methods of the store's rings that are used here."""

    def add(
        self,
        cluster: str,
        point: GaugePoint,
        overview: ClusterOverview | None = None,
        *,
        seen: float,
        extremes: Extremes = NO_EXTREMES,
    ) -> None:
        """Store a point and the overview, and the extremes of the passes before it."""

    def add_overview(self, cluster: str, overview: ClusterOverview, now: float) -> None:
        """Store the overview."""

    def overview(self, cluster: str) -> ClusterOverview:
        """Return the stored overview."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """Destinations of a report. board None: nothing is written to the cluster (a cluster in shadow
    mode is never written to). clock: epoch seconds. emit: writes one line of metrics. metrics: what
    is written for CloudWatch. ring: the points of the page's charts and the overview of groups and
    nodes, None to store none. ended: reads the ended operations of a cluster."""

    journal: journal.Journal
    board: WritableRecord | None
    clock: Callable[[], float]
    options: Options
    emit: Callable[[str], None] = metrics.to_stdout
    metrics: Metrics = Metrics.SUMMARY
    ring: GaugeRing | None = None
    ended: Callable[[str], Sequence[Operation]] = lambda _: ()

    def emit_metrics(
        self, cluster: str, values: Values, now: float, fields: Mapping[str, str]
    ) -> None:
        """Write the values for CloudWatch, as far as the policy asks for them."""
        published = metrics.for_cloudwatch(values, self.metrics)
        for line in metrics.lines(cluster, published, now, fields=fields):
            self.emit(line)


class RecordResult(msgspec.Struct, frozen=True):
    """Result of reporting a pass. left, decision: for the next pass. trouble: what could
    not be reported, in words."""

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
    state: ClusterState | None = None,
) -> RecordResult:
    """Report a decision. old_carry_over, last: what the last pass carried over, and the digest of
    its decision. seconds: durations of the parts of the pass, by their names in metrics. marks:
    taints outside of operations that were written. state: with which it was decided; without it, no
    overview and no point of the charts is stored.

    A pass that decides the same as the last one writes nothing to the journal and posts
    no event for five minutes.
    """
    # of passes only: executors report the results of operations
    from chalicelib.journal import pass_events

    trouble: list[str] = []
    bill: ClusterBill | None = None
    decision = last
    decided = old_carry_over.decided
    new = journal.new_decision(plan, last, decided)
    if new:
        old_carry_over, fits = _offered(plan, state, recorder, old_carry_over, trouble)
        try:
            recorder.journal.append(plan.cluster, journal.plan_entry(plan, fits))
            decision, decided = new, plan.at
        except StoreError as error:
            trouble.append(f"journal: {published_name(error)}: {error}")
    # A new decision comes with the overview, so that people see both as of one time.
    is_seen = _is_ring_due(plan, old_carry_over) or decided != old_carry_over.decided
    if is_seen:
        old_carry_over, bill = _billed(plan, state, recorder, old_carry_over, trouble)
    measured = _measured(plan, snapshot, recorder, old_carry_over, seconds, state)
    carry_over = msgspec.structs.replace(measured, decided=decided)
    if recorder.ring is not None and state is not None:
        carry_over = _charted(
            plan, state, recorder.ring, carry_over, bill, trouble, is_seen=is_seen
        )
    if recorder.board is None:
        return RecordResult(carry_over, decision, tuple(trouble))
    if recorder.options.write_status_configmap:
        published, problem = _published(
            plan, recorder.options, carry_over.published, recorder.board
        )
        carry_over = msgspec.structs.replace(carry_over, published=published)
        if problem:
            trouble.append(f"status: {problem}")
    horizon = state.memory.consolidation.horizon if state is not None else None
    facts = pass_events.PassFacts(plan, snapshot, recorder.options, tuple(marks), horizon)
    all_events = pass_events.events_of_pass(facts)
    reported, problem = _announced(all_events, recorder, carry_over.told, plan.at)
    if problem:
        trouble.append(f"events: {problem}")
    carry_over = msgspec.structs.replace(carry_over, told=reported)
    return RecordResult(carry_over, decision, tuple(trouble))


def record_failure(
    cluster: str,
    error: BaseException,
    recorder: Recorder,
    old_carry_over: CarryOver,
    seconds: Mapping[str, float],
) -> CarryOver:
    """Report that a pass failed: an error of its type is counted. Returns what is
    carried over to the next pass."""
    counts = metric_values.error_counts(error)
    values = counts | _durations(seconds)
    fields = {"error": published_name(error)}
    recorder.emit_metrics(cluster, values, recorder.clock(), fields)
    return old_carry_over.counting(counts | metric_values.duration_counts(seconds))


def record_step(step: operation_events.OperationStep, recorder: Recorder) -> str:
    """Report a step of an operation that continues. Returns what stopped the events early, empty if
    nothing did. Raises StoreError."""
    spec = step.before.spec
    counts = metric_values.step_counts(step)
    recorder.emit_metrics(spec.cluster, counts, recorder.clock(), {"node_group": spec.group})
    return _entered(spec.cluster, counts, operation_events.events_of_step(step), recorder)


def record_outcome(
    operation: Operation,
    outcome: Succeeded | Failed,
    recorder: Recorder,
    *,
    largest: int | None = None,
    unready: frozenset[str] = frozenset(),
) -> str:
    """Report the end of an operation, in its final state. largest: the group's maximum, if known.
    unready: nodes that were not ready when their removal was planned. Returns what stopped the
    events early, empty if nothing did. Raises StoreError."""
    now = recorder.clock()
    cluster = operation.spec.cluster
    counts = metric_values.end_counts(operation, outcome, unready)
    fields = {"node_group": operation.spec.group}
    if isinstance(outcome, Failed) and outcome.code:
        fields["code"] = outcome.code
    recorder.emit_metrics(cluster, counts, now, fields)
    recorder.journal.append(cluster, journal.outcome_entry(operation, outcome, now))
    ending = operation_events.OperationEnd(operation, outcome, recorder.options, largest)
    return _entered(cluster, counts, operation_events.events_of_end(ending), recorder)


def _is_ring_due(plan: Plan, carry_over: CarryOver) -> bool:
    return plan.at // EVERY != carry_over.ring_at // EVERY


def _offered(
    plan: Plan,
    state: ClusterState | None,
    recorder: Recorder,
    old_carry_over: CarryOver,
    trouble: list[str],
) -> tuple[CarryOver, PodFits | None]:
    """Store what managed pools could buy, unless it is stored already; return what is carried over
    with its name, and what they have for the pods of the plan, None where nothing is stored."""
    if state is None or not state.snapshot.selections:
        return old_carry_over, None
    # not of every pass
    from chalicelib.journal.machine_offers import machine_offers, pool_fits, waiting_pods

    offers = machine_offers(state)
    name = f"{plan.at // OFFERS_USED:.0f}-{fingerprint(encode(offers))}"
    if name != old_carry_over.offers:
        try:
            recorder.journal.put_offers(plan.cluster, name, offers, plan.at)
        except StoreError as error:
            trouble.append(f"offers: {published_name(error)}: {error}")
            return old_carry_over, None
    class_of = {pod.key: pod.cls for pod in state.snapshot.pods}
    pods: dict[int, list[str]] = {}
    for key in waiting_pods(plan):
        if key in class_of:
            pods.setdefault(class_of[key], []).append(key)
    fits = pool_fits(state, pods)
    classes = tuple(ClassFit(tuple(keys), fits[cls]) for cls, keys in pods.items())
    return msgspec.structs.replace(old_carry_over, offers=name), PodFits(name, classes)


def _billed(
    plan: Plan,
    state: ClusterState | None,
    recorder: Recorder,
    old_carry_over: CarryOver,
    trouble: list[str],
) -> tuple[CarryOver, ClusterBill | None]:
    """Return the bill, and what is carried over with the metrics of it."""
    if state is None or recorder.ring is None:
        return old_carry_over, None
    from chalicelib.journal.pass_overview import pass_bill  # not of every pass

    try:
        billed = pass_bill(state, old_carry_over, lambda: recorder.ended(plan.cluster))
    except StoreError as error:
        trouble.append(f"savings: {published_name(error)}: {error}")
        unread = msgspec.structs.replace(old_carry_over, savings_at=plan.at)
        billed = pass_bill(state, unread, lambda: ())
        retried = msgspec.structs.replace(billed.carry_over, savings_at=old_carry_over.savings_at)
        billed = msgspec.structs.replace(billed, carry_over=retried)
    gauges = {
        name: value
        for name, value in old_carry_over.gauges.items()
        if metrics.parts(name)[0] not in metrics.COSTS
    }
    carry_over = msgspec.structs.replace(
        billed.carry_over.counting(billed.counts),
        gauges=gauges | billed.gauges,
    )
    return carry_over, billed.bill


def _measured(
    plan: Plan,
    snapshot: Snapshot,
    recorder: Recorder,
    old_carry_over: CarryOver,
    seconds: Mapping[str, float],
    state: ClusterState | None,
) -> CarryOver:
    """Write the metrics of a pass; return them with the nodes that it removes although they are not
    ready, for the executor, which only sees their removal."""
    groups = state.memory.groups if state is not None else {}
    pauses = state.policy.pauses if state is not None else ()
    gauges = metric_values.pass_gauges(
        plan,
        recorder.options,
        old_carry_over.gauges,
        groups,
        is_paused=whole(in_force(pauses, plan.at)) is not None,
    )
    if state is not None:
        gauges |= metric_values.lifecycle_gauges(plan, state)
        gauges |= metric_values.horizon_gauges(state)
        gauges |= metric_values.pool_gauges(state)
    counts = metric_values.pass_counts(plan)
    values = gauges | counts | _durations(seconds)
    recorder.emit_metrics(plan.cluster, values, plan.at, {"plan": plan.id})
    leaving: set[str] = set()
    for operation in plan.operations:
        if operation.spec.kind is OperationKind.DELETE_NODES:
            leaving.update(target.node for target in operation.spec.targets)
    leaving_nodes = [node for node in snapshot.nodes if node.name in leaving]
    unready = {node.name: plan.at for node in leaving_nodes if not is_ready(node, recorder.options)}
    all_counts = counts | metric_values.duration_counts(seconds)
    carry_over = old_carry_over.counting(all_counts).removing(unready, plan.at)
    return msgspec.structs.replace(carry_over, gauges=gauges)


def _charted(
    plan: Plan,
    state: ClusterState,
    ring: GaugeRing,
    old_carry_over: CarryOver,
    bill: ClusterBill | None,
    trouble: list[str],
    *,
    is_seen: bool,
) -> CarryOver:
    """Store what people see, if that is due, and the point of the charts; return what is carried
    over with the extremes that no stored point has yet."""
    own = _pass_extremes(plan, state, old_carry_over.gauges)
    extremes = old_carry_over.extremes.joined(own)
    is_point_due = _is_ring_due(plan, old_carry_over)
    if is_seen:
        try:
            _store_overview(plan, state, ring, old_carry_over, bill)
            extremes = own if is_point_due else extremes
        except StoreError as error:
            trouble.append(f"chart: {published_name(error)}: {error}")
    ring_at = plan.at if is_point_due else old_carry_over.ring_at
    return msgspec.structs.replace(old_carry_over, ring_at=ring_at, extremes=extremes)


def _pass_extremes(plan: Plan, state: ClusterState, gauges: Values) -> Extremes:
    """Return what one pass saw. Waiting pods are those of the metric: also those whose node is
    coming."""
    waiting = gauges[metrics.key("unschedulable_pods_count", type="unschedulable")]
    ready = plan.health.ready
    wanted = metric_values.wanted_nodes(plan, state)
    return Extremes(least_nodes=ready, nodes=ready, pending=int(waiting), wanted=wanted)


def _store_overview(
    plan: Plan,
    state: ClusterState,
    ring: GaugeRing,
    old_carry_over: CarryOver,
    bill: ClusterBill | None,
) -> None:
    """Store the overview, and the point of the charts where it is due. What was known of groups
    that could not be read is retained. Raises StoreError."""
    # not of every pass
    from chalicelib.journal.pass_overview import completed, pass_overview

    overview, point = pass_overview(plan, state, bill)
    gaps = [
        gap.kind.removeprefix(OF_PROVIDER)
        for gap in state.snapshot.gaps
        if gap.kind.startswith(OF_PROVIDER)
    ]
    if gaps or any(group.error for group in state.snapshot.groups):
        overview = completed(overview, ring.overview(plan.cluster), gaps)
    seen, extremes = old_carry_over.ring_at, old_carry_over.extremes
    if _is_ring_due(plan, old_carry_over):
        ring.add(plan.cluster, point, overview, seen=seen, extremes=extremes)
    else:
        ring.add_overview(plan.cluster, overview, plan.at)


def _durations(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return single durations, of which CloudWatch makes its own statistics; buckets are
    for the Prometheus page."""
    return {
        metrics.key("function_duration_seconds", function=name): round(took, 3)
        for name, took in seconds.items()
    }


# -- the cluster


def _published(
    plan: Plan, options: Options, old_status: PublishedStatus, record: WritableRecord
) -> tuple[PublishedStatus, str]:
    """Publish the status. A refusal counts as written: it is retried in a minute, not in every
    pass. A missing ConfigMap is reported once, until it has existed again."""
    try:
        return status_configmap.publish(plan, options, old_status, record), ""
    except ClusterError as error:
        problem = f"{published_name(error)}: {error}"
        is_missing = isinstance(error, NotFound)
        if is_missing:
            problem = "" if old_status.missing else status_configmap.how_to_make(options)
        digest = status_configmap.digest(status_configmap.document(plan, {}))
        return PublishedStatus(digest, plan.at, is_missing), problem


def _announced(
    all_events: Sequence[Event], recorder: Recorder, reported: bytes, now: float
) -> tuple[bytes, str]:
    """Post events that are not known yet; return the known ones afterwards.

    The event that was refused counts as reported, those after it do not: an API that accepts none
    is called once per pass, and one object that cannot have events (its namespace is being deleted)
    does not block the others permanently.
    """
    assert recorder.board is not None
    new, _ = events.filter_new(reported, [event.key for event in all_events], now)
    chosen = _chosen(all_events, new, recorder)
    tried, problem = events.post_all(chosen, recorder.board, recorder.clock)
    _, reported = events.filter_new(reported, [event.key for event in chosen[:tried]], now)
    return reported, problem


def _chosen(all_events: Sequence[Event], new: frozenset[bytes], recorder: Recorder) -> list[Event]:
    """Return each new fact once; all of them where the option recordDuplicatedEvents is set."""
    if recorder.options.record_duplicated_events:
        return list(all_events)
    by_key = {event.key: event for event in reversed(all_events) if event.key in new}
    return list(by_key.values())[::-1]


def _entered(cluster: str, counts: Values, all_events: Sequence[Event], recorder: Recorder) -> str:
    """Write counters and the reported events to the ledger, then post: one write, and one
    read where there are events.

    The events are recorded before they are posted: a crash in between loses an event and never
    repeats one. Where other writers keep changing the ledger, or the table fails, all events
    count as new and are posted.
    """
    if recorder.board is None:
        all_events = ()
    new = frozenset(event.key for event in all_events)
    trouble = []
    try:
        new = _new_in_ledger(cluster, counts, new, recorder)
    except StoreError as error:
        trouble.append(f"ledger: {published_name(error)}: {error}")
    chosen = _chosen(all_events, new, recorder)
    if recorder.board is not None and chosen:
        _, problem = events.post_all(chosen, recorder.board, recorder.clock)
        if problem:
            trouble.append(f"events: {problem}")
    return "; ".join(trouble)


def _new_in_ledger(
    cluster: str, counts: Values, keys: frozenset[bytes], recorder: Recorder
) -> frozenset[bytes]:
    """Return those of the keys that were not reported yet. Raises StoreError."""
    tries = _TRIES if keys else 0
    for _ in range(tries):
        ledger = recorder.journal.ledger(cluster)
        new, reported = events.filter_new(ledger.state, keys, recorder.clock())
        if reported == ledger.state:
            keys = new
            break
        if recorder.journal.tell(cluster, counts, reported, expected=ledger.version):
            return new
    if counts:
        recorder.journal.count(cluster, counts)
    return keys


class _WrittenMeta(msgspec.Struct, frozen=True):
    uid: str


class _Object(msgspec.Struct, frozen=True):
    metadata: _WrittenMeta


class ClusterWriter(LazyKubeClient):
    """Implements WritableRecord; connects when the first event is posted. Reporting must not delay
    a pass: each write has half the time of other writes."""

    def uid_of(self, kind: str, namespace: str, name: str) -> str:
        """See EventApi."""
        if kind == "ConfigMap":
            return objects.get_config_map(self.connected, namespace, name).uid
        try:
            pod = msgspec.json.decode(get_pod(self.connected, namespace, name), type=_Object)
        except msgspec.MsgspecError as error:
            raise Unavailable(f"the answer is not a Pod: {error}") from None
        return pod.metadata.uid

    def post(self, event: Event, now: float) -> None:
        """See EventApi."""
        involved = {"kind": event.kind, "name": event.name, "uid": event.uid}
        if event.api_version:
            involved["apiVersion"] = event.api_version
        post_event(
            self.connected,
            namespace=event.namespace,
            involved=involved,
            reason=event.reason,
            message=event.message,
            type_=event.type,
            now=now,
        )

    def find(self, namespace: str, name: str) -> ConfigMap:
        """See ConfigMapApi."""
        return objects.get_config_map(self.connected, namespace, name)

    def change(
        self,
        namespace: str,
        name: str,
        config_map: ConfigMap,
        data: dict[str, str],
        annotations: dict[str, str],
    ) -> None:
        """See ConfigMapApi."""
        objects.patch_config_map(self.connected, namespace, name, config_map, data, annotations)
