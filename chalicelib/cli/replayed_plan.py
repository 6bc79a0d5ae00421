"""Makes the plan of a recorded decision again, as it was recorded or with another policy.

The plan is compared with the recorded one byte for byte. A span replays every recorded decision of
some days, and sums up by day.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import chalicelib
from chalicelib.cli import compare
from chalicelib.cli.output import Block, Table, emit, progress, warn
from chalicelib.cli.plan_inputs import PlanInputs, with_bounds
from chalicelib.cli.policy_files import place_of, planned_policy
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.open_schedules import apply_schedules
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.replay.decision_place import DecisionReader
from chalicelib.replay.recorded_decision import (
    DecisionHeader,
    RecordedDecision,
    decode,
    key_at,
    key_from,
)
from chalicelib.store.codec import encode


class ReplayedPlan(msgspec.Struct, frozen=True):
    """A plan that was made again. same: it has the bytes of the recorded one. parts: the parts of
    the plan that differ. why: what may explain the difference; empty where nothing does."""

    plan: Plan
    same: bool
    parts: tuple[str, ...] = ()
    why: str = ""


def replay(header: DecisionHeader, decision: RecordedDecision) -> ReplayedPlan:
    """Return the plan that this release makes from the recorded inputs. No time passes for it, so
    no time limit cuts its searches."""
    waited = decision.plan.waits_for_pods > 0
    plan, _ = plan_cluster(
        decision.snapshot,
        decision.policy,
        decision.memory,
        decision.now,
        decision.seed,
        wait=waited,
    )
    # A pass records operations with its token, or none where they are not carried out.
    operations = (
        tuple(op.with_spec(token=decision.seed) for op in plan.operations) if decision.acted else ()
    )
    plan = msgspec.structs.replace(plan, operations=operations)
    if encode(plan) == encode(decision.plan):
        return ReplayedPlan(plan, same=True)
    recorded, replayed = msgspec.structs.asdict(decision.plan), msgspec.structs.asdict(plan)
    parts = tuple(name for name in recorded if encode(recorded[name]) != encode(replayed[name]))
    why = "a time limit may have ended a search of the recorded pass; no time passes in a replay"
    if header.release != chalicelib.__version__:
        why = (
            f"the plan was made by release {header.release}; this is release "
            f"{chalicelib.__version__}"
        )
    elif not decision.snapshot.candidates and decision.snapshot.selections:
        why = "it was too large to be recorded with the machines that managed pools could buy"
    elif any(note.code is ReasonCode.TIME_BUDGET for note in decision.plan.notes):
        why = "a time limit ended a search of the recorded pass; no time passes in a replay"
    return ReplayedPlan(plan, same=False, parts=parts, why=why)


def inputs_of(decision: RecordedDecision) -> PlanInputs:
    """Return the inputs of a recorded plan as those of a plan that is made now."""
    return PlanInputs(
        decision.snapshot,
        decision.policy,
        decision.memory,
        decision.now,
        decision.seed,
        None,
        (),
        read=0.0,
    )


class OtherPolicy:
    """A policy from a file. Each warning is printed once, however many decisions there are."""

    def __init__(self, policy: Policy, place: str) -> None:
        self._policy, self._place = policy, place
        self._warned: set[str] = set()

    def plan(self, decision: RecordedDecision) -> tuple[Policy, Plan]:
        """Return the policy, and the plan that it makes from the recorded inputs. Raises
        BadInput as `inputs` does."""
        policy, snapshot = self.inputs(decision)
        plan, _ = plan_cluster(
            snapshot, policy, decision.memory, decision.now, decision.seed, wait=False
        )
        return policy, plan

    def inputs(self, decision: RecordedDecision) -> tuple[Policy, Snapshot]:
        """Return the policy under the cluster's name, with the pauses of that time and the
        schedules that were open then, and the snapshot with its bounds of groups. Raises BadInput
        for bounds that contradict those of a group."""
        recorded = decision.policy
        policy = msgspec.structs.replace(
            apply_schedules(self._policy, decision.now),
            name=recorded.name,
            version=recorded.version,
            pauses=recorded.pauses,
        )
        return policy, with_bounds(
            decision.snapshot, policy.node_groups, place=self._place, warn=self._warn
        )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


def read_policy(file: Path) -> OtherPolicy:
    """Return the policy of a file, which is read as `plan` reads it. Raises InputErrors,
    OSError."""
    policy, warnings = planned_policy(file, place_of(str(file)))
    for text in warnings:
        warn(text)
    return OtherPolicy(policy, str(file))


def same_prices(recorded_policy: Policy, other_policy: Policy) -> tuple[Policy, Policy]:
    """Return both policies with the same prices, so that their costs can be compared: the other
    policy's, if it has any."""
    prices = other_policy.prices if other_policy.prices is not None else recorded_policy.prices
    return msgspec.structs.replace(recorded_policy, prices=prices), msgspec.structs.replace(
        other_policy, prices=prices
    )


# -- a span ----------------------------------------------------------------------------------------

_NAMED = 20  # problems that are named one by one
_MOST_PODS = 100_000  # names that are kept of a day
_LONGEST = 400 * 86400.0
_COLUMNS = ("new nodes", "removed", "pods without a place", "cost/h added", "cost/h saved")


