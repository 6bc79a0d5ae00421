"""The last decision about a cluster, as the journal has it, for commands and pages without access to the cluster.

A pass that decides as before writes no entry, so the newest decision in the journal is the one in force. Its instant is
carried over from pass to pass (carry_over.py), so that the entry is found by its key, however many entries of
operations followed it. Ages and instants inside it are those of that pass.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.model.plan import Plan
from chalicelib.record import carry_over
from chalicelib.record.journal import PLAN
from chalicelib.store.journal import JournalEntry
from chalicelib.store.leases import LastPass

RECENT = 50
"""Newest entries that are searched where a pass of an earlier release left no instant."""


class DecisionUnreadable(OutscalerError):
    """The entry has no plan, or one that this release cannot read."""


class LastDecision(msgspec.Struct, frozen=True):
    """at: the instant of the decision; confirmed_at: of the last pass, which decided the same (epoch seconds)."""

    at: float
    confirmed_at: float
    plan: Plan


class _Entries(Protocol):
    def at(self, cluster: str, at: float) -> tuple[JournalEntry, ...]: ...

    def recent(self, cluster: str, limit: int = 50, *, before: float | None = None) -> tuple[JournalEntry, ...]: ...


def last_decision(cluster: str, passed: LastPass, journal: _Entries) -> LastDecision | None:
    """Return the decision in force; None where no pass has made one. passed: the last pass (ScanStates.last).

    One read, and one more where the entry has expired or a pass of an earlier release made it. Raises StoreError, and
    DecisionUnreadable for a plan that was too large for the journal or is not readable.
    """
    decided = carry_over.read(passed.carry_over).decided
    entries = journal.at(cluster, decided) if decided else ()
    entry = next((each for each in entries if each.kind == PLAN), None)
    entry = entry or next((each for each in journal.recent(cluster, RECENT) if each.kind == PLAN), None)
    if entry is None:
        return None
    return LastDecision(entry.at, max(passed.last_pass, entry.at), _plan(cluster, entry))


def _plan(cluster: str, entry: JournalEntry) -> Plan:
    if not entry.body:
        raise DecisionUnreadable(f"{cluster}: the plan of {entry.plan} was too large for the journal; explain it live")
    try:
        return msgspec.json.decode(entry.body, type=Plan)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DecisionUnreadable(
            f"{cluster}: the plan of {entry.plan} cannot be read by this release ({error}); explain it live"
        ) from error
