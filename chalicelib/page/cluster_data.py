"""What the pages show, read from the tables in as few requests as possible: three for all clusters, five for one.

Nothing is computed anew: a page shows the last pass of a cluster and what is stored since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chalicelib.dispatch.mode_guard import permitted
from chalicelib.model.gauge_ring import GaugePoint
from chalicelib.model.memory import Memory
from chalicelib.model.pause import Pause
from chalicelib.model.policy import Policy
from chalicelib.model.policy_permissions import Deployment
from chalicelib.record import carry_over
from chalicelib.record.journal import PLAN
from chalicelib.record.last_decision import DecisionUnreadable, LastDecision, last_decision
from chalicelib.record.redaction import without_secrets
from chalicelib.runtime.active_policy import in_force_or_problem
from chalicelib.store.errors import StoreError
from chalicelib.store.journal import JournalEntry
from chalicelib.store.leases import LastPass

if TYPE_CHECKING:
    from chalicelib.store import Store, StoredPolicy

HISTORY = 30
"""Journal entries of a cluster's page."""


class ClusterSummary(msgspec.Struct, frozen=True):
    """One cluster of the list. problem: why its policy or its rows cannot be read. gauges: by metrics.key, of the
    last pass. plans: passes are made for it. failure: of the last pass, "" where it succeeded."""

    name: str
    version: int
    policy: Policy | None
    problem: str
    passed: LastPass
    pauses: tuple[Pause, ...]
    gauges: dict[str, float]
    mode_word: str
    plans: bool
    failure: str


class ClusterDetails(msgspec.Struct, frozen=True):
    """One cluster's page. decision: None where there is none, then `undecided` says why. entries: newest first."""

    summary: ClusterSummary
    memory: Memory
    decision: LastDecision | None
    undecided: str
    entries: tuple[JournalEntry, ...]
    points: tuple[GaugePoint, ...]
    text: str


def summaries(store: Store, now: float, deployment: Deployment | None) -> tuple[ClusterSummary, ...]:
    """Return every cluster, by name. deployment: what the functions permit policies to name; None where it is not
    known, so that only the text of a policy is judged. Raises StoreError."""
    known = store.policies.all_current()
    if not known:
        return ()
    pauses = store.pauses.all_current()
    passed = store.scan_states.passed_by([stored.name for stored in known])
    return tuple(
        _summary(stored, passed.get(stored.name, LastPass()), pauses.get(stored.name, ()), now, deployment)
        for stored in known
    )


def details(store: Store, name: str, now: float, deployment: Deployment | None) -> ClusterDetails | None:
    """Return one cluster; None where it is not known. deployment: see summaries. Raises StoreError."""
    stored, pauses = store.pauses.with_policy(name)
    if stored is None:
        return None
    passed = store.scan_states.last(name, points=True) or LastPass()
    entries = store.journal.recent(name, HISTORY)
    decision, undecided = _decision(store, name, passed, entries)
    return ClusterDetails(
        _summary(stored, passed, pauses, now, deployment),
        store.memory.glance(name),
        decision,
        undecided,
        entries,
        passed.points,
        stored.text,
    )


class _Read:
    """The journal, of which the newest entries were read already."""

    def __init__(self, store: Store, entries: tuple[JournalEntry, ...]) -> None:
        self._journal, self._entries = store.journal, entries

    def at(self, cluster: str, at: float) -> tuple[JournalEntry, ...]:
        found = tuple(each for each in self._entries if abs(each.at - at) < 1e-5 and each.kind == PLAN)
        return found or self._journal.at(cluster, at)

    def recent(self, cluster: str, limit: int = 50, *, before: float | None = None) -> tuple[JournalEntry, ...]:
        return self._journal.recent(cluster, limit, before=before)


def _decision(
    store: Store, name: str, passed: LastPass, entries: tuple[JournalEntry, ...]
) -> tuple[LastDecision | None, str]:
    try:
        found = last_decision(name, passed, _Read(store, entries))
    except DecisionUnreadable as error:
        return None, str(error)
    return found, "" if found is not None else "no pass has decided yet"


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
    return ClusterSummary(
        stored.name,
        stored.version,
        policy,
        problem,
        passed,
        pauses,
        carry_over.read(passed.carry_over).gauges,
        permission.word if permission else "unreadable",
        permission.plan if permission else False,
        without_secrets(_failure_text(passed), stored.text, policy),
    )


def _failure_text(passed: LastPass) -> str:
    failure = passed.state.failure
    return f"{failure.cls}: {failure.message}" if failure is not None else ""
