"""The values of the templates: what each page says about a cluster.

Lists are bounded here; what is left out is counted and can be found on a page of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from chalicelib.model.cluster_bill import MILLION
from chalicelib.model.health import OF_PODS, HealthState, Tone
from chalicelib.model.operation import OperationKind
from chalicelib.model.pause import whole
from chalicelib.model.plan import Move, Plan
from chalicelib.model.reason import Reason
from chalicelib.page import charts
from chalicelib.page.attention import healing, needs, paused, under_way
from chalicelib.page.cluster_data import ClusterDetails, ClusterSummary
from chalicelib.page.render import money
from chalicelib.page.timeline import FILTERS, event_of, selected
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.text import sentence
from chalicelib.reasons.words import counted
from chalicelib.store.gauge_ring import EVERY, GaugePoint, extremes_of
from chalicelib.store.journal import JournalEntry
from chalicelib.views.cluster_view import ClusterStatus, growth_words, pod_views
from chalicelib.views.consolidation import horizon_view, reasons_by_node
from chalicelib.views.cost_view import (
    GIVEN_BACK,
    PARTS,
    BillView,
    CostView,
    cost_view,
    move_text,
)
from chalicelib.views.journal_lines import operation_of
from chalicelib.views.managed_pools import pool_rows
from chalicelib.views.rows import GroupRow, NodeRow, provider_title

UNKNOWN = "\N{EN DASH}"
"""What stands in place of a figure that no pass has made."""
PODS_SHOWN, LAST_SHOWN, ROWS = 10, 12, 1000
"""Lines of a cluster's page, and rows of a list at most."""


# -- all clusters


def cluster_rows(
    clusters: Sequence[ClusterSummary], now: float, words: str = ""
) -> list[dict[str, Any]]:
    """Return a line per cluster, the worst status first. words: a part of the name, "" for all."""
    rows = [
        cluster_row(summary, now)
        for summary in clusters
        if words.casefold() in summary.name.casefold()
    ]
    return sorted(rows, key=_urgency)


