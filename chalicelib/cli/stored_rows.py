"""Rows of `outscaler get`: what the tables store of clusters, groups, nodes,
pods, operations and claims.

A row has its cells for people, its data under stable keys for programs, and the labels by which -l
selects it. Nothing is computed here beyond what views/cluster_view.py and views/rows.py say.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.deployment_settings import known_settings
from chalicelib.cli.output import Styled, Table, local_time, warn, with_local_times
from chalicelib.cli.store_access import load_decision, not_moved
from chalicelib.journal import carry_over
from chalicelib.journal.metrics import key
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.overview import ClusterOverview
from chalicelib.model.pause import Pause, in_force, whole
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.policy.admission import Admission
from chalicelib.policy.load import load
from chalicelib.policy.open_schedules import apply_schedules
from chalicelib.reasons.text import sentence
from chalicelib.reasons.words import ago, counted
from chalicelib.runtime.mode_guard import permitted
from chalicelib.store.errors import StoreError
from chalicelib.store.leases import LastPass
from chalicelib.views import cluster_view as views
from chalicelib.views import rows as tables
from chalicelib.views.cluster_view import PodView, SpotView, as_json, coded, instant
from chalicelib.views.lifecycle import due_words, verdict_data
from chalicelib.views.rows import GroupRow, GroupStatus, NodeRow, Tone

if TYPE_CHECKING:
    from chalicelib.journal.journal import LastDecision
    from chalicelib.model.policy_permissions import Deployment
    from chalicelib.policy.settings.cluster_policy import Policy
    from chalicelib.store import JournalEntry, Store, StoredPolicy

_REASONS_SHOWN = 3  # groups whose reasons a line of a pod shows
_STYLES = {Tone.OK: "", Tone.INFO: "green", Tone.WARN: "yellow", Tone.BAD: "red"}
_UNREACHABLE = ("ClusterUnavailable", "Unavailable")
# seconds and name of a unit, and of the one below it
_AGE_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))
_DECISIONS = {
    "unschedulable": "no place",
    "newNode": "new node",
    "fitsExisting": "has a place",
    "notLookedAt": "not looked at",
}
"""What people read for the stable values of a pod's decision."""


class Row(msgspec.Struct, frozen=True):
    """One object. name: of NAME arguments and of -o name. cells: also those of -o wide.
    labels: values by key. state: what -w compares; None: the cells. aliases: further names by
    which a person may mean it."""

    name: str
    cells: tuple[str, ...]
    data: dict[str, Any]
    labels: Mapping[str, tuple[str, ...]] = {}
    state: tuple[object, ...] | None = None
    aliases: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[object, ...]:
        """Return what changes when the row does."""
        return self.cells if self.state is None else self.state


class Listing(msgspec.Struct, frozen=True):
    """Rows of one kind. wide: the columns that only -o wide shows, the last ones of a row. labels:
    keys of -l. before: lines above the table. document: makes the JSON of the rows' data."""

    kind: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    wide: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    right: frozenset[int] = frozenset()
    empty: str = ""
    document: Callable[[list[dict[str, Any]]], Any] = list

    @property
    def data(self) -> Any:
        """Return the answer for programs."""
        return self.document([row.data for row in self.rows])

    def table(self, *, wide: bool) -> Table:
        """Return the table for people."""
        names = (*self.columns, *self.wide) if wide else self.columns
        rows = tuple(row.cells[: len(names)] for row in self.rows)
        return Table(names, rows, right=self.right, empty=self.empty)


