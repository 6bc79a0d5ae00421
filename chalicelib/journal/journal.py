"""The journal: an entry per operation that ended, and an entry per decision
that differs from the last.

A pass every few seconds that decides the same would hide what an operator looks for, and each entry
is a paid write. A decision is therefore reduced to a digest of what was decided and why, without
the numbers that change with time (ages, instants), and only a new digest is written. The last
digest is stored with the lease (store/leases.py), so that reading it costs nothing. A pass that
dies between the entry and the release of the lease leaves the old digest behind: the entry is then
written once more.

The newest decision in the journal is the one in force. Its instant is carried over from pass to
pass (carry_over.py), so that commands and pages find it by its key, however many entries of
operations followed it. views/journal_lines.py says what an entry says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from chalicelib.journal import carry_over
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.errors import OutscalerError
from chalicelib.model.machine_offers import MachineOffers, PodFits
from chalicelib.model.operation import OPENS, REPLACED_BY, REPLACES, SAVES, Operation, OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.model.plan import ConsolidationReport, NodeVerdict, Plan
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.store.journal import CounterTotals, JournalEntry
from chalicelib.store.leases import LastPass, PassFailure

PLAN, OPERATION, PASS = "plan", "operation", "pass"
DIGEST = "decision"
REPEATED = 86400.0
"""Seconds after which an unchanged decision is written again: entries expire, and
the last decision must not."""
RULES = "rules"
"""Keys of the rules that request nodes: in a decision, and in a scale-up if
Operation.data has them."""
RECENT = 50
"""Newest entries that are searched for a decision where a pass of an earlier
release left no instant."""

_Facts = dict[str, str | int | float | bool]


class Journal(Protocol):
    """The methods of the store's journal that are used for writing."""

    def append(self, cluster: str, entry: JournalEntry) -> None:
        """Write one entry."""

    def put_offers(self, cluster: str, name: str, offers: MachineOffers, at: float) -> None:
        """Write the machines that decisions are chosen from."""

    def ledger(self, cluster: str) -> CounterTotals:
        """Return the counters, and which events were reported recently."""

    def count(self, cluster: str, counts: Mapping[str, float]) -> None:
        """Add to counters."""

    def tell(
        self, cluster: str, counts: Mapping[str, float], told: bytes, *, expected: str
    ) -> bool:
        """Add to counters and replace `told`, unless its version differs from the expected one."""


def plan_entry(plan: Plan, fits: PodFits | None = None) -> JournalEntry:
    """Return the entry of a decision: counts as facts, the plan itself as body (its operations
    have entries of their own). fits: what managed pools have for its pods."""
    facts: _Facts = {
        DIGEST: decision(plan),
        "healthy": plan.health.healthy,
        "nodes": plan.health.registered,
        "scaleUps": len(plan.scale_ups),
        "unschedulable": sum(len(verdict.pods) for verdict in plan.unschedulable),
        "removals": len(plan.removals),
        "unneeded": len(plan.unneeded),
        "repairs": len(plan.repairs),
        "gaps": len(plan.gaps),
    }
    if plan.restarts:
        facts["restarts"] = len(plan.restarts)
    horizon = plan.consolidation.horizon if plan.consolidation is not None else None
    if horizon is not None and horizon.since == plan.at:
        facts["departures"] = len(horizon.going)
    rules = sorted({rule for up in plan.scale_ups for rule in up.rules})
    if rules:
        facts[RULES] = ",".join(rules)
    body = msgspec.json.encode(msgspec.structs.replace(plan, operations=()))
    return JournalEntry(plan.at, PLAN, plan.id, facts=facts, body=body.decode(), fits=fits)


def outcome_entry(operation: Operation, outcome: Succeeded | Failed, now: float) -> JournalEntry:
    """Return the entry of an operation that is over."""
    spec = operation.spec
    facts: _Facts = {
        "kind": spec.kind.value,
        "provider": spec.provider,
        "state": operation.status.state.value,
        "seconds": round(now - spec.created_at, 1),
        **outcome.facts,
    }
    if RULES in operation.status.data:
        facts[RULES] = operation.status.data[RULES]
    if OPENS in operation.status.data:
        facts["opens"] = operation.status.data[OPENS]
    facts |= _consolidation_facts(operation)
    pods = len(spec.pods) or sum(len(target.evict) for target in spec.targets)
    if pods:
        facts["pods"] = pods
    if spec.targets:
        facts["targets"] = ",".join(target.node or target.instance for target in spec.targets)
    if isinstance(outcome, Failed):
        facts["class"] = outcome.error_class
        facts["message"] = outcome.message
        if outcome.code:
            facts["code"] = outcome.code
    return JournalEntry(
        at=now, kind=OPERATION, plan=spec.plan, operation=spec.id, group=spec.group, facts=facts
    )