def _urgency(row: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Return what sorts clusters: those that are off, of which nothing else is known, are last."""
    status: ClusterStatus = row["status"]
    return status.is_one_of(HealthState.OFF), status.rank, row["name"]


def cluster_row(
    summary: ClusterSummary, now: float, groups: Sequence[GroupRow] = ()
) -> dict[str, Any]:
    """Return one line about a cluster. groups: where their rows are known. A count is None where no
    pass has made it."""
    counts = summary.counts
    last_pass = summary.passed.last_pass
    next_pass = 0.0
    if summary.policy and last_pass:
        next_pass = last_pass + summary.policy.scan_interval
    return {
        "name": summary.name,
        "status": summary.status_at(now, groups),
        "mode": summary.mode_word,
        "version": summary.version,
        "last_pass": last_pass,
        "next_pass": next_pass,
        "ready": counts.ready,
        "most": counts.most,
        "pending": counts.waiting,
        "without_node": counts.without_node,
        "helped": counts.helped,
        "leaving": counts.leaving,
    }


# -- one cluster


class Tile(msgspec.Struct, frozen=True):
    """One figure. note: below it. tone: of the value, "" for none."""

    title: str
    value: str
    note: str = ""
    tone: str = ""


def tiles(details: ClusterDetails, row: Mapping[str, Any], now: float) -> list[Tile]:
    """Return the figures of a cluster's page; those that are not known are left out."""
    groups = details.groups
    points = details.points
    rows = [_ready_tile(groups, row)]
    spots = [group.spot for group in groups if group.spot is not None]
    if spots:
        notices = sum(spot.leaving for spot in spots)
        note = f"{counted(notices, 'notice')} of vendors" if notices else "no notice of a vendor"
        ready = sum(group.ready or 0 for group in groups if group.spot is not None)
        rows.append(Tile("Spot nodes ready", str(ready), note, "warn" if notices else ""))
    rows.append(_waiting_tile(points, row))
    rows += _horizon_tiles(details.plan)
    if not points or now - points[-1].at >= 12 * EVERY:
        return rows
    last = points[-1]
    if last.cpu >= 0:
        memory = f"cpu · memory {last.memory}%" if last.memory >= 0 else "cpu"
        rows.append(Tile("Requested of allocatable", f"{last.cpu}%", memory))
    if last.cost > 0:
        currency = details.overview.currency
        rows.append(Tile("Cost an hour", money(last.cost, currency), _cost_note(details, last)))
    return rows


def _waiting_tile(points: Sequence[GaugePoint], row: Mapping[str, Any]) -> Tile:
    if row["pending"] is None:
        return Tile("Waiting pods", UNKNOWN, "not known yet")
    most_pending = max(row["pending"], extremes_of(points).pending)
    note = f"most in 24 hours: {most_pending}" if most_pending > 0 else "none in 24 hours"
    if row["helped"]:
        note = f"a node is coming for {row['helped']} · {note}"
    return Tile("Waiting pods", str(row["pending"]), note, "warn" if row["without_node"] else "")


def _horizon_tiles(plan: Plan) -> list[Tile]:
    view = horizon_view(plan)
    if view is None:
        return []
    report = view.report
    notes = [f"{view.staying} {view.would}stay"]
    if not view.would:
        notes.append(f"{report.marked} marked")
    if view.gone:
        notes.append(f"{view.gone} of {view.gone + view.leaving} gone")
    notes.append(f"at the end {money(report.end, report.currency)} an hour")
    return [Tile(f"Nodes that {view.would}leave", str(view.leaving), " · ".join(notes))]


def _ready_tile(groups: Sequence[GroupRow], row: Mapping[str, Any]) -> Tile:
    if row["ready"] is None:
        return Tile("Nodes ready", UNKNOWN, "not known yet")
    bounds = [group.max for group in groups if group.max is not None]
    most = row["most"] or (sum(bounds) if len(bounds) == len(groups) else 0)
    coming = sum(group.coming for group in groups)
    notes = []
    if most:
        notes.append(f"of {most} at most")
    if coming:
        notes.append(f"{coming} coming")
    if row["leaving"]:
        notes.append(f"{row['leaving']} leaving")
    return Tile("Nodes ready", str(row["ready"]), " · ".join(notes))


def _cost_note(details: ClusterDetails, last_point: GaugePoint) -> str:
    """Return what else is paid: in other currencies, or at unknown prices; otherwise how the cost
    has changed."""
    currency, bill = details.overview.currency, details.overview.bill
    others = [one for one in bill.bills if one.currency != currency] if bill is not None else []
    notes = [f"and {money(one.parts.paid / MILLION, one.currency)}" for one in others]
    unpriced = sum(group.ready or 0 for group in details.groups if group.price is None)
    if unpriced:
        notes.append(f"without {counted(unpriced, 'node')} of unknown price")
    return " · ".join(notes) or _change_note(details.points, last_point, currency)


def _change_note(points: Sequence[GaugePoint], last_point: GaugePoint, currency: str) -> str:
    priced = (point for point in points if point.cost >= 0)
    before = next((point for point in priced if last_point.at - point.at <= charts.DAY), None)
    if before is None or last_point.at - before.at < charts.DAY - charts.HOUR:
        return ""
    change = last_point.cost - before.cost
    if abs(change) < 0.005:
        return "as yesterday at this time"
    direction = "more" if change > 0 else "less"
    return f"{money(abs(change), currency)} {direction} than yesterday at this time"


def waiting_since(points: Sequence[GaugePoint]) -> float:
    """Return since when pods wait, according to the points; 0.0 where none does."""
    since = 0.0
    for point in reversed(points):
        if not point.pending:
            break
        since = point.at
    return since


def cluster_values(details: ClusterDetails, query: Mapping[str, str], now: float) -> dict[str, Any]:
    """Return the values of a cluster's page. query: range, show and kind, each
    "" for the usual choice."""
    plan = details.plan
    decided = details.groups if details.decision is not None else ()
    row = cluster_row(details.summary, now, decided)
    span = charts.span_of(query["range"] or charts.first_span(details.points, details.hours, now))
    events = [event_of(entry, details.names) for entry in details.entries]
    without_decisions = [event for event in events if event.kind != "decision"]
    marks = charts.marks_of(details.entries)
    chart_events = charts.charts(span, details.points, details.hours, marks, now)
    ignored = HealthState.POD_NOT_LOOKED_AT.word
    considered = [pods for pods in waiting_pods(details, "") if pods.word != ignored]
    return {
        "row": row,
        "waiting_since": waiting_since(details.points) if row["pending"] else 0.0,
        "coming": sum(group.coming for group in details.groups),
        "needs": needs(details, row["status"], now),
        "healing": healing(details, now),
        "paused": paused(details.summary.name, details.summary.pauses, details.names),
        "blocked": plan.paused,
        "under_way": under_way(details)[:ROWS],
        "tiles": tiles(details, row, now),
        "charts": chart_events,
        "mark_texts": [event_of(mark.entry, details.names).text for mark in chart_events.marks],
        "spans": charts.SPANS,
        "pods": considered[:PODS_SHOWN],
        "pods_total": len(pod_views(plan)),
        **group_values(details, query["show"]),
        "pools": [
            (row, provider_title(row.provider)) for row in pool_rows(details.overview.pools[:ROWS])
        ],
        "events": selected(without_decisions, query["kind"], "")[:LAST_SHOWN],
        "kinds": tuple(FILTERS),
        "kind": query["kind"] if query["kind"] in FILTERS else "all",
        "folded": sum(event.folded for event in events),
        "stays": stays(plan),
        "unconsolidated": unconsolidated(plan),
        "costs": costs(details),
    }


class BillRows(msgspec.Struct, frozen=True):
    """One bill: its view, and the parts of the price with what they are
    for, those that are not 0."""

    bill: BillView
    parts: tuple[tuple[str, float], ...]


class CostRows(msgspec.Struct, frozen=True):
    """What a cluster costs, as its page shows it. moves: what each is, and the move. given_back:
    what that is."""

    view: CostView
    bills: tuple[BillRows, ...]
    moves: tuple[tuple[str, Move], ...]
    given_back: str = GIVEN_BACK


def costs(details: ClusterDetails) -> CostRows | None:
    """Return what a cluster costs, None where no price is known."""
    if details.overview.bill is None:
        return None
    view = cost_view(details.overview.bill, details.plan)
    bills = tuple(BillRows(bill, _price_parts(bill)) for bill in view.bills)
    moves = tuple((move_text(move, details.names), move) for move in view.moves)
    return CostRows(view, bills, moves)


def _price_parts(bill: BillView) -> tuple[tuple[str, float], ...]:
    amounts = ((title, getattr(bill.parts, name)) for name, title in PARTS.items())
    return tuple((title, amount) for title, amount in amounts if amount)


def stays(plan: Plan) -> list[tuple[str, int, str]]:
    """Return why nodes stay: the code, how many, and what they are."""
    return _counted_reasons(verdict.reason for verdict in plan.unremovable)


def unconsolidated(plan: Plan) -> list[tuple[str, int, str]]:
    """Return why nodes are not consolidated: the code, how many, and what they are."""
    return _counted_reasons(reasons_by_node(plan).values())


def _counted_reasons(reasons: Iterable[Reason]) -> list[tuple[str, int, str]]:
    counts = Counter(reason.code for reason in reasons)
    return [
        (code.value, count, code.row.tile or code.value) for code, count in counts.most_common()
    ]


def group_values(details: ClusterDetails, show: str) -> dict[str, Any]:
    """Return the rows of the groups. show: problems, empty, or "" for all."""
    groups = details.groups
    problems = [row for row in groups if row.status.tone in (Tone.BAD, Tone.WARN)]
    empty = [row for row in groups if row.ready == 0 and not row.coming]
    chosen = {"problems": problems, "empty": empty}.get(show, list(groups))
    return {
        "groups": [(row, cells_of(row)) for row in chosen[:ROWS]],
        "show": show if show in ("problems", "empty") else "",
        "counts": (
            ("", counted(len(groups), "group")),
            ("problems", f"with a problem ({len(problems)})"),
            ("empty", f"empty ({len(empty)})"),
        )
        if details.is_known
        else (),
    }


def cells_of(row: GroupRow) -> charts.Cells:
    """Return the cells of a group's size; none where it is not known."""
    return charts.cells(row.ready or 0, row.coming, row.min or 0, row.max or 0)


# -- a group


class SizeHistory(msgspec.Struct, frozen=True):
    """A group's size over time, as the script draws it: instants and sizes, with commas."""

    times: str
    sizes: str
    first: int
    last: int


def size_history(entries: Sequence[JournalEntry], size: int, now: float) -> SizeHistory | None:
    """Return how a group's size changed, by its operations of 14 days that ended well; None where
    there is none. entries: of the group, newest first. size: its present target."""
    levels = [(now, size)]
    last = size
    for entry in entries:
        operation = operation_of(entry)
        if operation is None or not operation.succeeded or entry.at < now - 14 * charts.DAY:
            continue
        before = operation.from_size
        if before is None and operation.kind is OperationKind.DELETE_NODES:
            before = size + len(operation.target_names)
        if before is not None:
            after = size if operation.to_size is None else operation.to_size
            levels.append((entry.at, after))
            size = before
    if len(levels) == 1:
        return None
    oldest, _ = levels[-1]
    levels.append((oldest - charts.HOUR, size))
    levels.reverse()
    times = ",".join(f"{at:.0f}" for at, _ in levels)
    sizes = ",".join(f"{level:.0f}" for _, level in levels)
    return SizeHistory(times, sizes, size, last)


# -- nodes and pods


def shown_nodes(nodes: Sequence[NodeRow], code: str, group: str, words: str) -> list[NodeRow]:
    """Return the nodes with this code of a reason, of this group, and with this part
    of the name; "" for all."""
    shown = [row for row in nodes if words in row.node]
    if group:
        shown = [row for row in shown if row.group == group]
    if code:
        shown = [row for row in shown if code in _reason_codes(row)]
    return shown


def _reason_codes(row: NodeRow) -> set[str]:
    reasons = (row.reason, row.consolidation)
    return {reason.code.value for reason in reasons if reason is not None}


class WaitingPods(msgspec.Struct, frozen=True):
    """Pods of the last decision that wait for the same reason. reason: the first that counts.
    groups: id, name and reasons of each group."""

    pods: tuple[str, ...]
    word: str
    tone: Tone
    reason: str
    groups: tuple[tuple[str, str, tuple[Reason, ...]], ...] = ()


def waiting_pods(details: ClusterDetails, words: str) -> list[WaitingPods]:
    """Return the waiting pods with this part of the name, those without a node
    first; alike ones together."""
    plan = details.plan
    is_paused = whole(details.summary.pauses) is not None
    rows = []
    for verdict in plan.unschedulable:
        reason = no_place(verdict, details.names, plan.gaps).line
        rows.append(_waiting(verdict.pods, "unschedulable", reason, details, verdict.reasons))
    for up in plan.scale_ups:
        decision, reason = growth_words(details.name_of(up.group), is_paused=is_paused)
        rows.append(_waiting(up.pods, decision, reason, details))
    room = "there is room on nodes that exist or are on their way"
    rows.append(_waiting(plan.fits_existing, "fitsExisting", room, details))
    rows += [
        _waiting(ignored.pods, "notLookedAt", sentence(ignored.reason), details)
        for ignored in plan.ignored
    ]
    chosen = []
    for row in rows:
        pods = tuple(sorted(pod for pod in row.pods if words in pod))
        if pods:
            chosen.append(msgspec.structs.replace(row, pods=pods))
    return chosen


def _waiting(
    pods: Sequence[str],
    decision: str,
    reason: str,
    details: ClusterDetails,
    reasons: Mapping[str, tuple[Reason, ...]] = MappingProxyType({}),
) -> WaitingPods:
    """Return one row. reasons: by group, the nearest first."""
    state = OF_PODS[decision].row
    groups = tuple((group, details.name_of(group), of_group) for group, of_group in reasons.items())
    return WaitingPods(tuple(pods), state.word, state.tone, reason, groups)