class StoredCluster(msgspec.Struct, frozen=True):
    """What the tables know of one cluster at `now`. decision: None where there is none that can be
    shown, and problem says why. entries: the latest of the journal."""

    name: str
    decision: LastDecision | None
    problem: str
    memory: Memory
    overview: ClusterOverview
    pauses: tuple[Pause, ...]
    entries: tuple[JournalEntry, ...]
    now: float

    @classmethod
    def read(cls, store: Store, cluster: str, *, entries: int = 0) -> StoredCluster:
        """Read it. entries: of the journal. Raises StoreError."""
        decision, problem = load_decision(store, cluster)
        return cls(
            cluster,
            decision,
            problem,
            store.memory.look(cluster),
            store.gauge_rings.overview(cluster),
            store.pauses.current(cluster),
            store.journal.recent(cluster, entries) if entries else (),
            time.time(),
        )

    @property
    def groups(self) -> tuple[GroupRow, ...]:
        """Return the rows of the groups."""
        plan = self.decision.plan if self.decision is not None else None
        return tables.group_rows(
            plan, self.memory, self.overview, self.now, pauses=self.pauses, entries=self.entries
        )

    def required(self) -> LastDecision:
        """Return the last decision. Raises BadInput where there is none."""
        if self.decision is None:
            problem = self.problem.removeprefix(f"{self.name}: ")
            raise BadInput(self.name, problem, "outscaler plan --kubeconfig FILE plans now")
        return self.decision

    def names(self, kind: str) -> list[str]:
        """Return the names of the groups, nodes, pods or operations, for
        the completion of a shell."""
        plan = self.decision.plan if self.decision is not None else None
        match kind:
            case "groups":
                return [row.name for row in self.groups]
            case "nodes":
                rows = tables.node_rows(plan, self.overview, (), self.memory)
                return [row.node for row in rows]
            case "pods" if plan is not None:
                return [view.pod for view in views.pod_views(plan)]
            case "operations":
                return [operation.spec.id for operation in self.memory.operations]
        return []


# -- clusters


class _ClusterState(msgspec.Struct, frozen=True):
    """What the tables say of one cluster of a list. problem: why its policy or
    its rows cannot be used."""

    stored: StoredPolicy
    passed: LastPass
    pauses: tuple[Pause, ...]
    problem: str
    policy: Policy | None

    def gauge(self, name: str, **labels: str) -> float | None:
        """Return a gauge of the last pass, None where it left none."""
        return carry_over.read(self.passed.carry_over).gauges.get(key(name, **labels))

    def nodes(self, *states: str) -> int | None:
        """Return the number of nodes in these states, None where no pass has counted them."""
        counts = [self.gauge("nodes_count", state=state) for state in states]
        known = [count for count in counts if count is not None]
        return int(sum(known)) if known else None


def clusters(store: Store) -> Listing:
    """Return every cluster with a policy."""
    if not_in_force := not_moved(store):
        warn(not_in_force)
    now = time.time()
    states = _cluster_states(store)
    pause_lines: list[str] = []
    for state in states:
        for pause in state.pauses:
            line = f"{state.stored.name}: {views.pause_view(pause).paused_line}"
            pause_lines.append(with_local_times(line, now, sys.stdout))
    return Listing(
        kind="cluster",
        columns=("cluster", "mode", "health", "nodes", "waiting", "last pass"),
        wide=("version", "stored", "digest"),
        rows=tuple(_cluster_row(state, now) for state in states),
        labels=("mode", "health"),
        before=tuple(pause_lines),
        empty="no cluster has a policy yet",
    )


def _cluster_states(store: Store) -> list[_ClusterState]:
    """Return the state of every cluster. Warns about what cannot be read. Raises StoreError where
    the table does not answer."""
    policies = store.policies.all_current()
    deployment = known_settings(store) if policies else None
    passes = store.scan_states.passed_by([stored.name for stored in policies])
    pauses = store.pauses.all_current()
    states = []
    for stored in policies:
        problem = stored.problem
        last_pass = passes.get(stored.name, LastPass())
        if isinstance(last_pass, StoreError):
            problem = problem or str(last_pass)
            last_pass = LastPass()
        paused = pauses.get(stored.name, ())
        if isinstance(paused, StoreError):
            problem = problem or str(paused)
            paused = ()
        policy = None
        if problem:
            warn(f"{stored.name}: {problem}")
        else:
            policy, problem = _policy_of(stored, deployment)
        states.append(_ClusterState(stored, last_pass, paused, problem, policy))
    return states