def _consolidation_facts(operation: Operation) -> _Facts:
    """Return why a node goes that is not unneeded, what replaces it or what a purchase replaces,
    and what that saves per hour."""
    spec = operation.spec
    data = operation.status.data
    named = {
        "reason": spec.reason,
        "replacement": spec.replacement,
        "replaces": data.get(REPLACES, ""),
        "replacedBy": data.get(REPLACED_BY, ""),
    }
    facts: _Facts = {key: text for key, text in named.items() if text}
    is_removal = spec.kind is OperationKind.DELETE_NODES
    if is_removal and spec.reason == DisruptionReason.CONSOLIDATION.value:
        text = data.get(SAVES, "") if spec.replacement else str(spec.price)
        saves = int(text) if text.lstrip("-").isdecimal() else 0
        if saves > 0:
            facts["saves"] = saves / 1_000_000
            if spec.currency:
                facts["currency"] = spec.currency
    return facts


def failing_entry(failure: PassFailure, now: float) -> JournalEntry:
    """Return the entry of the first of several consecutive passes that failed."""
    facts: _Facts = {"state": "failing", "class": failure.cls, "message": failure.message}
    return JournalEntry(at=now, kind=PASS, facts=facts)


def recovered_entry(failure: PassFailure, began: float, now: float) -> JournalEntry:
    """Return the entry of the first pass that succeeded again; began: its
    instant (epoch seconds)."""
    facts: _Facts = {
        "state": "recovered",
        "class": failure.cls,
        "since": format_time(failure.since),
        "failures": failure.count,
        "seconds": round(max(0.0, began - failure.since), 1),
    }
    return JournalEntry(at=now, kind=PASS, facts=facts)


def new_decision(plan: Plan, last: str, at: float) -> str:
    """Return the plan's digest, "" if the last decision was the same and is not older than
    REPEATED: then no entry is written. last, at: its digest and its instant (epoch seconds), "" and
    0.0 where none is known."""
    digest = decision(plan)
    return "" if digest == last and plan.at - at < REPEATED else digest


def decision(plan: Plan) -> str:
    """Return 16 hexadecimal digits that are equal for two passes that decide the
    same for the same reasons.

    Reason codes are included without their numbers: `not unneeded long enough` is one decision
    for ten minutes, not one per pass. Without rules and headroom the digest equals that of
    releases that did not have them.
    """
    parts = _decided(plan)
    if plan.rules or plan.headroom:
        parts.append(_decided_by_rules(plan))
    if plan.consolidation is not None:
        parts.append(_consolidated(plan.consolidation))
    if plan.lifecycle:
        parts.append([(due.node, due.why, _code(due.held)) for due in plan.lifecycle])
    if plan.restarts:
        parts.append([(restart.node, restart.condition.split("=")[0]) for restart in plan.restarts])
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def _decided(plan: Plan) -> list[object]:
    """Return what every release decides, in the order that the digest requires."""
    scale_ups = [(up.group, up.from_size, up.to_size, up.pods) for up in plan.scale_ups]
    unschedulable = [(verdict.pods, _codes(verdict.reasons)) for verdict in plan.unschedulable]
    ignored = [(pods.pods, pods.reason.code) for pods in plan.ignored]
    removals = [(removal.node, removal.kind) for removal in plan.removals]
    repairs = [
        (repair.group, repair.kind, repair.to_size, repair.instances) for repair in plan.repairs
    ]
    unremovable = [(verdict.node, *_blocked_by(verdict)) for verdict in plan.unremovable]
    groups = [
        (group.group, group.min, group.max, group.target, _code(group.skipped))
        for group in plan.groups
    ]
    gaps = [(gap.kind, gap.name) for gap in plan.gaps]
    notes = [note.code for note in plan.notes]
    return [
        plan.health.healthy,
        scale_ups,
        unschedulable,
        ignored,
        removals,
        repairs,
        _code(plan.paused),
        plan.unneeded,
        unremovable,
        groups,
        gaps,
        notes,
    ]


