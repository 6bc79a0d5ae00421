"""What the pages show, read from the tables in as few requests as possible: three for all clusters, five for one.

Nothing is computed anew: a page shows the last pass of a cluster and what is stored since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chalicelib.dispatch.mode_guard import permitted
from chalicelib.model.gauge_ring import GaugePoint
from chalicelib.model.memory import Memory
from chalicelib.model.pause import Pause, PausedPart, whole
from chalicelib.model.policy import Policy
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.timestamps import format_time
from chalicelib.record import carry_over
from chalicelib.record.journal import PLAN, DecisionUnreadable, LastDecision, last_decision
from chalicelib.record.metrics import key
from chalicelib.record.redaction import without_secrets
from chalicelib.record.views import LATE_AFTER
from chalicelib.runtime.active_policy import in_force_or_problem
from chalicelib.store.errors import StoreError
from chalicelib.store.journal import JournalEntry
from chalicelib.store.scan_state import Passed

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
    passed: Passed
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
        _summary(stored, passed.get(stored.name, Passed()), pauses.get(stored.name, ()), now, deployment)
        for stored in known
    )


def details(store: Store, name: str, now: float, deployment: Deployment | None) -> ClusterDetails | None:
    """Return one cluster; None where it is not known. deployment: see summaries. Raises StoreError."""
    stored, pauses = store.pauses.with_policy(name)
    if stored is None:
        return None
    passed = store.scan_states.shown(name)
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
    store: Store, name: str, passed: Passed, entries: tuple[JournalEntry, ...]
) -> tuple[LastDecision | None, str]:
    try:
        found = last_decision(name, passed, _Read(store, entries))
    except DecisionUnreadable as error:
        return None, str(error)
    return found, "" if found is not None else "no pass has decided yet"


def _summary(
    stored: StoredPolicy,
    passed: Passed | StoreError,
    pauses: tuple[Pause, ...] | StoreError,
    now: float,
    deployment: Deployment | None,
) -> ClusterSummary:
    policy, problem = in_force_or_problem(stored, now, deployment)
    if isinstance(passed, StoreError):
        passed, problem = Passed(), problem or str(passed)
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
        carry_over.read(passed.left).gauges,
        permission.word if permission else "unreadable",
        permission.plan if permission else False,
        without_secrets(_failure_text(passed), stored.text, policy),
    )


def _failure_text(passed: Passed) -> str:
    failure = passed.state.failure
    return f"{failure.cls}: {failure.message}" if failure is not None else ""


class ClusterStatus(msgspec.Struct, frozen=True):
    """word, shape: shown together. tone: a class of the style sheet. detail: one line. rank: the worst is first."""

    word: str
    shape: str
    tone: str
    detail: str
    rank: int


def status_of(summary: ClusterSummary, now: float) -> ClusterStatus:
    """Return the first status that applies, the worst first."""
    state, pause = summary.passed.state, whole(summary.pauses)
    interval = summary.policy.scan_interval if summary.policy is not None else 0.0
    late = bool(state.last_pass) and now - state.last_pass > interval + LATE_AFTER
    partly = pause_text(summary.pauses[0]) if summary.pauses else ""
    since = f", since {format_time(state.failure.since)}" if state.failure is not None else ""
    braked = bool(state.last_pass) and summary.gauges.get(key("brake"), 0.0) > 0
    blocked = "the circuit breaker blocks removals until they are released"
    found: tuple[tuple[bool, ClusterStatus], ...] = (
        (bool(summary.problem), ClusterStatus("UNREADABLE", "▲", "bad", summary.problem, 0)),
        (not summary.plans, ClusterStatus("OFF", "■", "muted", "the policy's mode is off", 6)),
        (late, ClusterStatus("LATE", "▲", "bad", summary.failure or "no pass is made", 1)),
        (bool(summary.failure), ClusterStatus("FAILING", "▲", "bad", summary.failure + since, 2)),
        (braked, ClusterStatus("BRAKE", "▲", "bad", blocked, 2)),
        (pause is not None, ClusterStatus("PAUSED", "◐", "warn", pause_text(pause) if pause else "", 3)),
        (not state.last_pass, ClusterStatus("WAITING", "○", "muted", "no pass has been made yet", 4)),
    )
    return next((each for applies, each in found if applies), ClusterStatus("OK", "●", "ok", partly, 5))


def pause_text(pause: Pause) -> str:
    """Return a pause as one line."""
    what = "" if pause.part is PausedPart.ALL else f"{pause.part.value} "
    group = f"of group {pause.group} " if pause.group else ""
    return f"{what}{group}paused until {format_time(pause.until)} by {pause.by or 'unknown'}: {pause.reason}"