def _policy_of(stored: StoredPolicy, deployment: Deployment | None) -> tuple[Policy | None, str]:
    """Return the policy with its schedules applied, or why no pass can start.

    deployment: what the functions permit; None: not published, so that only the text is judged: a
    secret that is not permitted by default may be one that the functions permit.
    """
    admission = Admission(deployment, cluster=stored.name) if deployment is not None else None
    try:
        policy, _ = load(stored.text, place=f"policy {stored.name}", admission=admission)
        return apply_schedules(policy, time.time()), ""
    except BadInput as error:
        mistakes = error.problems if isinstance(error, InputErrors) else (error,)
        first = mistakes[0]
        others = len(mistakes) - 1
        more = f" (and {others} more)" if others > 0 else ""
        place = first.place.partition(": ")[2] or first.place
        return None, f"{place}: {first.problem}{more}"


def _cluster_row(state: _ClusterState, now: float) -> Row:
    stored = state.stored
    scan = state.passed.state
    permission = permitted(state.policy) if state.policy is not None else None
    interval = state.policy.scan_interval if state.policy is not None else None
    planned = permission is not None and permission.plan
    health = views.health(interval, scan, now, planned=planned)
    mode = permission.word if permission is not None else ""
    present = state.nodes("ready", "unready")
    coming = state.nodes("notStarted", "unregistered")
    waiting = state.gauge("unschedulable_pods_count", type="unschedulable")
    waiting_pods = int(waiting) if waiting is not None else None
    shown_health = next(_health_cells(state, health, waiting_pods or 0, now))
    paused = " (paused)" if whole(in_force(state.pauses, now)) else ""
    data = {
        "name": stored.name,
        "version": stored.version,
        "storedAt": instant(stored.stored_at),
        "digest": stored.digest,
        **as_json(views.passes_view(scan)),
        "health": health,
        "problem": state.problem or None,
        "pauses": [as_json(views.pause_view(pause)) for pause in state.pauses],
        "mode": mode or None,
        "nodes": present,
        "coming": coming,
        "waiting": waiting_pods,
    }
    cells = (
        stored.name,
        f"{mode}{paused}" if mode else "-",
        shown_health,
        count_cell(present, coming),
        "-" if waiting_pods is None else str(waiting_pods),
        ago(scan.last_pass, now),
        str(stored.version),
        ago(stored.stored_at, now),
        stored.digest[:12],
    )
    health_word = health.partition(":")[0].partition(",")[0]
    labels = {"mode": (mode,), "health": (health_word,)}
    compared = (*cells[:2], health, *cells[3:5], cells[6])
    return Row(stored.name, cells, data, labels, compared)


def _health_cells(state: _ClusterState, health: str, waiting: int, now: float) -> Iterator[str]:
    """Yield how a cluster is, for people: everything that applies, the one that is shown first."""
    scan = state.passed.state
    if state.problem:
        yield Styled(f"unreadable: {state.problem}", "red")
    if scan.failure is not None:
        cls = scan.failure.cls
        what = "unreachable" if cls in _UNREACHABLE else f"failing ({cls})"
        duration = round(now - scan.failure.since)
        yield Styled(f"{what} for {format_duration(duration)}", "red")
    if health == "late":
        duration = round(now - scan.last_pass)
        yield Styled(f"no pass for {format_duration(duration)}", "red")
    if health != "ok":
        yield {"waiting": "no pass yet"}.get(health, health)
    if state.gauge("brake"):
        yield Styled("circuit breaker tripped", "red")
    if waiting:
        verb = "waits" if waiting == 1 else "wait"
        yield Styled(f"{counted(waiting, 'pod')} {verb}", "yellow")
    yield Styled("ok", "green")


def count_cell(present: int | None, coming: int | None) -> str:
    """Return `14`, `14+2` with nodes on their way, or `-`."""
    if present is None:
        return "-"
    return f"{present}+{coming}" if coming else str(present)


# -- groups


