"""The stored state of a cluster as people read it, made once from the rows: JSON,
pages and tables render it.

`as_json` gives the stable keys of `-o json` and of the read routes; instants are epoch seconds
here, 0.0 for never, and RFC 3339 or null there. No decision uses these values; the planner has its
own view of the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from chalicelib.model.cluster_bill import MILLION
from chalicelib.model.health import HealthState, Tone
from chalicelib.model.join_summary import join_summary
from chalicelib.model.memory import (
    PRIOR_HOURS,
    GroupMemory,
    InterruptionNotice,
    InterruptionRisk,
    JoinStatistics,
    Memory,
    ScaleUpRequest,
)
from chalicelib.model.operation import REPLACES, Operation
from chalicelib.model.overview import SpotOverview
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import Plan
from chalicelib.model.purchases import coming_for
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import Reason
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.no_place import NoPlace, no_place
from chalicelib.reasons.text import sentence
from chalicelib.reasons.words import counted
from chalicelib.store.leases import ScanState

LATE_AFTER = 180.0
"""Seconds beyond its interval after which a cluster's next pass is late."""
_SAME_TIME = 60.0
"""Seconds between the last pass and the numbers of a table that need no word."""


class Instant(float):
    """Epoch seconds, 0.0 for never."""


class Money(float):
    """An amount in units of its currency, made from millionths."""

    def __new__(cls, millionths: int) -> Money:
        """Return the amount."""
        return super().__new__(cls, millionths / MILLION)


View = TypeVar("View", bound=msgspec.Struct)


def view_of(value: msgspec.Struct, kind: type[View]) -> View:
    """Return a view of a value: each of its fields is the value's attribute of the same name."""
    return msgspec.convert(
        value, kind, from_attributes=True, dec_hook=lambda form, part: form(part)
    )


def as_json(view: msgspec.Struct) -> dict[str, Any]:
    """Return a view under its stable keys."""
    data: dict[str, Any] = msgspec.to_builtins(view, enc_hook=_written)
    return data


def _written(value: float) -> str | float | None:
    return instant(value) if isinstance(value, Instant) else float(value)


def instant(at: float) -> str | None:
    """Return RFC 3339 text, or None for never."""
    return format_time(at) if at > 0 else None


def exact(at: float) -> str:
    """Return an instant with microseconds, which identifies an entry of the journal."""
    micros = round(at * 1e6)
    return f"{format_time(micros // 10**6)[:-1]}.{micros % 10**6:06d}Z"


def coded(reason: Reason) -> dict[str, Any]:
    """Return a machine-readable reason: its code, its sentence and its numbers."""
    return {"code": reason.code.value, "message": sentence(reason), "params": dict(reason.params)}


# -- passes


class FailureView(msgspec.Struct, frozen=True, rename={"error_class": "class"}):
    """The passes that fail, since the first of them."""

    error_class: str
    message: str
    since: Instant
    at: Instant
    failures: int


class PassesView(msgspec.Struct, frozen=True, rename="camel"):
    """The last passes of a cluster."""

    last_pass: Instant
    last_success: Instant
    last_error: FailureView | None


def passes_view(scan: ScanState) -> PassesView:
    """Return the results of the last passes."""
    failure = scan.failure
    return PassesView(
        Instant(scan.last_pass),
        Instant(scan.last_success),
        FailureView(
            failure.cls, failure.message, Instant(failure.since), Instant(failure.at), failure.count
        )
        if failure
        else None,
    )


def older_numbers(counted_at: float, confirmed_at: float) -> float:
    """Return when the numbers of groups and nodes were counted, 0.0 where the last pass is hardly
    newer. Epoch seconds; counted_at is 0.0 where nothing was counted."""
    is_older = counted_at > 0 and confirmed_at - counted_at >= _SAME_TIME
    return counted_at if is_older else 0.0


def is_late(interval: float, scan: ScanState, applied_at: float, now: float) -> bool:
    """Return whether a pass is overdue: none has ended for the interval and LATE_AFTER. Where there
    never was one, this time begins when the policy is applied, so passes that never start are late
    like those that have stopped. applied_at: epoch seconds, 0.0: not known."""
    since = scan.last_pass or applied_at
    return since > 0 and now - since > interval + LATE_AFTER


def never_started(scan: ScanState) -> str:
    """Return what is known of the cause where no pass has ever ended: what a tick and a pass
    leave in the scan state."""
    if scan.lease_until:
        return "passes begin and do not end"
    if scan.queued_until:
        return "passes are asked for, and none begins"
    return "no tick has asked for one"