def _decided_by_rules(plan: Plan) -> list[object]:
    scale_ups = [(up.group, up.rules, up.headroom) for up in plan.scale_ups]
    rules = [
        (rule.source, rule.rule, rule.pool, rule.nodes, _code(rule.reason)) for rule in plan.rules
    ]
    headroom = [(room.name, room.wanted, room.held, room.added) for room in plan.headroom]
    return [scale_ups, rules, headroom]


def _code(reason: Reason | None) -> str:
    return reason.code if reason is not None else ""


def _consolidated(consolidation: ConsolidationReport) -> list[object]:
    """Return what consolidation decided: its moves, and the codes of nodes that stay for longer."""
    moves = [
        (move.nodes, [(bought.group, bought.nodes) for bought in move.purchases], move.state)
        for move in consolidation.moves
    ]
    stays = [
        (verdict.node, verdict.reason.code)
        for verdict in consolidation.verdicts
        if not verdict.reason.code.row.momentary
    ]
    horizon = consolidation.horizon
    end = [horizon.id, horizon.marked] if horizon is not None else []
    return [consolidation.mode, moves, stays, *end]


def _blocked_by(verdict: NodeVerdict) -> tuple[str, str]:
    """Return why a node stays. A node is simulated every five minutes, and in between it stays for
    the reason found then, which is not a different decision."""
    if verdict.reason.code is ReasonCode.RECENTLY_UNREMOVABLE:
        return str(verdict.reason.params.get("was", verdict.reason.code)), verdict.pod
    return verdict.reason.code, verdict.pod


def _codes(reasons: dict[str, tuple[Reason, ...]]) -> list[tuple[str, Sequence[str]]]:
    return [(group, [reason.code for reason in reasons[group]]) for group in sorted(reasons)]


# -- the last decision, for commands and pages without access to the cluster


class DecisionUnreadable(OutscalerError):
    """The entry has no plan, or one that this release cannot read."""


class LastDecision(msgspec.Struct, frozen=True):
    """at: the instant of the decision; confirmed_at: of the last pass, which decided the same
    (epoch seconds). Ages and instants in the plan are those of the decision. fits: None where none
    are stored."""

    at: float
    confirmed_at: float
    plan: Plan
    fits: PodFits | None = None


class JournalReader(Protocol):
    """The methods of the store's journal that are used for reading."""

    def at(self, cluster: str, at: float) -> tuple[JournalEntry, ...]:
        """Return the entries of an instant."""

    def recent(
        self, cluster: str, limit: int = 50, *, before: float | None = None
    ) -> tuple[JournalEntry, ...]:
        """Return the newest entries, newest first."""


def last_decision(cluster: str, passed: LastPass, journal: JournalReader) -> LastDecision | None:
    """Return the decision in force; None where no pass has made one. passed: the
    last pass (ScanStates.last).

    One read, and one more where the entry has expired or a pass of an earlier release made
    it. Raises StoreError, and DecisionUnreadable for a plan that was too large for the
    journal or is not readable.
    """
    decided = carry_over.read(passed.carry_over).decided
    entries = journal.at(cluster, decided) if decided else ()
    entry = _plan_of(entries) or _plan_of(journal.recent(cluster, RECENT))
    if entry is None:
        return None
    if not entry.body:
        raise DecisionUnreadable(
            f"{cluster}: the plan of {entry.plan} was too large for the journal; explain it live"
        )
    try:
        plan = msgspec.json.decode(entry.body, type=Plan)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DecisionUnreadable(
            f"{cluster}: the plan of {entry.plan} cannot be read by this release ({error}); "
            "explain it live"
        ) from error
    return LastDecision(entry.at, max(passed.last_pass, entry.at), plan, entry.fits)


def _plan_of(entries: Sequence[JournalEntry]) -> JournalEntry | None:
    return next((entry for entry in entries if entry.kind == PLAN), None)
