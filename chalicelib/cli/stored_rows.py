"""Listings of `outscaler get`: reads what the tables store of clusters, groups, nodes, pods,
operations and claims. columns.py says how they are shown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.columns import (
    CLAIMS,
    CLUSTERS,
    GROUPS,
    NODES,
    OPERATIONS,
    PODS,
    POOLS,
    WaitingPod,
)
from chalicelib.cli.deployment_settings import known_settings
from chalicelib.cli.listing import Listing, TableKind
from chalicelib.cli.output import local_time, warn, with_local_times
from chalicelib.cli.store_access import load_decision, not_moved
from chalicelib.journal import carry_over
from chalicelib.journal.cluster_health import ClusterSituation, cluster_status, counts_of
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.memory import Memory
from chalicelib.model.overview import ClusterOverview
from chalicelib.model.pause import Pause, in_force, whole
from chalicelib.model.timestamps import format_time
from chalicelib.policy.admission import Admission
from chalicelib.policy.load import load
from chalicelib.policy.open_schedules import apply_schedules
from chalicelib.reasons.text import sentence
from chalicelib.reasons.words import counted
from chalicelib.runtime.mode_guard import permitted
from chalicelib.store.errors import StoreError
from chalicelib.store.leases import LastPass
from chalicelib.views import cluster_view as views
from chalicelib.views import rows as tables
from chalicelib.views.cluster_view import Instant, PauseView, instant
from chalicelib.views.managed_pools import pool_rows
from chalicelib.views.rows import ClusterRow, GroupRow

if TYPE_CHECKING:
    from chalicelib.journal.journal import LastDecision
    from chalicelib.model.policy_permissions import Deployment
    from chalicelib.policy.settings.cluster_policy import Policy
    from chalicelib.store import JournalEntry, Store, StoredPolicy


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
        """Return the names of the groups, pools, nodes, pods or operations, for
        the completion of a shell."""
        plan = self.decision.plan if self.decision is not None else None
        match kind:
            case "groups":
                return [row.name for row in self.groups]
            case "pools":
                return [pool.name for pool in self.overview.pools]
            case "nodes":
                rows = tables.node_rows(plan, self.overview, (), self.memory, self.entries)
                return [row.node for row in rows]
            case "pods" if plan is not None:
                return [view.pod for view in views.pod_views(plan)]
            case "operations":
                return [operation.spec.id for operation in self.memory.operations]
        return []


# -- clusters


def clusters(store: Store) -> Listing:
    """Return every cluster with a policy."""
    if not_in_force := not_moved(store):
        warn(not_in_force)
    now = time.time()
    rows = _cluster_rows(store, now)
    pause_lines: list[str] = []
    for row in rows:
        pause_lines += [f"{row.name}: {_pause_line(pause, now)}" for pause in row.pauses]
    return Listing(
        CLUSTERS, tuple(CLUSTERS.row(row, now) for row in rows), before=tuple(pause_lines)
    )


def _pause_line(pause: PauseView, now: float) -> str:
    return with_local_times(pause.paused_line, now, sys.stdout)


def _cluster_rows(store: Store, now: float) -> list[ClusterRow]:
    """Return every cluster. Warns about what cannot be read. Raises StoreError where the table
    does not answer."""
    policies = store.policies.all_current()
    deployment = known_settings(store) if policies else None
    passes = store.scan_states.passed_by([stored.name for stored in policies])
    pauses = store.pauses.all_current()
    rows = []
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
        rows.append(_cluster_row(stored, last_pass, paused, policy, problem, now))
    return rows


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


def _cluster_row(
    stored: StoredPolicy,
    last_pass: LastPass,
    pauses: Sequence[Pause],
    policy: Policy | None,
    problem: str,
    now: float,
) -> ClusterRow:
    """Return one cluster. problem: why its policy or its rows cannot be used."""
    counts = counts_of(carry_over.read(last_pass.carry_over).gauges)
    passes = views.passes_view(last_pass.state)
    permission = permitted(policy) if policy is not None else None
    interval = policy.scan_interval if policy is not None else None
    planned = permission is not None and permission.plan
    failure = last_pass.state.failure
    situation = ClusterSituation(
        problem=problem,
        plans=planned,
        interval=interval,
        applied_at=stored.stored_at,
        scan=last_pass.state,
        failure=f"{failure.cls}: {failure.message}" if failure is not None else "",
        counts=counts,
        pauses=pauses,
    )
    return ClusterRow(
        name=stored.name,
        version=stored.version,
        stored_at=Instant(stored.stored_at),
        digest=stored.digest,
        last_pass=passes.last_pass,
        last_success=passes.last_success,
        last_error=passes.last_error,
        health=views.health(interval, last_pass.state, stored.stored_at, now, planned=planned),
        problem=problem or None,
        pauses=tuple(map(views.pause_view, pauses)),
        mode_word=(permission.word or None) if permission is not None else None,
        nodes=counts.nodes,
        coming=counts.coming,
        waiting=counts.waiting,
        without_node=counts.without_node,
        status=cluster_status(situation, now),
        is_paused=whole(in_force(pauses, now)) is not None,
    )


# -- groups


def groups(cluster: StoredCluster) -> Listing:
    """Return the node groups of a cluster, those of the last decision before those
    that are only remembered."""
    now = cluster.now
    decided = cluster.groups
    rows = (*decided, *tables.only_remembered(cluster.memory, decided, now))
    older = _age_of_numbers(cluster, "Cpu and memory")
    before = tuple(filter(None, (*_pause_lines(cluster), older)))
    return Listing(GROUPS, tuple(GROUPS.row(row, now) for row in rows), before=before)


def pools(cluster: StoredCluster) -> Listing:
    """Return the managed pools of a cluster, as the last pass saw them."""
    rows = pool_rows(cluster.overview.pools)
    older = _age_of_numbers(cluster, "Nodes and prices")
    before = tuple(filter(None, (*_pause_lines(cluster), older if rows else "")))
    return Listing(POOLS, tuple(POOLS.row(row, cluster.now) for row in rows), before=before)


def _pause_lines(cluster: StoredCluster) -> list[str]:
    """Return a line for each pause of the whole cluster."""
    now = cluster.now
    pauses = [pause for pause in in_force(cluster.pauses, now) if not pause.group]
    return [_pause_line(views.pause_view(pause), now) for pause in pauses]


def _age_of_numbers(cluster: StoredCluster, columns: str) -> str:
    """Return the line that says of when the numbers of the columns are, "" where the last pass is
    hardly newer."""
    decision = cluster.decision
    confirmed_at = decision.confirmed_at if decision is not None else 0.0
    counted_at = views.older_numbers(cluster.overview.at, confirmed_at)
    if not counted_at:
        return ""
    return f"{columns} are of {local_time(counted_at, cluster.now, sys.stdout)}."


# -- the last decision


def nodes(cluster: StoredCluster) -> Listing:
    """Return each node of the last decision: removed, unneeded or stays, and why."""
    plan = cluster.required().plan
    rows = tables.node_rows(plan, cluster.overview, cluster.groups, cluster.memory, cluster.entries)
    numbers_at = instant(cluster.overview.at)
    listing = _of_decision(NODES, rows, cluster, "nodes", {"numbersAt": numbers_at})
    seen = {node.name for node in cluster.overview.nodes}
    unseen = sum(row.node not in seen for row in rows)
    older = _age_of_numbers(cluster, "Cpu, memory and pods")
    if older and unseen:
        older += f" {counted(unseen, 'newer node')} {'has' if unseen == 1 else 'have'} none yet."
    return msgspec.structs.replace(listing, before=(*listing.before, *filter(None, (older,))))


def pods(cluster: StoredCluster) -> Listing:
    """Return each pod that waits: with a place on the way, without one, or
    not considered, and why."""
    plan = cluster.required().plan
    names = {row.group: row.name for row in cluster.groups}
    is_paused = whole(in_force(cluster.pauses, cluster.now)) is not None
    waiting = [
        WaitingPod(view, names, is_paused=is_paused) for view in views.pod_views(plan, names)
    ]
    listing = _of_decision(PODS, waiting, cluster, "pods")
    return msgspec.structs.replace(listing, before=(*_pause_lines(cluster), *listing.before))


def _of_decision(
    kind: TableKind[Any],
    items: Sequence[Any],
    cluster: StoredCluster,
    key: str,
    further: Mapping[str, Any] | None = None,
) -> Listing:
    """Return what the last decision says of objects. key: of them in the JSON, which has `further`
    values before them."""
    now = cluster.now
    decision = cluster.required()
    blocked = decision.plan.paused
    not_removed = f" No node is removed: {sentence(blocked)}." if blocked is not None else ""
    decided = local_time(decision.at, now, sys.stdout)
    confirmed = local_time(decision.confirmed_at, now, sys.stdout)
    as_of = f"Decided at {decided}, last confirmed at {confirmed}.{not_removed}"

    def document(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "cluster": decision.plan.cluster,
            "plan": decision.plan.id,
            "at": format_time(decision.at),
            "confirmedAt": format_time(decision.confirmed_at),
            **(further or {}),
            key: rows,
        }

    rows = tuple(kind.row(item, now) for item in items)
    return Listing(kind, rows, before=(as_of,), document=document)


# -- operations and claims


def operations(store: Store, cluster: str) -> Listing:
    """Return the open operations of a cluster."""
    now = time.time()
    shown = map(views.operation_view, store.operations.look(cluster))
    return Listing(OPERATIONS, tuple(OPERATIONS.row(view, now) for view in shown))


def claims(store: Store) -> Listing:
    """Return which cluster owns each node group, since when, and whether another
    cluster may take it over."""
    now = time.time()
    return Listing(CLAIMS, tuple(CLAIMS.row(claim, now) for claim in store.group_ownership.all()))
