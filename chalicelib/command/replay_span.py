"""`outscaler replay --cluster NAME --since 7d`: replays every recorded decision of a span, and sums up by day."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.command import compare
from chalicelib.command.output import Block, Table, emit, progress
from chalicelib.command.replay_inputs import OtherPolicy, inputs_of, same_prices
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy

if TYPE_CHECKING:
    from chalicelib.replay.decision_place import DecisionReader
    from chalicelib.replay.recorded_decision import RecordedDecision

_NAMED = 20  # problems that are named one by one
_MOST_PODS = 100_000  # names that are kept of a day
_LONGEST = 400 * 86400.0


class PlanTotals(msgspec.Struct):
    """Sums of plans. refused: the pods without a node, each once. cost, saved: per hour, of new and of removed nodes;
    unpriced: of these, the number without a price."""

    bought: int = 0
    removed: int = 0
    refused: set[str] = msgspec.field(default_factory=set)
    cost: float = 0.0
    saved: float = 0.0
    unpriced: int = 0

    def add(self, plan: Plan, decision: RecordedDecision, policy: Policy) -> None:
        """Add one plan."""
        self.bought += sum(up.to_size - up.from_size for up in plan.scale_ups)
        self.removed += len(plan.removals)
        if len(self.refused) < _MOST_PODS:
            self.refused.update(pod for left in plan.unschedulable for pod in left.pods)
        price = compare.cost(inputs_of(decision), policy, plan)
        self.cost += price.added
        self.saved += price.saved
        self.unpriced += len(price.unknown)


class ReplayedDay(msgspec.Struct):
    """One day of a span: the replayed plans, and those of the other policy."""

    decisions: int = 0
    different: int = 0
    recorded: PlanTotals = msgspec.field(default_factory=PlanTotals)
    other: PlanTotals = msgspec.field(default_factory=PlanTotals)


class Span(msgspec.Struct):
    """All days, and what could not be replayed. left: decisions beyond the limit."""

    days: dict[str, ReplayedDay] = msgspec.field(default_factory=dict)
    problems: list[str] = msgspec.field(default_factory=list)
    unreadable: int = 0
    left: int = 0

    def problem(self, text: str) -> None:
        """Count a decision that cannot be replayed."""
        self.unreadable += 1
        if len(self.problems) < _NAMED:
            self.problems.append(text)


def show_span(args: argparse.Namespace, reader: DecisionReader, other: OtherPolicy | None) -> int:
    """Print the span. Returns 0 if every plan is the recorded one, otherwise 1."""
    now = time.time()
    since = now - (args.since if args.since is not None else _LONGEST)
    span = Span()
    with progress("replaying"):
        for number, path in enumerate(_paths(reader, args.cluster, since, now - args.until)):
            if number >= args.limit:
                span.left += 1
                continue
            _replay(path, reader, other, span)
    if not span.days and not span.problems:
        raise BadInput(args.cluster, "has no recorded decision in this time", "see spec.recordDecisions, and --since")
    emit(args.output, _document(args.cluster, span, other), lambda: _blocks(span, other))
    return 1 if span.unreadable or any(day.different for day in span.days.values()) else 0


def _paths(reader: DecisionReader, cluster: str, since: float, until: float) -> Iterator[str]:
    from chalicelib.replay.recorded_decision import key_at, key_from

    first, last = key_at(cluster, max(0.0, since), "").at, key_at(cluster, max(0.0, until), "").at
    for path in reader.paths(f"{cluster}/"):
        key = key_from(path)
        if key is not None and first <= key.at <= last:
            yield path


def _replay(path: str, reader: DecisionReader, other: OtherPolicy | None, span: Span) -> None:
    from chalicelib.command.replayed_plan import replay, with_policy
    from chalicelib.replay.recorded_decision import decode

    try:
        header, decision = decode(reader.get(path), path)
        replayed = replay(header, decision)
        changed = None if other is None else (found := other.of(decision), with_policy(decision, *found))
    except OutscalerError as error:
        span.problem(str(error))
        return
    except Exception as error:
        span.problem(f"{path}: cannot be replayed ({type(error).__name__})")
        return
    day = span.days.setdefault(datetime.fromtimestamp(decision.now, UTC).strftime("%Y-%m-%d"), ReplayedDay())
    day.decisions += 1
    day.different += not replayed.same
    if changed is None:
        day.recorded.add(replayed.plan, decision, decision.policy)
        return
    (_, policy), plan = changed
    recorded, given = same_prices(decision.policy, policy)
    day.recorded.add(replayed.plan, decision, recorded)
    day.other.add(plan, decision, given)


def _document(cluster: str, span: Span, other: OtherPolicy | None) -> dict[str, Any]:
    def of(totals: PlanTotals) -> dict[str, Any]:
        return {
            "nodes": totals.bought,
            "removals": totals.removed,
            "left": len(totals.refused),
            "cost": round(totals.cost, 6),
            "saved": round(totals.saved, 6),
            "unpriced": totals.unpriced,
        }

    return {
        "cluster": cluster,
        "days": [
            {
                "day": name,
                "decisions": day.decisions,
                "different": day.different,
                "recorded": of(day.recorded),
                **({"withPolicy": of(day.other)} if other is not None else {}),
            }
            for name, day in sorted(span.days.items())
        ],
        "unreadable": span.unreadable,
        "problems": span.problems,
        "notReplayed": span.left,
    }


def _blocks(span: Span, other: OtherPolicy | None) -> list[Block]:
    def cell(day: ReplayedDay, shown: str) -> str:
        first = _cell(day.recorded, shown)
        return first if other is None else f"{first} / {_cell(day.other, shown)}"

    rows = tuple(
        (name, str(day.decisions), str(day.decisions - day.different), *(cell(day, each) for each in _COLUMNS))
        for name, day in sorted(span.days.items())
    )
    title = "By day" if other is None else "By day: recorded policy / given policy"
    blocks: list[Block] = [
        Table(
            ("day", "decisions", "same", *_COLUMNS.values()),
            rows,
            title=title,
            right=frozenset(range(1, len(_COLUMNS) + 3)),
        ),
        "Each decision is planned from its own recorded state; effects of one on the next are not carried on.",
    ]
    unpriced = sum(day.recorded.unpriced + day.other.unpriced for day in span.days.values())
    if unpriced:
        blocks.append(f"{unpriced} groups and nodes have no price, and count as nothing.")
    if span.unreadable:
        more = span.unreadable - len(span.problems)
        blocks.append("\n".join([*span.problems, *([f"and {more} more"] if more else [])]))
    if span.left:
        blocks.append(f"{span.left} more decisions are in this time; --limit N replays more.")
    return blocks


_COLUMNS = {
    "bought": "new nodes",
    "removed": "removed",
    "refused": "pods without a node",
    "cost": "cost/h added",
    "saved": "cost/h saved",
}


def _cell(totals: PlanTotals, shown: str) -> str:
    value = getattr(totals, shown)
    if isinstance(value, set):
        return str(len(value))
    return f"{value:.2f}" if isinstance(value, float) else str(value)