def health(
    interval: float | None, scan: ScanState, applied_at: float, now: float, *, planned: bool
) -> str:
    """Summarise Outscaler's own passes: the first of these that applies: unreadable (the stored
    policy), off, late (a pass is overdue), waiting (no pass yet), `failing: CLASS since INSTANT`,
    ok. If the last pass before an overdue one failed, `late, failing: …` says both. The health of
    nodes is part of the plan.

    interval: the policy's scanInterval in seconds, None where the policy cannot be read.
    applied_at: see is_late. planned: its mode makes plans.
    """
    if interval is None:
        return HealthState.NOT_READ.row.stable
    if not planned:
        return HealthState.OFF.row.stable
    late = is_late(interval, scan, applied_at, now)
    if not scan.last_pass and not late:
        return HealthState.NO_PASS_YET.row.stable
    parts = [HealthState.NO_PASSES.row.stable] if late else []
    if scan.failure:
        parts.append(f"failing: {scan.failure.cls} since {format_time(scan.failure.since)}")
    return ", ".join(parts) or HealthState.WELL.row.stable


class ClusterStatus(msgspec.Struct, frozen=True):
    """How a cluster is. word: one of model/health.py, so that no status depends on a colour.
    person: somebody must do something. detail: a sentence, "" where the word says it all. since:
    0.0: not known. rank: the worst is first."""

    word: str
    tone: Tone
    person: bool
    detail: str
    since: Instant
    rank: int

    def is_one_of(self, *states: HealthState) -> bool:
        """Return whether it is one of these."""
        return self.rank in {state.rank for state in states}


# -- groups


class ComingForView(msgspec.Struct, frozen=True, rename="camel"):
    """Pods of an owner (namespace/kind/name) for which nodes are coming; "": of further owners."""

    owner: str
    pods: int


