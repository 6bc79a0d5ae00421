"""The columns of `outscaler get`: of clusters, groups, nodes, pods, operations and claims.

Each column is stated once (listing.py). Nothing is computed here beyond what views/cluster_view.py
and views/rows.py say.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.cli.listing import Column, TableKind
from chalicelib.cli.output import Styled, local_time, with_local_times
from chalicelib.model.health import OF_PODS, HealthState, Tone
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.reasons.text import sentence
from chalicelib.reasons.words import ago, counted, money
from chalicelib.store.group_ownership import OwnershipClaim
from chalicelib.views.cluster_view import (
    OperationView,
    PodView,
    SpotView,
    as_json,
    cause_data,
    coded,
    growth_words,
    instant,
)
from chalicelib.views.lifecycle import due_words
from chalicelib.views.managed_pools import PoolRow
from chalicelib.views.rows import (
    REMOVED,
    ClusterRow,
    GroupRow,
    GroupStatus,
    NodeRow,
    group_data,
    node_data,
    price_words,
    short_name,
)

_STYLES = {Tone.OK: "", Tone.INFO: "green", Tone.WARN: "yellow", Tone.BAD: "red"}
_WITH_DETAIL = (HealthState.NOT_READ, HealthState.NO_PASSES, HealthState.PASSES_FAIL)
"""States of which no other column or line says the cause."""
_CLUSTER_STYLES = _STYLES | {Tone.OK: "green", Tone.INFO: ""}
# seconds and name of a unit, and of the one below it
_AGE_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


# -- cells of several kinds


def _count(present: int | None, coming: int | None) -> str | int | None:
    """Return `14`, or `14+2` with nodes on their way."""
    return f"{present}+{coming}" if present is not None and coming else present


def _newest_first(at: float) -> float | None:
    """Return what orders instants as ages: the smallest age first, None for an unknown one."""
    return -at if at else None


def _share(percent: int | None) -> str | None:
    return None if percent is None else f"{percent}%"


def age(created: float, now: float) -> str:
    """Return an age as kubectl does: its largest unit, two for less than ten of it; "" where it is
    not known."""
    if not created:
        return ""
    seconds = max(0, round(now - created))
    for unit, name, smaller_unit, smaller_name in _AGE_UNITS:
        if seconds >= unit:
            count, rest = divmod(seconds, unit)
            smaller_count = rest // smaller_unit
            text = f"{count}{name}"
            return f"{text}{smaller_count}{smaller_name}" if count < 10 and smaller_count else text
    return f"{seconds}s"


# -- clusters


def _mode_cell(row: ClusterRow) -> str | None:
    return f"{row.mode_word} (paused)" if row.mode_word and row.is_paused else row.mode_word


def _health_cell(row: ClusterRow, now: float) -> str:
    """Return how a cluster is: the word, since when, and what is behind it."""
    status = row.status
    text = status.word
    if status.since and status.is_one_of(HealthState.NO_PASSES, HealthState.PASSES_FAIL):
        text += f" for {format_duration(round(now - status.since))}"
    if status.detail and status.is_one_of(*_WITH_DETAIL):
        text += f": {with_local_times(status.detail, now, sys.stdout)}"
    return Styled(text, _CLUSTER_STYLES[status.tone])


def _waiting_cell(row: ClusterRow) -> str | int | None:
    """Return `1+19` with one pod without a node and 19 for which one is coming."""
    if row.waiting is None or row.without_node is None:
        return row.waiting
    return _count(row.without_node, row.waiting - row.without_node)


def _cluster_data(row: ClusterRow) -> dict[str, Any]:
    data = as_json(row)
    del data["isPaused"]
    del data["status"]["rank"]
    return data


CLUSTERS = TableKind[ClusterRow](
    word="cluster",
    name=lambda row: row.name,
    data=_cluster_data,
    empty="no cluster has a policy yet",
    columns=(
        Column("cluster", lambda row: row.name),
        Column(
            "mode", _mode_cell, label="mode", values=lambda row: (row.mode_word or "",), spare=3
        ),
        Column(
            "health",
            cell_at=_health_cell,
            label="health",
            values=lambda row: (row.health.partition(":")[0].partition(",")[0],),
            state=lambda row: (row.health, row.status.word),
        ),
        Column("nodes", lambda row: _count(row.nodes, row.coming), spare=4),
        Column("waiting", _waiting_cell, spare=1),
        Column(
            "last pass",
            cell_at=lambda row, now: ago(row.last_pass, now),
            watched=False,
            spare=2,
            order=lambda row: _newest_first(row.last_pass),
        ),
        Column("version", lambda row: row.version, wide=True),
        Column(
            "stored",
            cell_at=lambda row, now: ago(row.stored_at, now),
            wide=True,
            watched=False,
            order=lambda row: _newest_first(row.stored_at),
        ),
        Column("digest", lambda row: row.digest[:12], wide=True, watched=False),
    ),
)


# -- groups


def _status_text(status: GroupStatus, now: float) -> str:
    """Return the state of a group as a phrase with its times."""
    if status.is_one_of(HealthState.GROUP_GROWING, HealthState.GROUP_LEAVING):
        text = status.detail
        if status.since:
            text += f" since {format_duration(round(now - status.since))}"
        if status.usually:
            text += f" (usually {format_duration(round(status.usually))})"
        return text
    if status.is_one_of(HealthState.GROUP_STEADY) and status.detail:
        return f"{status.word}; {status.detail}, {ago(status.since, now)}"
    text = status.word
    if status.until:
        text += f" until {local_time(status.until, now, sys.stdout)}"
    return f"{text}: {status.detail}" if status.detail else text


def _status_cell(row: GroupRow, now: float) -> str:
    return Styled(_status_text(row.status, now), _STYLES[row.status.tone])


def _risk_cell(spot: SpotView | None, now: float) -> str:
    """Return the expected interruptions of a node of a spot group, and until
    when the group is avoided."""
    if spot is None:
        return ""
    if not spot.avoided_until:
        return spot.month_words
    until = local_time(spot.avoided_until, now, sys.stdout)
    return f"{spot.month_words}, avoided until {until}"


def _price_cell(row: GroupRow) -> str:
    """Return the price of a node per hour with its currency, source and
    date, or why there is none."""
    return price_words(row.price, row.currency, row.price_source, row.price_date, row.no_price)


def _bounds_cell(row: GroupRow) -> str | None:
    return None if row.max is None else f"{row.min}..{row.max}"


GROUPS = TableKind[GroupRow](
    word="group",
    data=lambda row: group_data(row, as_json(row.remembered)),
    name=lambda row: row.name,
    aliases=lambda row: (row.group, *row.aliases),
    empty="no node group is known yet",
    columns=(
        Column(
            "group",
            lambda row: row.name,
            label="name",
            values=lambda row: (row.name, row.group, *row.aliases),
        ),
        Column(
            "provider",
            lambda row: row.provider,
            label="provider",
            spare=1,
        ),
        Column(
            "nodes",
            lambda row: _count(row.ready, row.coming),
        ),
        Column("min..max", _bounds_cell, spare=4),
        Column("cpu", lambda row: _share(row.cpu), spare=3),
        Column("memory", lambda row: _share(row.memory), spare=2),
        Column(
            "state",
            cell_at=_status_cell,
            label="state",
            values=lambda row: (row.status.word,),
            state=lambda row: (row.status.word, row.status.detail, row.status.until),
        ),
        Column(
            "zone",
            lambda row: row.zone,
            label="zone",
            values=lambda row: tuple(row.zone.split(",")),
            wide=True,
            watched=False,
        ),
        Column(
            "machine",
            lambda row: row.machine,
            label="machine",
            wide=True,
            watched=False,
        ),
        Column("price", _price_cell, wide=True, watched=False, order=lambda row: row.price),
        Column(
            "ready time",
            lambda row: row.joins.ready_words,
            wide=True,
            watched=False,
        ),
        Column("fails", lambda row: row.joins.fails_words, wide=True, watched=False),
        Column(
            "spot",
            cell_at=lambda row, now: _risk_cell(row.spot, now),
            label="spot",
            values=lambda row: ("no" if row.spot is None else "yes",),
            wide=True,
            watched=False,
        ),
        Column("should go", lambda row: row.due_words, wide=True, watched=False),
        Column("id", lambda row: row.group, wide=True, watched=False),
    ),
)


# -- managed pools


def _next_machine(row: PoolRow) -> str:
    """Return the cheapest machine that could be bought now, with its price."""
    if row.next_price is None:
        return ""
    return f"{row.next_machine}, {money(row.next_price, row.currency)}"


POOLS = TableKind[PoolRow](
    word="pool",
    name=lambda row: row.pool,
    data=as_json,
    empty="the policy has no managedPools, or no pass has seen them yet",
    columns=(
        Column("pool", lambda row: row.pool, label="name"),
        Column("provider", lambda row: row.provider, label="provider", spare=1),
        Column("candidates", lambda row: row.candidates, right=True, spare=2),
        Column("open", lambda row: row.open_groups, right=True, spare=3),
        Column("live", lambda row: row.live_groups, right=True, spare=4),
        Column("nodes", lambda row: row.nodes, right=True),
        Column(
            "price an hour",
            lambda row: money(row.price, row.currency),
            order=lambda row: row.price,
        ),
        Column("next machine", _next_machine, order=lambda row: row.next_price),
        Column("held by", lambda row: row.held_by),
    ),
)


# -- nodes of the last decision

_WHERE_KNOWN = ("reason", "consolidation", "pod", "lifecycle", "notice")
_NOT_SHOWN = frozenset({"evict", "isRestarted", *_WHERE_KNOWN})


def _node_data(row: NodeRow) -> dict[str, Any]:
    """Return a node without what is not known of it."""
    data = node_data(row)
    shown = {"node": row.node, "decision": row.decision}
    if row.decision == REMOVED:
        shown["evict"] = data["evict"]
    shown |= {key: data[key] for key in _WHERE_KNOWN if data[key]}
    return shown | {key: value for key, value in data.items() if key not in _NOT_SHOWN}


def _why_node(row: NodeRow) -> str:
    if row.decision == REMOVED:
        why = f"{counted(len(row.evict), 'pod')} moved" if row.evict else "empty"
        if row.notice is not None:
            why += "; its vendor takes it back"
    else:
        reason = _counting_reason(row)
        why = sentence(reason) if reason is not None else ""
    return f"{why} ({row.pod})" if row.pod and row.pod not in why else why


def _counting_reason(row: NodeRow) -> Reason | None:
    """Return why a node stays: consolidation's reason where only the threshold of utilization keeps
    it otherwise, because consolidation does not look at that."""
    own = row.consolidation
    if own is None or own.code is ReasonCode.CONSOLIDATION_OFF:
        return row.reason
    only_in_use = row.reason is None or row.reason.code is ReasonCode.NOT_UNDERUTILIZED
    return own if only_in_use else row.reason


def _spot_cell(row: NodeRow, now: float) -> str:
    if row.notice is None:
        return "yes" if row.spot else ""
    leaves_at = local_time(row.notice.leaves_at, now, sys.stdout)
    return Styled(f"leaves {leaves_at}", "red")


def _due(row: NodeRow) -> tuple[str, ...]:
    """Return why a node should go, as programs and as people call it; () where it need not."""
    if row.lifecycle is None:
        return ()
    return row.lifecycle.why.value, due_words(row.lifecycle.why)


NODES = TableKind[NodeRow](
    word="node",
    name=lambda row: row.node,
    data=_node_data,
    empty="no node was seen",
    columns=(
        Column("node", lambda row: row.node),
        Column(
            "group",
            lambda row: row.group_name,
            label="group",
            values=lambda row: (row.group_name, row.group),
            spare=5,
        ),
        Column("cpu", lambda row: _share(row.cpu), right=True, spare=4),
        Column("memory", lambda row: _share(row.memory), right=True, spare=3),
        Column("pods", lambda row: row.pods, right=True, spare=1),
        Column(
            "age",
            cell_at=lambda row, now: age(row.created, now),
            watched=False,
            spare=2,
            order=lambda row: _newest_first(row.created),
        ),
        Column(
            "decision",
            lambda row: Styled(row.decision, "yellow" if row.decision == REMOVED else ""),
            label="decision",
        ),
        Column("why", _why_node, blank=""),
        Column(
            "machine",
            lambda row: row.machine,
            label="machine",
            wide=True,
        ),
        Column(
            "zone",
            lambda row: row.zone,
            label="zone",
            wide=True,
        ),
        Column(
            "spot",
            cell_at=_spot_cell,
            label="spot",
            values=lambda row: ("yes" if row.spot else "no",),
            wide=True,
        ),
        Column(
            "should go",
            lambda row: _due(row)[-1] if _due(row) else None,
            label="due",
            values=_due,
            wide=True,
        ),
    ),
)


# -- pods of the last decision


class WaitingPod(msgspec.Struct, frozen=True):
    """A pod that waits. names: of groups, by id. is_paused: the whole cluster is, so that nobody
    carries out what was decided."""

    view: PodView
    names: Mapping[str, str]
    is_paused: bool = False


def _pod_data(pod: WaitingPod) -> dict[str, Any]:
    view = pod.view
    data: dict[str, Any] = {"pod": view.pod, "decision": view.decision}
    if view.decision == "unschedulable":
        data["reasons"] = {
            group: [coded(reason) for reason in reasons] for group, reasons in view.reasons.items()
        }
    if view.no_place is not None:
        data |= cause_data(view.no_place)
    if view.decision == "newNode":
        data["group"] = view.group
    if view.reason is not None:
        data["reason"] = coded(view.reason)
    return data


def _pod_decision(pod: WaitingPod) -> str:
    decision = pod.view.decision
    if decision == "newNode":
        decision, _ = growth_words(pod.view.group, is_paused=pod.is_paused)
    state = OF_PODS[decision].row
    return Styled(state.word, "yellow" if state.tone is Tone.WARN else "")


def _why_pod(pod: WaitingPod) -> str:
    view = pod.view
    names = pod.names
    if view.decision == "newNode":
        _, why = growth_words(names.get(view.group, view.group), is_paused=pod.is_paused)
        return why
    if view.reason is not None:
        return sentence(view.reason)
    return view.no_place.line if view.no_place is not None else ""


PODS = TableKind[WaitingPod](
    word="pod",
    name=lambda pod: pod.view.pod,
    aliases=lambda pod: (pod.view.pod.partition("/")[2],),
    data=_pod_data,
    empty="no pod waits for a place",
    columns=(
        Column(
            "pod",
            lambda pod: pod.view.pod,
            label="namespace",
            values=lambda pod: (pod.view.pod.partition("/")[0],),
        ),
        Column(
            "decision",
            _pod_decision,
            label="decision",
            values=lambda pod: (pod.view.decision, OF_PODS[pod.view.decision].word),
            spare=1,
        ),
        Column("why", _why_pod, blank=""),
    ),
)


# -- operations and claims

OPERATIONS = TableKind[OperationView](
    word="operation",
    data=as_json,
    name=lambda view: view.id,
    empty="no operation is open",
    columns=(
        Column("operation", lambda view: view.id),
        Column("kind", lambda view: view.kind, label="kind"),
        Column(
            "group",
            lambda view: short_name(view.group),
            label="group",
            values=lambda view: (view.group, short_name(view.group)),
        ),
        Column("change", lambda view: view.change),
        Column("state", lambda view: view.state, label="state"),
        Column("step", lambda view: view.step, blank="", spare=2),
        Column("attempt", lambda view: view.attempt, right=True, spare=1),
        Column(
            "planned",
            cell_at=lambda view, now: ago(view.created_at, now),
            watched=False,
            spare=3,
            order=lambda view: _newest_first(view.created_at),
        ),
        Column(
            "next",
            blank="",
            cell_at=lambda view, now: ago(view.due_at, now) if view.due_at else "",
            state=lambda view: view.due_at,
            spare=4,
            order=lambda view: view.due_at or None,
        ),
    ),
)


def _claim_data(claim: OwnershipClaim) -> dict[str, Any]:
    return {
        "provider": claim.provider,
        "group": claim.group,
        "key": claim.key,
        "cluster": claim.owner,
        "since": instant(claim.since),
        "named": claim.named,
        "ended": claim.ended,
    }


CLAIMS = TableKind[OwnershipClaim](
    word="claim",
    name=lambda claim: claim.key,
    aliases=lambda claim: (claim.owner,),
    data=_claim_data,
    empty="no node group is claimed yet",
    columns=(
        Column("provider", lambda claim: claim.provider, label="provider", spare=3),
        Column("group", lambda claim: claim.key),
        Column("cluster", lambda claim: claim.owner, label="cluster"),
        Column(
            "since",
            cell_at=lambda claim, now: ago(claim.since, now),
            watched=False,
            spare=2,
            order=lambda claim: _newest_first(claim.since),
        ),
        Column("by", lambda claim: "named" if claim.named else "discovered", spare=1),
        Column("ended", lambda claim: claim.ended),
    ),
)