class PlanTotals(msgspec.Struct):
    """Sums of plans. refused: the pods without a place, each once. cost, saved: per hour, of new
    and of removed nodes; unpriced: of these, the number without a price."""

    bought: int = 0
    removed: int = 0
    refused: set[str] = msgspec.field(default_factory=set)
    cost: float = 0.0
    saved: float = 0.0
    unpriced: int = 0

    def add(self, plan: Plan, decision: RecordedDecision, policy: Policy) -> None:
        """Add one plan."""
        self.bought += sum(increase.to_size - increase.from_size for increase in plan.scale_ups)
        self.removed += len(plan.removals)
        if len(self.refused) < _MOST_PODS:
            self.refused.update(pod for batch in plan.unschedulable for pod in batch.pods)
        price = compare.cost(inputs_of(decision), policy, plan)
        self.cost += price.added
        self.saved += price.saved
        self.unpriced += len(price.unknown)

    def as_data(self) -> dict[str, Any]:
        """Return the sums as JSON has them."""
        return {
            "nodes": self.bought,
            "removals": self.removed,
            "left": len(self.refused),
            "cost": round(self.cost, 6),
            "saved": round(self.saved, 6),
            "unpriced": self.unpriced,
        }

    def cells(self) -> tuple[str, ...]:
        """Return the sums in the order of the columns."""
        return (
            str(self.bought),
            str(self.removed),
            str(len(self.refused)),
            f"{self.cost:.2f}",
            f"{self.saved:.2f}",
        )


class ReplayedDay(msgspec.Struct):
    """One day of a span: the replayed plans, and those of the other policy."""

    decisions: int = 0
    different: int = 0
    recorded: PlanTotals = msgspec.field(default_factory=PlanTotals)
    other: PlanTotals = msgspec.field(default_factory=PlanTotals)


class Span(msgspec.Struct):
    """All days, and what could not be replayed. beyond_limit: number of decisions."""

    days: dict[str, ReplayedDay] = msgspec.field(default_factory=dict)
    problems: list[str] = msgspec.field(default_factory=list)
    unreadable: int = 0
    beyond_limit: int = 0

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
        for number, path in enumerate(paths_between(reader, args.cluster, since, now - args.until)):
            if number < args.limit:
                _add_decision(path, reader, other, span)
            else:
                span.beyond_limit += 1
    if not span.days and not span.problems:
        raise BadInput(
            args.cluster,
            "has no recorded decision in this time",
            "see spec.recordDecisions, and --since",
        )
    emit(args.output, _document(args.cluster, span, other), lambda: _blocks(span, other))
    return 1 if span.unreadable or any(day.different for day in span.days.values()) else 0


def paths_between(
    reader: DecisionReader, cluster: str, since: float, until: float
) -> Iterator[str]:
    """Yield the decisions of a cluster between two instants (epoch seconds), in order."""
    first, last = key_at(cluster, max(0.0, since), "").at, key_at(cluster, max(0.0, until), "").at
    for path in reader.paths(f"{cluster}/"):
        key = key_from(path)
        if key is not None and first <= key.at <= last:
            yield path


def _add_decision(path: str, reader: DecisionReader, other: OtherPolicy | None, span: Span) -> None:
    try:
        header, decision = decode(reader.get(path), path)
        replayed = replay(header, decision)
        changed = None if other is None else other.plan(decision)
    except OutscalerError as error:
        span.problem(str(error))
        return
    except Exception as error:
        span.problem(f"{path}: cannot be replayed ({type(error).__name__})")
        return
    day = span.days.setdefault(
        datetime.fromtimestamp(decision.now, UTC).strftime("%Y-%m-%d"), ReplayedDay()
    )
    day.decisions += 1
    day.different += not replayed.same
    if changed is None:
        day.recorded.add(replayed.plan, decision, decision.policy)
        return
    recorded_policy, other_policy = same_prices(decision.policy, changed[0])
    day.recorded.add(replayed.plan, decision, recorded_policy)
    day.other.add(changed[1], decision, other_policy)


def _document(cluster: str, span: Span, other: OtherPolicy | None) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "days": [
            {
                "day": name,
                "decisions": day.decisions,
                "different": day.different,
                "recorded": day.recorded.as_data(),
                **({"withPolicy": day.other.as_data()} if other is not None else {}),
            }
            for name, day in sorted(span.days.items())
        ],
        "unreadable": span.unreadable,
        "problems": span.problems,
        "notReplayed": span.beyond_limit,
    }


def _blocks(span: Span, other: OtherPolicy | None) -> list[Block]:
    rows: list[tuple[str, ...]] = []
    for name, day in sorted(span.days.items()):
        cells = day.recorded.cells()
        if other is not None:
            cells = tuple(map(" / ".join, zip(cells, day.other.cells(), strict=True)))
        rows.append((name, str(day.decisions), str(day.decisions - day.different), *cells))
    columns = ("day", "decisions", "same", *_COLUMNS)
    title = "By day" if other is None else "By day: recorded policy / given policy"
    blocks: list[Block] = [
        Table(columns, tuple(rows), title=title, right=frozenset(range(1, len(columns)))),
        (
            "Each decision is planned from its own recorded state; effects of one on the next are "
            "not carried on."
        ),
    ]
    unpriced = sum(day.recorded.unpriced + day.other.unpriced for day in span.days.values())
    if unpriced:
        blocks.append(f"{unpriced} groups and nodes have no price, and count as nothing.")
    if span.unreadable:
        more = span.unreadable - len(span.problems)
        blocks.append("\n".join([*span.problems, *([f"and {more} more"] if more else [])]))
    if span.beyond_limit:
        blocks.append(
            f"{span.beyond_limit} more decisions are in this time; --limit N replays more."
        )
    return blocks