def groups(cluster: StoredCluster) -> Listing:
    """Return the node groups of a cluster, those of the last decision before those
    that are only remembered."""
    rows = {row.group: row for row in cluster.groups}
    remembered = cluster.memory.groups
    members = [_group_row(row, remembered.get(row.group), cluster.now) for row in rows.values()]
    only_remembered = sorted(set(remembered) - set(rows))
    members += [_remembered_row(name, remembered[name], cluster.now) for name in only_remembered]
    return Listing(
        kind="group",
        columns=("group", "provider", "nodes", "min..max", "cpu", "memory", "state"),
        wide=("zone", "machine", "price", "ready time", "fails", "spot", "should go", "id"),
        rows=tuple(members),
        labels=("machine", "name", "provider", "spot", "state", "zone"),
        empty="no node group is known yet",
    )


def _group_row(row: GroupRow, memory: GroupMemory | None, now: float) -> Row:
    is_read = row.max > 0
    ready = row.ready if is_read else None
    status = row.status
    cells = (
        row.name,
        row.provider or "-",
        count_cell(ready, row.coming),
        f"{row.min}..{row.max}" if is_read else "-",
        share_cell(row.cpu),
        share_cell(row.memory),
        Styled(status_text(status, now), _STYLES[status.tone]),
        row.zone or "-",
        row.machine or "-",
        price_cell(row),
        row.joins.ready_words or "-",
        row.joins.fails_words or "-",
        spot_cell(row.spot, now),
        row.due_words or "-",
        row.group,
    )
    labels = {
        "name": (row.name,),
        "provider": (row.provider,),
        "zone": tuple(row.zone.split(",")),
        "machine": (row.machine,),
        "state": (status.word,),
        "spot": ("no" if row.spot is None else "yes",),
    }
    compared = (*cells[:6], status.word, status.detail, status.until)
    view = views.group_view(row.group, memory or GroupMemory(target=row.target), now)
    data = as_json(row) | as_json(view)
    return Row(row.name, cells, data, labels, compared, (row.group, *row.aliases))


def _remembered_row(group: str, memory: GroupMemory, now: float) -> Row:
    """Return the row of a group that the last decision does not have."""
    name = tables.short_name(group)
    word = "not in the last decision"
    view = views.group_view(group, memory, now)
    spot = views.spot_view(None, memory.risk, now)
    ready_time = view.joins.ready_words or "-"
    fails = view.joins.fails_words or "-"
    unknown = ["-"]
    experience = (ready_time, fails, spot_cell(spot, now))
    cells = (name, *unknown * 5, word, *unknown * 3, *experience, *unknown, group)
    labels: dict[str, tuple[str, ...]] = {
        "name": (name,),
        "provider": (),
        "zone": (),
        "machine": (),
        "state": (word,),
        "spot": ("no" if spot is None else "yes",),
    }
    return Row(name, cells, as_json(view), labels, aliases=(group,))


def share_cell(percent: int | None) -> str:
    """Return `78%`, or `-` where it is not known."""
    return "-" if percent is None else f"{percent}%"


def spot_cell(spot: SpotView | None, now: float) -> str:
    """Return the expected interruptions of a node of a spot group, and until
    when the group is avoided."""
    if spot is None:
        return "-"
    if not spot.avoided_until:
        return spot.month_words
    until = local_time(spot.avoided_until, now, sys.stdout)
    return f"{spot.month_words}, avoided until {until}"


def price_cell(row: GroupRow) -> str:
    """Return the price of a node per hour with its currency, source and
    date, or why there is none."""
    words = tables.price_words(
        row.price, row.currency, row.price_source, row.price_date, row.no_price
    )
    return words or "-"


def status_text(status: GroupStatus, now: float) -> str:
    """Return the state of a group as a phrase with its times."""
    if status.word in ("growing", "leaving"):
        text = status.detail
        if status.since:
            text += f" since {format_duration(round(now - status.since))}"
        if status.usually:
            text += f" (usually {format_duration(round(status.usually))})"
        return text
    if status.word == "steady" and status.detail:
        return f"steady; {status.detail}, {ago(status.since, now)}"
    text = status.word
    if status.until:
        text += f" until {local_time(status.until, now, sys.stdout)}"
    return f"{text}: {status.detail}" if status.detail else text


# -- the last decision


