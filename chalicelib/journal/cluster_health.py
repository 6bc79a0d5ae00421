"""How a cluster is, in the words of model/health.py: one function for the page, `outscaler get` and
the read routes.

It reads what the tables say, and nothing of the cluster, so that passes that never start are
noticed like those that fail. What no pass has counted is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from chalicelib.journal.metrics import Values, key
from chalicelib.model.health import HealthState
from chalicelib.model.pause import Pause, PausedPart, in_force
from chalicelib.reasons.words import counted
from chalicelib.store.leases import ScanState
from chalicelib.views.cluster_view import ClusterStatus, Instant, is_late, never_started

if TYPE_CHECKING:
    from chalicelib.views.rows import GroupRow


class ClusterCounts(msgspec.Struct, frozen=True):
    """What the last pass has counted; None where none has. ready, unready: nodes; coming: on their
    way; most: that groups and policy allow; leaving. waiting: pods without a place when the pass
    began; without_node: those of them for which it did not help. is_unsafe: too many nodes are not
    ready. is_braked: the circuit breaker is tripped. nodes_behind_budgets: not needed, but a budget
    never allows their pods to go. The others count vendors and groups that are not well."""

    ready: int | None = None
    unready: int | None = None
    coming: int | None = None
    most: int | None = None
    leaving: int | None = None
    waiting: int | None = None
    without_node: int | None = None
    is_unsafe: bool = False
    is_braked: bool = False
    vendors_not_read: int = 0
    groups_not_read: int = 0
    groups_unhealthy: int = 0
    groups_cannot_grow: int = 0
    groups_backing_off: int = 0
    nodes_behind_budgets: int = 0

    @property
    def nodes(self) -> int | None:
        """Return the nodes that exist."""
        return _sum(self.ready, self.unready)

    @property
    def helped(self) -> int | None:
        """Return the waiting pods that have a node coming, or room."""
        if self.waiting is None or self.without_node is None:
            return None
        return self.waiting - self.without_node


def counts_of(gauges: Values) -> ClusterCounts:
    """Return what the gauges of the last pass say; see journal/metrics.py. A pass of an earlier
    release does not say which pods it helped: all of them count as waiting for a node."""

    def known(name: str, **labels: str) -> int | None:
        value = gauges.get(key(name, **labels))
        return int(value) if value is not None else None

    def unwell(state: str) -> int:
        return known("unwell_node_groups_count", state=state) or 0

    waiting = known("unschedulable_pods_count", type="unschedulable")
    without_node = known("pods_without_node_count")
    return ClusterCounts(
        ready=known("nodes_count", state="ready"),
        unready=known("nodes_count", state="unready"),
        coming=_sum(
            known("nodes_count", state="notStarted"), known("nodes_count", state="unregistered")
        ),
        most=known("max_nodes_count"),
        leaving=known("pending_node_deletions"),
        waiting=waiting,
        without_node=waiting if without_node is None else without_node,
        is_unsafe=gauges.get(key("cluster_safe_to_autoscale"), 1.0) == 0.0,
        is_braked=gauges.get(key("brake"), 0.0) > 0,
        vendors_not_read=known("unread_providers_count") or 0,
        groups_not_read=unwell("notRead"),
        groups_unhealthy=unwell("unhealthy"),
        groups_cannot_grow=unwell("cannotGrow"),
        groups_backing_off=unwell("backingOff"),
        nodes_behind_budgets=known("nodes_behind_budgets_count") or 0,
    )


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


_COUNTED = {
    HealthState.GROUP_NOT_READ: "groups_not_read",
    HealthState.GROUP_UNHEALTHY: "groups_unhealthy",
    HealthState.GROUP_CANNOT_GROW: "groups_cannot_grow",
    HealthState.GROUP_BACKING_OFF: "groups_backing_off",
}


def with_groups(counts: ClusterCounts, rows: Iterable[GroupRow]) -> ClusterCounts:
    """Return the counts of groups as their rows show them now, so that the tag of a cluster and
    the states of its groups are of the same instant."""
    statuses = [row.status for row in rows]
    now = {
        name: sum(status.is_one_of(state) for status in statuses)
        for state, name in _COUNTED.items()
    }
    return msgspec.structs.replace(counts, **now)


class ClusterSituation(msgspec.Struct, frozen=True):
    """What is known of a cluster. problem: why its policy or its rows cannot be used, "" where they
    can. plans: its mode makes plans. interval: the scanInterval in seconds, None where it is not
    known. applied_at: of the policy in force (epoch seconds). failure: of the last pass, as it may
    be shown, "" where it succeeded. pauses: ended ones, too."""

    problem: str
    plans: bool
    interval: float | None
    applied_at: float
    scan: ScanState
    failure: str
    counts: ClusterCounts
    pauses: Sequence[Pause] = ()


def cluster_status(situation: ClusterSituation, now: float) -> ClusterStatus:
    """Return the first status that applies, the worst first."""
    return next(_statuses(situation, now))


def _statuses(situation: ClusterSituation, now: float) -> Iterator[ClusterStatus]:
    scan = situation.scan
    counts = situation.counts
    failure = situation.failure
    failing_since = scan.failure.since if scan.failure is not None else 0.0
    if situation.problem:
        yield _status(HealthState.NOT_READ, situation.problem)
    if not situation.plans:
        yield _status(HealthState.OFF)
    interval = situation.interval
    if interval is not None and is_late(interval, scan, situation.applied_at, now):
        detail = failure or _overdue(situation)
        since = scan.last_pass or situation.applied_at
        yield _status(HealthState.NO_PASSES, detail, since=since)
    if failure:
        yield _status(HealthState.PASSES_FAIL, failure, since=failing_since)
    if counts.is_braked:
        yield _status(HealthState.BREAKER_TRIPPED, HealthState.BREAKER_TRIPPED.row.meaning)
    if counts.is_unsafe:
        yield _status(HealthState.CLUSTER_UNHEALTHY, HealthState.CLUSTER_UNHEALTHY.row.meaning)
    yield from _counted(HealthState.VENDORS_NOT_READ, counts.vendors_not_read, "vendor")
    yield from _counted(HealthState.GROUPS_NOT_READ, counts.groups_not_read, "group")
    yield from _counted(HealthState.GROUPS_UNHEALTHY, counts.groups_unhealthy, "group")
    yield from _counted(HealthState.GROUPS_CANNOT_GROW, counts.groups_cannot_grow, "group")
    of_part = {
        pause.part: pause for pause in in_force(situation.pauses, now)[::-1] if not pause.group
    }
    yield from _paused(HealthState.PAUSED, of_part.get(PausedPart.ALL))
    yield from _paused(HealthState.GROWTH_PAUSED, of_part.get(PausedPart.GROWTH))
    helped = counts.helped or 0
    coming = f"a node is coming for {counted(helped, 'other pod')}" if helped else ""
    yield from _counted(HealthState.PODS_WITHOUT_NODE, counts.without_node, "pod", coming)
    yield from _paused(HealthState.REMOVALS_PAUSED, of_part.get(PausedPart.REMOVALS))
    yield from _counted(HealthState.GROUPS_BACKING_OFF, counts.groups_backing_off, "group")
    yield from _counted(HealthState.NODES_BEHIND_BUDGETS, counts.nodes_behind_budgets, "node")
    if not scan.last_pass:
        yield _status(HealthState.NO_PASS_YET)
    yield from _counted(HealthState.PODS_COMING, helped, "pod")
    yield _status(HealthState.WELL)


def _overdue(situation: ClusterSituation) -> str:
    if situation.scan.last_pass:
        return ""
    return f"none since the policy was applied: {never_started(situation.scan)}"


def _status(
    state: HealthState, detail: str = "", *, word: str = "", since: float = 0.0
) -> ClusterStatus:
    row = state.row
    text = word or row.word
    return ClusterStatus(text, row.tone, row.person, detail, Instant(since), state.rank)


def _counted(
    state: HealthState, count: int | None, noun: str, detail: str = ""
) -> Iterator[ClusterStatus]:
    if count:
        yield _status(state, detail, word=state.word.format(counted(count, noun)))


def _paused(state: HealthState, pause: Pause | None) -> Iterator[ClusterStatus]:
    if pause is not None:
        yield _status(state, pause.reason, since=pause.since)