class PurchaseView(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes of one purchase."""

    nodes: int
    since: Instant
    expected_at: Instant


class RequestView(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Nodes that were requested and have not arrived yet: all of them, with the times of the
    last purchase. purchases: each, the oldest first, where there are several. coming_for: the
    pods for which they were bought."""

    increase: int
    since: Instant
    expected_at: Instant
    purchases: tuple[PurchaseView, ...] = ()
    coming_for: tuple[ComingForView, ...] = ()

    @property
    def words(self) -> str:
        """`8 nodes until 10:20, 3 of them until 10:15`, each purchase with its own date."""
        text = f"{self.increase} nodes until {format_time(self.expected_at)}"
        earlier = (
            f"{row.nodes} of them until {format_time(row.expected_at)}"
            for row in self.purchases[:-1]
        )
        return ", ".join((text, *earlier))

    @property
    def coming_words(self) -> str:
        """For whom they come."""
        return coming_words((row.owner, row.pods) for row in self.coming_for)


MOST_COMING = 3
"""Owners that a line names."""


def coming_words(pods: Iterable[tuple[str, int]]) -> str:
    """Return `default/web (9 pods), default/api (2 pods)`; further pods are summed."""
    entries = tuple(pods)
    named = [(owner, count) for owner, count in entries if owner][:MOST_COMING]
    words = [f"{_short_owner(owner)} ({counted(count, 'pod')})" for owner, count in named]
    more = sum(count for _, count in entries) - sum(count for _, count in named)
    if more:
        words.append(counted(more, "more pod"))
    return ", ".join(words)


def _short_owner(owner: str) -> str:
    """Return namespace/name of namespace/kind/name; a pod without an owner has a namespace only."""
    namespace, _, rest = owner.partition("/")
    return f"{namespace}/{rest.rpartition('/')[2]}" if rest else f"{namespace}/ (no owner)"


class BackoffView(msgspec.Struct, frozen=True, rename={"error_class": "class"}):
    """Why and until when a group is not grown."""

    until: Instant
    error_class: str
    code: str
    message: str
    attempt: int

    @property
    def title(self) -> str:
        """Return the class of the error."""
        return self.error_class or "failed"


class ReadySeconds(msgspec.Struct, frozen=True):
    """Seconds from the request of a node until it is ready, of at most 100 joins."""

    median: int
    p95: int
    p99: int


class JoinsView(msgspec.Struct, frozen=True, rename="camel"):
    """What a node group has taught (docs/reference/learning.md). times: joins whose time is known;
    since_timeout: those since the last time-out. ready_seconds, failure_rate: None where nothing is
    known. joined, failed: nodes that came and did not, each halved every 7 days. starting: nodes
    that are not ready yet."""

    times: int = 0
    ready_seconds: ReadySeconds | None = None
    joined: float = 0.0
    failed: float = 0.0
    failure_rate: float | None = None
    starting: int = 0
    since_timeout: int = 0

    @property
    def ready_words(self) -> str:
        """Return `3m (p95 5m)`, "" where no time is known."""
        seconds = self.ready_seconds
        return (
            f"{_short(seconds.median)} (p95 {_short(seconds.p95)})" if seconds is not None else ""
        )

    @property
    def ready_line(self) -> str:
        """Return all figures of the time until ready, or that nothing is known yet."""
        seconds = self.ready_seconds
        if seconds is None:
            return "nothing is known yet: no node has joined whose request is known"
        ranks = (
            f"median {_short(seconds.median)}, p95 {_short(seconds.p95)}, p99 {_short(seconds.p99)}"
        )
        return f"{ranks}, of {counted(self.times, 'join')}"

    @property
    def fails_words(self) -> str:
        """Return `2%`, `<1%` for less than one, "" where nothing was counted."""
        if self.failure_rate is None:
            return ""
        return "<1%" if 0 < self.failure_rate < 0.01 else f"{round(100 * self.failure_rate)}%"

    @property
    def fails_line(self) -> str:
        """Return how often nodes fail to come, with the counts, or that nothing is known yet."""
        if self.failure_rate is None:
            return "nothing is known yet: no node has joined or failed"
        return (
            f"{self.fails_words}: {self.failed:g} failed and {self.joined:g} joined, halved every "
            "7 days"
        )


def joins_view(statistics: JoinStatistics | None, now: float) -> JoinsView:
    """Return what a group has taught, at `now`."""
    figures = join_summary(statistics, now)
    seconds = None
    if figures.median is not None and figures.p95 is not None and figures.p99 is not None:
        seconds = ReadySeconds(figures.median, figures.p95, figures.p99)
    return JoinsView(
        figures.joins,
        seconds,
        figures.joined,
        figures.failed,
        figures.failure_rate,
        len(statistics.starting) if statistics is not None else 0,
        statistics.since_timeout if statistics is not None else 0,
    )


def _short(seconds: int) -> str:
    """Return a duration, in whole minutes from ten of them on."""
    return format_duration(float(seconds if seconds < 600 else 60 * round(seconds / 60)))


class SpotView(msgspec.Struct, frozen=True, rename="camel"):
    """The risk of a spot group (docs/reference/spot.md "Risk"). interruptions, node_hours: learnt,
    both halved every 7 days. per_month: expected interruptions of a node in 30 days. premium: what
    they add to the price of a node and hour, None where it is not known. last_notice: of a node.
    avoided_until: until then it is bought only if nothing else fits; 0.0 where it is not avoided.
    leaving: nodes with a notice."""

    interruptions: float
    node_hours: float
    per_month: float
    premium: float | None
    last_notice: Instant
    avoided_until: Instant
    leaving: int

    @property
    def month_words(self) -> str:
        """Return `0.32 a month`."""
        return f"{self.per_month:.2g} a month"

    @property
    def risk_line(self) -> str:
        """Return what was counted, and what follows from it."""
        interruptions = counted(f"{self.interruptions:.3g}", "interruption")
        return (
            f"{interruptions} in {self.node_hours:.0f} node hours, halved every 7 days; "
            f"{self.month_words} is expected of a node"
        )


def spot_view(
    spot: SpotOverview | None, risk: InterruptionRisk | None, now: float
) -> SpotView | None:
    """Return the risk of a group, None of one that is not spot. spot: what the last pass knew."""
    if spot is None and (risk is None or not risk.counted_at):
        return None
    known, learnt = spot or SpotOverview(), risk or InterruptionRisk()
    hazard, last = float(learnt.hazard(known.rate)), min(learnt.last_notice, now)
    until = last + known.avoided_for if last > 0 and known.avoided_for else 0.0
    return SpotView(
        round(learnt.interruptions, 3),
        round(learnt.hours, 3),
        round(hazard * PRIOR_HOURS, 4),
        round(hazard * known.price, 6) if known.price else None,
        Instant(last),
        Instant(until if until > now else 0.0),
        len(learnt.notices),
    )


class NoticeView(msgspec.Struct, frozen=True, rename="camel"):
    """The notice of a node that its vendor takes back: since when it is known,
    and when the node leaves."""

    seen_at: Instant
    leaves_at: Instant


def notice_view(notice: InterruptionNotice | None) -> NoticeView | None:
    """Return a notice, None where there is none."""
    return view_of(notice, NoticeView) if notice is not None else None


class GroupView(msgspec.Struct, frozen=True, rename="camel"):
    """What is remembered of a node group. backoff: the last one, which may have ended.
    joins: what it has taught."""

    group: str
    target: int
    request: RequestView | None
    backoff: BackoffView | None
    last_add: Instant
    last_delete: Instant
    last_failure: Instant
    joins: JoinsView

    def backoff_at(self, now: float) -> BackoffView | None:
        """Return the back-off that is in force."""
        return self.backoff if self.backoff is not None and self.backoff.until >= now else None


def _request_view(request: ScaleUpRequest) -> RequestView:
    rows = request.purchases if len(request.purchases) > 1 else ()
    return RequestView(
        request.increase,
        Instant(request.since),
        Instant(request.expected_at),
        tuple(
            PurchaseView(row.count, Instant(row.since), Instant(row.expected_at)) for row in rows
        ),
        tuple(ComingForView(owner, pods) for owner, pods in coming_for(request)),
    )


def group_view(name: str, memory: GroupMemory, now: float) -> GroupView:
    """Return a node group at `now`."""
    request, backoff = memory.request, memory.backoff
    return GroupView(
        name,
        memory.target,
        _request_view(request) if request is not None else None,
        BackoffView(
            Instant(backoff.until), backoff.cls, backoff.code, backoff.message, backoff.attempt
        )
        if backoff
        else None,
        Instant(memory.last_add),
        Instant(memory.last_delete),
        Instant(memory.last_failure),
        joins_view(memory.joins, now),
    )


# -- operations


class OperationView(msgspec.Struct, frozen=True, rename="camel"):
    """An open operation. nodes: what it removes, by the name of the instance where there is no
    node. reason: of a removal of needed nodes; replacement: that it is part of; replaces: the
    old nodes of a purchase."""

    id: str
    kind: str
    provider: str
    group: str
    from_size: int = msgspec.field(name="from")
    to_size: int = msgspec.field(name="to")
    nodes: tuple[str, ...]
    state: str
    step: str
    attempt: int
    plan: str
    created_at: Instant
    due_at: Instant
    deadline: Instant
    claimed_by: str
    claimed_until: Instant
    sent_at: Instant
    reason: str
    replacement: str
    replaces: tuple[str, ...]

    @property
    def change(self) -> str:
        """Return the nodes, otherwise both sizes; and what they are for, if not for pods."""
        what = ", ".join(self.nodes) or f"{self.from_size} to {self.to_size}"
        purpose = f", replaces {', '.join(self.replaces)}" if self.replaces else ""
        return what + purpose + (f" ({self.reason})" if self.reason else "")


def operation_view(operation: Operation) -> OperationView:
    """Return an operation and its progress."""
    spec, status = operation.spec, operation.status
    return OperationView(
        id=spec.id,
        kind=spec.kind.value,
        provider=spec.provider,
        group=spec.group,
        from_size=spec.from_size,
        to_size=spec.to_size,
        nodes=tuple(target.node or target.instance for target in spec.targets),
        state=status.state.value,
        step=status.step,
        attempt=status.attempt,
        plan=spec.plan,
        created_at=Instant(spec.created_at),
        due_at=Instant(status.due_at),
        deadline=Instant(spec.deadline),
        claimed_by=status.claimed_by,
        claimed_until=Instant(status.claimed_until),
        sent_at=Instant(status.sent_at),
        reason=spec.reason,
        replacement=spec.replacement,
        replaces=tuple(name for name in status.data.get(REPLACES, "").split(",") if name),
    )


# -- pauses and the circuit breaker


class PauseView(msgspec.Struct, frozen=True):
    """A pause that is in force. group: "" for the whole cluster."""

    part: PausedPart
    group: str
    since: Instant
    until: Instant
    by: str
    reason: str

    @property
    def line(self) -> str:
        """Return the pause as one line, such as `removals of group web paused until …`."""
        what = "" if self.part == PausedPart.ALL else f"{self.part} "
        return f"{what}{f'of group {self.group} ' if self.group else ''}paused {self._until}"

    @property
    def paused_line(self) -> str:
        """Return the pause as one line that begins with PAUSED."""
        what = "" if self.part == PausedPart.ALL else f" ({self.part})"
        return f"PAUSED{what}{f' for group {self.group}' if self.group else ''} {self._until}"

    @property
    def _until(self) -> str:
        return f"until {format_time(self.until)} by {self.by or 'unknown'}: {self.reason}"


def pause_view(pause: Pause) -> PauseView:
    """Return a pause that is in force."""
    return view_of(pause, PauseView)


class RemovedView(msgspec.Struct, frozen=True):
    """Removals that count for the limits per hour."""

    nodes: int
    pods: int


class BreakerView(msgspec.Struct, frozen=True, rename="camel"):
    """The circuit breaker (spec.maxDisruption). pulled_at, wanted: when it was
    tripped, and by a plan that would have removed how many nodes. released_until: the
    end of an operator's override."""

    on: bool
    pulled_at: Instant
    wanted: int
    released_until: Instant
    last_hour: RemovedView

    @property
    def line(self) -> str:
        """Return it as a sentence."""
        hour = (
            f"nodes removed in the last hour: {self.last_hour.nodes}, pods moved: "
            f"{self.last_hour.pods}"
        )
        if self.on:
            tripped = format_time(self.pulled_at)
            return (
                f"tripped at {tripped} by a plan that removed {self.wanted} nodes at once; {hour}"
            )
        return (
            f"released until {format_time(self.released_until)}; {hour}"
            if self.released_until
            else (f"not tripped; {hour}")
        )


def breaker_view(memory: Memory, now: float) -> BreakerView:
    """Return the circuit breaker at `now`."""
    removals = memory.breaker.last_hour(now)
    released = memory.released_until if memory.released_until > now else 0.0
    return BreakerView(
        on=bool(memory.breaker.tripped_at) and not released,
        pulled_at=Instant(memory.breaker.tripped_at),
        wanted=memory.breaker.wanted,
        released_until=Instant(released),
        last_hour=RemovedView(
            sum(nodes for _, nodes, _ in removals), sum(pods for _, _, pods in removals)
        ),
    )


# -- the last decision, by object


class PodView(msgspec.Struct, frozen=True):
    """A waiting pod in a decision. decision: unschedulable, newNode, fitsExisting or
    notLookedAt. group: that grows for it. reasons: by group, why it gets no node; no_place: the
    same in short. reason: why it is not looked at."""

    pod: str
    decision: str
    group: str = ""
    reasons: Mapping[str, tuple[Reason, ...]] = {}
    reason: Reason | None = None
    no_place: NoPlace | None = None


def cause_data(place: NoPlace) -> dict[str, Any]:
    """Return why pods have no place under its stable keys; `others` says how many of the other
    groups have which reason."""
    return {"why": place.line, "nearest": list(place.nearest), "others": place.by_reason}


MOST_CLASSES, MOST_ALIKE = 100, 20
"""Pod classes of a read route, and pods that it names of each."""


def no_place_data(plan: Plan) -> list[dict[str, Any]]:
    """Return why pods of each class have no place, under stable keys; `count` is that of all its
    pods."""
    return [
        {
            "pods": pods.pods[:MOST_ALIKE],
            "count": len(pods.pods),
            **cause_data(no_place(pods, gaps=plan.gaps)),
        }
        for pods in plan.unschedulable[:MOST_CLASSES]
    ]


def node_names(plan: Plan) -> tuple[str, ...]:
    """Return the nodes of the cluster: a plan has a verdict about each."""
    named = {verdict.node for verdict in plan.unremovable} | {
        removal.node for removal in plan.removals
    }
    return tuple(sorted(named | set(plan.unneeded)))


def growth_words(group: str, *, is_paused: bool) -> tuple[str, str]:
    """Return the decision on pods for which a group grows, and why, in words. While the whole
    cluster is paused it does not grow. group: as people call it."""
    if is_paused:
        return "unschedulable", f"paused: group {group} would grow"
    return "newNode", f"group {group} grows"


def pod_views(plan: Plan, names: Mapping[str, str] = MappingProxyType({})) -> list[PodView]:
    """Return every waiting pod of a decision, those without a node first, then by name. names: of
    groups by their ids, as people call them."""
    unplaced: list[PodView] = []
    for row in plan.unschedulable:
        why = no_place(row, names, plan.gaps)
        unplaced += [
            PodView(pod, "unschedulable", reasons=row.reasons, no_place=why) for pod in row.pods
        ]
    lists = (
        unplaced,
        [PodView(pod, "newNode", group=up.group) for up in plan.scale_ups for pod in up.pods],
        [PodView(pod, "fitsExisting") for pod in plan.fits_existing],
        [
            PodView(pod, "notLookedAt", reason=row.reason)
            for row in plan.ignored
            for pod in row.pods
        ],
    )
    return [view for views in lists for view in sorted(views, key=lambda view: view.pod)]
