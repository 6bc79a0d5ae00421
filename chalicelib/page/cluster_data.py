"""What the pages show, read from the tables in as few requests as possible: three for
all clusters, five for one.

Nothing is computed anew: a page shows the last pass of a cluster and what is stored since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from chalicelib.journal import carry_over
from chalicelib.journal.cluster_health import (
    ClusterCounts,
    ClusterSituation,
    cluster_status,
    counts_of,
    with_groups,
)
from chalicelib.journal.journal import PLAN, DecisionUnreadable, LastDecision, last_decision
from chalicelib.journal.redaction import without_secrets
from chalicelib.model.memory import Memory
from chalicelib.model.overview import ClusterOverview
from chalicelib.model.pause import Pause
from chalicelib.model.plan import Plan
from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.active_policy import in_force_or_problem
from chalicelib.runtime.mode_guard import permitted
from chalicelib.store.errors import StoreError
from chalicelib.store.gauge_ring import GaugePoint, with_extremes
from chalicelib.store.journal import JournalEntry
from chalicelib.store.leases import LastPass
from chalicelib.views.cluster_view import ClusterStatus
from chalicelib.views.rows import GroupRow, group_rows

if TYPE_CHECKING:
    from chalicelib.store import Store, StoredPolicy

HISTORY, LONG_HISTORY = 80, 300
"""Newest entries of the journal that a cluster's page reads, and where its
charts show more than a day."""


class ClusterSummary(msgspec.Struct, frozen=True):
    """One cluster of the list. applied_at: of the policy in force (epoch seconds). problem: why
    its policy or its rows cannot be read. counts: of the last pass. plans: passes are made for it.
    failure: of the last pass, "" where it succeeded."""

    name: str
    version: int
    applied_at: float
    policy: Policy | None
    problem: str
    passed: LastPass
    pauses: tuple[Pause, ...]
    counts: ClusterCounts
    mode_word: str
    plans: bool
    failure: str

    def status_at(self, now: float, groups: Sequence[GroupRow] = ()) -> ClusterStatus:
        """Return how the cluster is. groups: where their rows are known."""
        situation = ClusterSituation(
            problem=self.problem,
            plans=self.plans,
            interval=self.policy.scan_interval if self.policy is not None else None,
            applied_at=self.applied_at,
            scan=self.passed.state,
            failure=self.failure,
            counts=with_groups(self.counts, groups) if groups else self.counts,
            pauses=self.pauses,
        )
        return cluster_status(situation, now)


class ClusterDetails(msgspec.Struct, frozen=True):
    """One cluster's page. decision: None where there is none, then `undecided` says why.
    entries: newest first. text: of the policy. points, hours: of the charts, five
    minutes and an hour each."""

    summary: ClusterSummary
    memory: Memory
    decision: LastDecision | None
    undecided: str
    entries: tuple[JournalEntry, ...]
    points: tuple[GaugePoint, ...]
    text: str
    hours: tuple[GaugePoint, ...] = ()
    overview: ClusterOverview = ClusterOverview()
    groups: tuple[GroupRow, ...] = ()

    @property
    def plan(self) -> Plan:
        """Return the last decision, an empty one where there is none."""
        return (
            self.decision.plan
            if self.decision is not None
            else Plan(id="", cluster=self.summary.name, at=0.0)
        )

    @property
    def is_known(self) -> bool:
        """Return whether a pass has seen the cluster: before that, an empty list says nothing."""
        return self.decision is not None or bool(self.groups)

    @property
    def names(self) -> dict[str, str]:
        """Return what people call each group, by its id."""
        return {row.group: row.name for row in self.groups}

    def name_of(self, group: str) -> str:
        """Return what people call a group; its id where it is not known any more."""
        return self.names.get(group, group)

    def group(self, group: str) -> GroupRow | None:
        """Return the row of a group; None where it is not known."""
        return next((row for row in self.groups if row.group == group), None)


def summaries(
    store: Store, now: float, deployment: Deployment | None
) -> tuple[ClusterSummary, ...]:
    """Return every cluster, by name. deployment: what the functions permit policies to name; None
    where it is not known, so that only the text of a policy is judged. Raises StoreError."""
    policies = store.policies.all_current()
    if not policies:
        return ()
    pauses = store.pauses.all_current()
    passed = store.scan_states.passed_by([stored.name for stored in policies])
    return tuple(
        _summary(
            stored,
            passed.get(stored.name, LastPass()),
            pauses.get(stored.name, ()),
            now,
            deployment,
        )
        for stored in policies
    )


def details(
    store: Store, name: str, now: float, deployment: Deployment | None, limit: int = HISTORY
) -> ClusterDetails | None:
    """Return one cluster; None where it is not known. deployment: see summaries. limit: of the
    entries. Raises StoreError."""
    stored, pauses = store.pauses.with_policy(name)
    if stored is None:
        return None
    passed = store.scan_states.last(name, points=True) or LastPass()
    entries = store.journal.recent(name, limit)
    decision, undecided = None, ""
    try:
        decision = last_decision(name, passed, _PartlyReadJournal(store, entries))
        undecided = "" if decision is not None else "no pass has decided yet"
    except DecisionUnreadable as error:
        undecided = str(error)
    summary, memory = _summary(stored, passed, pauses, now, deployment), store.memory.glance(name)
    plan = decision.plan if decision is not None else None
    overview = passed.overview
    left = carry_over.read(passed.carry_over)
    points = with_extremes(passed.points, left.ring_at, left.extremes)
    groups = group_rows(plan, memory, overview, now, pauses=summary.pauses, entries=entries)
    return ClusterDetails(
        summary,
        memory,
        decision,
        undecided,
        entries,
        points,
        stored.text,
        passed.hours,
        overview,
        groups,
    )


class _PartlyReadJournal:
    """The journal, of which the newest entries were read already."""

    def __init__(self, store: Store, entries: tuple[JournalEntry, ...]) -> None:
        self._journal, self._entries = store.journal, entries

    def at(self, cluster: str, at: float) -> tuple[JournalEntry, ...]:
        entries = tuple(
            entry for entry in self._entries if abs(entry.at - at) < 1e-5 and entry.kind == PLAN
        )
        return entries or self._journal.at(cluster, at)

    def recent(
        self, cluster: str, limit: int = 50, *, before: float | None = None
    ) -> tuple[JournalEntry, ...]:
        return self._journal.recent(cluster, limit, before=before)


def _summary(
    stored: StoredPolicy,
    passed: LastPass | StoreError,
    pauses: tuple[Pause, ...] | StoreError,
    now: float,
    deployment: Deployment | None,
) -> ClusterSummary:
    policy, problem = in_force_or_problem(stored, now, deployment)
    if isinstance(passed, StoreError):
        passed, problem = LastPass(), problem or str(passed)
    if isinstance(pauses, StoreError):
        pauses, problem = (), problem or str(pauses)
    if policy is not None:
        policy = msgspec.structs.replace(policy, pauses=pauses)
    permission = permitted(policy) if policy is not None else None
    failure = passed.state.failure
    return ClusterSummary(
        stored.name,
        stored.version,
        stored.stored_at,
        policy,
        problem,
        passed,
        pauses,
        counts_of(carry_over.read(passed.carry_over).gauges),
        permission.word if permission else "unreadable",
        permission.plan if permission else False,
        without_secrets(
            f"{failure.cls}: {failure.message}" if failure is not None else "", stored.text, policy
        ),
    )