def nodes(cluster: StoredCluster) -> Listing:
    """Return each node of the last decision: removed, unneeded or stays, and why."""
    decision = cluster.required()
    rows = tables.node_rows(decision.plan, cluster.overview, cluster.groups, cluster.memory)
    return Listing(
        kind="node",
        columns=("node", "group", "cpu", "memory", "pods", "age", "decision", "why"),
        wide=("machine", "zone", "spot", "should go"),
        rows=tuple(_node_row(row, cluster.now) for row in rows),
        labels=("decision", "due", "group", "machine", "spot", "zone"),
        before=(_as_of(decision, cluster.now),),
        right=frozenset({2, 3, 4}),
        empty="no node was seen",
        document=lambda data: _document(decision, "nodes", data),
    )


def _node_row(row: NodeRow, now: float) -> Row:
    is_removed = row.decision == views.REMOVED
    due = due_words(row.lifecycle.why) if row.lifecycle is not None else ""
    spot = "yes" if row.spot else "-"
    if row.notice is not None:
        leaves_at = local_time(row.notice.leaves_at, now, sys.stdout)
        spot = Styled(f"leaves {leaves_at}", "red")
    cells = (
        row.node,
        row.group_name or "-",
        share_cell(row.cpu),
        share_cell(row.memory),
        "-" if row.pods is None else str(row.pods),
        age_cell(row.created, now),
        Styled(row.decision or "-", "yellow" if is_removed else ""),
        _why_node(row, is_removed=is_removed),
        row.machine or "-",
        row.zone or "-",
        spot,
        due or "-",
    )
    labels = {
        "due": (row.lifecycle.why.value, due) if row.lifecycle is not None else (),
        "spot": ("yes" if row.spot else "no",),
        "group": (row.group_name, row.group),
        "zone": (row.zone,),
        "machine": (row.machine,),
        "decision": (row.decision,),
    }
    data = _node_data(row, is_removed=is_removed)
    return Row(row.node, cells, data, labels, (*cells[:5], *cells[6:]))


def _node_data(row: NodeRow, *, is_removed: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"node": row.node, "decision": row.decision}
    if is_removed:
        data["evict"] = list(row.evict)
    if row.reason is not None:
        data["reason"] = coded(row.reason)
    if row.consolidation is not None:
        data["consolidation"] = coded(row.consolidation)
    if row.pod:
        data["pod"] = row.pod
    if row.lifecycle is not None:
        data["lifecycle"] = verdict_data(row.lifecycle)
    if row.notice is not None:
        data["notice"] = as_json(row.notice)
    more = {"group", "groupName", "machine", "zone", "created", "cpu", "memory", "pods", "spot"}
    data |= {name: value for name, value in as_json(row).items() if name in more}
    return data


def _why_node(row: NodeRow, *, is_removed: bool) -> str:
    if is_removed:
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


def age_cell(created: float, now: float) -> str:
    """Return an age as kubectl does: its largest unit, two for less than ten of it."""
    if not created:
        return "-"
    seconds = max(0, round(now - created))
    for unit, name, smaller_unit, smaller_name in _AGE_UNITS:
        if seconds >= unit:
            count, rest = divmod(seconds, unit)
            smaller_count = rest // smaller_unit
            age = f"{count}{name}"
            return f"{age}{smaller_count}{smaller_name}" if count < 10 and smaller_count else age
    return f"{seconds}s"


def pods(cluster: StoredCluster) -> Listing:
    """Return each pod that waits: with a place on the way, without one, or
    not considered, and why."""
    decision = cluster.required()
    names = {row.group: row.name for row in cluster.groups}
    rows = []
    for view in views.pod_views(decision.plan):
        word = _DECISIONS[view.decision]
        style = "yellow" if view.decision == "unschedulable" else ""
        cells = (view.pod, Styled(word, style), _why_pod(view, names))
        namespace, _, name = view.pod.partition("/")
        labels = {"namespace": (namespace,), "decision": (view.decision, word)}
        rows.append(Row(view.pod, cells, _pod_data(view), labels, aliases=(name,)))
    return Listing(
        kind="pod",
        columns=("pod", "decision", "why"),
        rows=tuple(rows),
        labels=("decision", "namespace"),
        before=(_as_of(decision, cluster.now),),
        empty="no pod waits for a place",
        document=lambda data: _document(decision, "pods", data),
    )


