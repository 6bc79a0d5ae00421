"""`outscaler advise CLUSTER`: schedules for what is needed at the same time of
every day (docs/advise.md).

It reads the tables and proposes; a person adds the fragment to the policy. Where decisions are
recorded, they are replayed with the proposal, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from chalicelib.cli.advise import output
from chalicelib.cli.advise.backtest import LEAST_DAYS, Advice, advise
from chalicelib.cli.advise.reading import read_record, usual_zone
from chalicelib.cli.output import Block, Table, emit, progress, warn
from chalicelib.cli.store_access import add_table_argument, only_cluster, open_store, stored_policy
from chalicelib.model.errors import BadInput
from chalicelib.model.resource_names import DECISIONS
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.replay.recorded_decision import RecordedDecision

_MOST_DAYS = 35


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, --days, --groups, --time-zone, --from and --table."""
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="CLUSTER",
        help="the cluster; may be omitted where there is only one",
    )
    parser.add_argument(
        "--days",
        type=_days,
        default=LEAST_DAYS,
        metavar="N",
        help=(
            f"days of history, {LEAST_DAYS} (default) to {_MOST_DAYS}; more than 14 where nodes "
            "have a price"
        ),
    )
    parser.add_argument(
        "--groups",
        action="append",
        default=[],
        metavar="GROUP",
        help="only this node group; may be given several times",
    )
    parser.add_argument(
        "--time-zone",
        type=_zone,
        metavar="ZONE",
        help="of the schedules (default: that of the policy's schedules and windows, else UTC)",
    )
    parser.add_argument(
        "--from",
        dest="place",
        default=os.environ.get(DECISIONS, ""),
        metavar="PLACE",
        help=(
            "replay the decisions recorded there, too: s3://BUCKET/PREFIX or a folder (default: "
            f"${DECISIONS})"
        ),
    )
    add_table_argument(parser)


def _days(text: str) -> int:
    if text.isascii() and text.isdigit() and LEAST_DAYS <= int(text[:6]) <= _MOST_DAYS:
        return int(text)
    problem = (
        f"{text[:40]!r} is not a number from {LEAST_DAYS} to {_MOST_DAYS}: patterns of a week need "
        "two weeks"
    )
    raise argparse.ArgumentTypeError(problem)


def _zone(text: str) -> str:
    from chalicelib.schedules.cron import check_zone

    try:
        check_zone(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(f"{error.problem}; {error.remedy}") from None
    return text


def run(args: argparse.Namespace) -> int:
    """Print the advice; -o yaml prints the fragment of the policy. Returns 0; raises BadInput."""
    store, now = open_store(args), time.time()
    name = args.name or only_cluster(store, "outscaler advise")
    text = stored_policy(store, name).text
    record = read_record(store, name, text, args.days, args.groups, now)
    zone = args.time_zone or usual_zone(record.policy)
    advice = advise(
        record.histories, record.span, zone, record.policy.schedules, record.policy.headroom
    )
    advice = output.validated(advice, text, name)
    if args.output == "yaml":
        sys.stdout.write(output.fragment(name, advice))
        return 0
    replayed = (
        _replayed(args.place, name, advice, record.span.since, record.span.until)
        if args.place
        else None
    )
    data = output.as_data(name, advice, record.span.until, zone) | {"replayed": replayed}

    def blocks() -> Iterator[Block]:
        yield from output.blocks(name, advice, record.span.until, zone)
        if replayed is not None:
            yield _replay_table(replayed)

    emit(args.output, data, blocks)
    return 0


# -- recorded decisions


def _replayed(
    place: str, cluster: str, advice: Advice, since: float, until: float
) -> dict[str, Any] | None:
    """Return what the proposed schedules would have cost with recorded decisions; None without a
    proposal or a decision. Raises BadInput for a place that cannot be read."""
    from chalicelib.cli.policy_cost import recorded_decisions
    from chalicelib.replay.decision_place import reader
    from chalicelib.replay.policy_simulation import compare

    if not advice.proposals:
        return None

    def recorded(decision: RecordedDecision) -> tuple[Policy, Snapshot]:
        return decision.policy, decision.snapshot

    def with_advice(decision: RecordedDecision) -> tuple[Policy, Snapshot]:
        return output.with_schedules(decision.policy, advice), decision.snapshot

    with progress("replaying"):
        decisions = recorded_decisions(reader(place), cluster, since, until)
        comparison = compare(decisions, [recorded, with_advice])
    if comparison is None:
        warn(
            f"{cluster}: no decision of these days is recorded at {place}; the figures are "
            f"{output.COMPUTED}"
        )
        return None
    before, after = comparison.policies
    return {
        "source": output.REPLAYED,
        "decisions": comparison.decisions,
        "hours": comparison.hours,
        "leftOut": comparison.left_out,
        "recorded": msgspec.to_builtins(before),
        "withAdvice": msgspec.to_builtins(after),
    }


def _replay_table(replayed: dict[str, Any]) -> Table:
    before, after = replayed["recorded"], replayed["withAdvice"]
    currencies = sorted({*before["cost"], *after["cost"]})
    rows = [
        (
            f"cost {key}".strip(),
            f"{before['cost'].get(key, 0.0):.2f}",
            f"{after['cost'].get(key, 0.0):.2f}",
        )
        for key in currencies
    ]
    rows.append(
        (
            "minutes that pods waited",
            f"{before['pendingMinutes']:g}",
            f"{after['pendingMinutes']:g}",
        )
    )
    title = (
        f"{replayed['decisions']} recorded decisions replayed: {replayed['hours']:.1f} hours; "
        f"{replayed['leftOut']:.0%} of the time has none"
    )
    return Table(
        ("", "recorded", "with the advice"), tuple(rows), title=title, right=frozenset({1, 2})
    )
