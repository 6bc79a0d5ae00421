"""`outscaler cost CLUSTER --with-policy FILE`: what another policy would have
cost, by recorded decisions.

Both policies run over the same recorded pods with the same prices;
replay/policy_simulation.py has the rules.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import msgspec

from chalicelib.cli.output import Block, Table, emit, progress, warn
from chalicelib.cli.replayed_plan import OtherPolicy, paths_between, read_policy, same_prices
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.quantity import format_duration
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timestamps import format_time
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.words import counted
from chalicelib.replay.decision_place import DecisionReader, reader
from chalicelib.replay.policy_simulation import LONGEST_GAP, Comparison, PolicyCost, compare
from chalicelib.replay.recorded_decision import RecordedDecision, decode
from chalicelib.views.cost_view import MACHINES_ONLY

_USUAL_DAYS = 7
_MOST = 10_000  # decisions
_WARNED = 5


def show(args: argparse.Namespace) -> int:
    """Print the comparison. Returns 0; raises BadInput where nothing is recorded."""
    if not args.place:
        raise BadInput(
            "--from",
            "is not given, and OUTSCALER_DECISIONS is not set",
            "give s3://BUCKET/PREFIX or a folder",
        )
    other, now = read_policy(args.with_policy), time.time()
    days = args.days or _USUAL_DAYS
    with progress("replaying"):
        comparison = compare(
            recorded_decisions(reader(args.place), args.name, now - days * 86400, now),
            [lambda decision: _recorded(decision, other), lambda decision: _given(decision, other)],
        )
    if comparison is None:
        raise BadInput(
            args.name,
            f"has no recorded decision in {counted(days, 'day')}",
            "see spec.recordDecisions",
        )
    notes = limits(comparison)
    recorded, given = comparison.policies
    data = {
        "cluster": args.name,
        "since": format_time(comparison.since),
        "until": format_time(comparison.until),
        "decisions": comparison.decisions,
        "hours": comparison.hours,
        "leftOut": comparison.left_out,
        "readySeconds": comparison.ready_seconds,
        "recorded": msgspec.to_builtins(recorded),
        "withPolicy": msgspec.to_builtins(given),
        "notes": notes,
    }
    emit(
        "table" if args.output == "wide" else args.output,
        data,
        lambda: _blocks(args.name, comparison, notes),
    )
    return 0


def recorded_decisions(
    decision_reader: DecisionReader, cluster: str, since: float, until: float
) -> Iterator[RecordedDecision]:
    """Yield the decisions between two instants that can be read, the oldest first."""
    unreadable = 0
    for number, path in enumerate(paths_between(decision_reader, cluster, since, until)):
        if number >= _MOST:
            warn(
                f"{cluster}: only the first {_MOST} decisions are replayed; --days N chooses fewer"
            )
            return
        try:
            yield decode(decision_reader.get(path), path)[1]
        except OutscalerError as error:
            unreadable += 1
            if unreadable <= _WARNED:
                warn(str(error))


def _recorded(decision: RecordedDecision, other: OtherPolicy) -> tuple[Policy, Snapshot]:
    return same_prices(decision.policy, other.inputs(decision)[0])[0], decision.snapshot


def _given(decision: RecordedDecision, other: OtherPolicy) -> tuple[Policy, Snapshot]:
    policy, snapshot = other.inputs(decision)
    return same_prices(decision.policy, policy)[1], snapshot


def limits(comparison: Comparison) -> list[str]:
    """Return what the comparison does not know."""
    ready = format_duration(round(comparison.ready_seconds))
    gaps = (
        f"spans of more than {LONGEST_GAP / 60:.0f} minutes without any are left out, "
        f"{comparison.left_out:.0%}"
    )
    return [
        f"Only decisions with changes are recorded; {gaps}.",
        (
            "The pods are those of the record: what autoscalers of pods and evictions did there is "
            "not repeated."
        ),
        f"New nodes are ready after {ready}, the median of the record, and removals take no time.",
        MACHINES_ONLY,
    ]


def _blocks(cluster: str, comparison: Comparison, notes: list[str]) -> Iterator[Block]:
    recorded, given = comparison.policies
    currencies = sorted({*recorded.cost, *given.cost})
    rows = [
        (
            f"cost {currency}".strip(),
            f"{recorded.cost.get(currency, 0.0):.2f}",
            f"{given.cost.get(currency, 0.0):.2f}",
        )
        for currency in currencies
    ]
    rows += [
        (title, f"{figure(recorded):g}", f"{figure(given):g}") for title, figure in FIGURES.items()
    ]
    yield (
        f"{cluster}: {comparison.hours:.1f} hours between {format_time(comparison.since)} and "
        f"{format_time(comparison.until)}, {counted(comparison.decisions, 'recorded decision')}"
    )
    yield Table(("", "recorded policy", "given policy"), tuple(rows), right=frozenset({1, 2}))
    yield "\n".join(notes)


FIGURES: dict[str, Callable[[PolicyCost], float]] = {
    "minutes that pods waited": lambda cost: cost.pending_minutes,
    "nodes bought": lambda cost: cost.nodes_bought,
    "nodes removed": lambda cost: cost.nodes_removed,
    "pods moved": lambda cost: cost.pods_moved,
    "disruption": lambda cost: cost.disruption,
    "hours of nodes without a price": lambda cost: cost.unpriced_hours,
}