def _pod_data(view: PodView) -> dict[str, Any]:
    data: dict[str, Any] = {"pod": view.pod, "decision": view.decision}
    if view.decision == "unschedulable":
        data["reasons"] = {
            group: [coded(reason) for reason in reasons] for group, reasons in view.reasons.items()
        }
    if view.decision == "newNode":
        data["group"] = view.group
    if view.reason is not None:
        data["reason"] = coded(view.reason)
    return data


def _why_pod(view: PodView, names: Mapping[str, str]) -> str:
    if view.decision == "newNode":
        return f"group {names.get(view.group, view.group)} grows"
    if view.reason is not None:
        return sentence(view.reason)
    why: list[str] = []
    for group, reasons in view.reasons.items():
        sentences = "; ".join(map(sentence, reasons))
        why.append(f"{names.get(group, group)}: {sentences}")
    shown = ", ".join(why[:_REASONS_SHOWN])
    more = len(why) - _REASONS_SHOWN
    return f"{shown} and {more} more groups" if more > 0 else shown


def _as_of(decision: LastDecision, now: float) -> str:
    blocked = decision.plan.paused
    not_removed = f" No node is removed: {sentence(blocked)}." if blocked is not None else ""
    decided = local_time(decision.at, now, sys.stdout)
    confirmed = local_time(decision.confirmed_at, now, sys.stdout)
    return f"Decided at {decided}, last confirmed at {confirmed}.{not_removed}"


def _document(decision: LastDecision, name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "cluster": decision.plan.cluster,
        "plan": decision.plan.id,
        "at": format_time(decision.at),
        "confirmedAt": format_time(decision.confirmed_at),
        name: rows,
    }


# -- operations and claims


def operations(store: Store, cluster: str) -> Listing:
    """Return the open operations of a cluster."""
    now = time.time()
    rows = []
    for operation in store.operations.look(cluster):
        view = views.operation_view(operation)
        name = tables.short_name(view.group)
        cells = (
            view.id,
            view.kind,
            name,
            view.change,
            view.state,
            view.step,
            str(view.attempt),
            ago(view.created_at, now),
            ago(view.due_at, now) if view.due_at else "",
        )
        labels = {"kind": (view.kind,), "group": (view.group, name), "state": (view.state,)}
        compared = (*cells[:7], view.due_at)
        rows.append(Row(view.id, cells, as_json(view), labels, compared))
    return Listing(
        kind="operation",
        columns=(
            "operation",
            "kind",
            "group",
            "change",
            "state",
            "step",
            "attempt",
            "planned",
            "next",
        ),
        rows=tuple(rows),
        labels=("group", "kind", "state"),
        right=frozenset({6}),
        empty="no operation is open",
    )


def claims(store: Store) -> Listing:
    """Return which cluster owns each node group, since when, and whether another
    cluster may take it over."""
    now = time.time()
    rows = []
    for claim in store.group_ownership.all():
        data = {
            "provider": claim.provider,
            "group": claim.group,
            "key": claim.key,
            "cluster": claim.owner,
            "since": instant(claim.since),
            "named": claim.named,
            "ended": claim.ended,
        }
        by = "named" if claim.named else "discovered"
        cells = (
            claim.provider,
            claim.key,
            claim.owner,
            ago(claim.since, now),
            by,
            claim.ended or "-",
        )
        labels = {"provider": (claim.provider,), "cluster": (claim.owner,)}
        compared = (*cells[:3], *cells[4:])
        rows.append(Row(claim.key, cells, data, labels, compared, (claim.owner,)))
    return Listing(
        kind="claim",
        columns=("provider", "group", "cluster", "since", "by", "ended"),
        rows=tuple(rows),
        labels=("cluster", "provider"),
        empty="no node group is claimed yet",
    )
