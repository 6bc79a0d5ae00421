"""`outscaler cost CLUSTER`: what a cluster costs per hour, what for, and what
was saved (docs/bill.md).

Of a cluster with passes it shows what the last passes stored, so the table is all that it needs; of
a folder of saved files it computes the bill now. With --with-policy it replays recorded decisions
under two policies instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chalicelib import DOCS
from chalicelib.cli import plan_inputs
from chalicelib.cli.arguments import not_one_of
from chalicelib.cli.output import Block, Table, emit, with_local_times
from chalicelib.cli.store_access import (
    add_table_argument,
    load_decision,
    only_cluster,
    open_store,
    stored_policy,
)
from chalicelib.journal import carry_over, savings
from chalicelib.model.cluster_bill import MILLION, ClusterBill, SavingsNotes
from chalicelib.model.errors import BadInput
from chalicelib.model.plan import Plan
from chalicelib.model.resource_names import DECISIONS
from chalicelib.model.timestamps import format_time
from chalicelib.policy.load import load
from chalicelib.policy.timeouts import longest_gap
from chalicelib.reasons.words import counted
from chalicelib.views.cluster_view import as_json
from chalicelib.views.cost_view import (
    GIVEN_BACK,
    PARTS,
    WEEK,
    BillView,
    CostView,
    MachinesView,
    cost_view,
    move_text,
)

if TYPE_CHECKING:
    from chalicelib.store import Store

OUTPUTS = ("table", "wide", "json", "yaml")
_TABLES = {"group": "groups", "pool": "pools", "namespace": "namespaces", "owner": "owners"}
_NO_PRICE = f"add spec.prices to its policy ({DOCS}/bill.md)"
_MOST_DAYS = 35
_OTHERS = "others"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, --by, --days, --policy, --with-policy, --from, --table, and --managed with
    its inputs."""
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="CLUSTER",
        help=(
            "the cluster, or a folder of saved *.json; may be omitted where there is only one "
            "cluster"
        ),
    )
    parser.add_argument(
        "--by",
        type=_by,
        default="group",
        metavar="KEY",
        help=f"one of {', '.join(_TABLES)} (default: group)",
    )
    parser.add_argument(
        "--days",
        type=_days,
        default=0,
        metavar="N",
        help="also the savings of N days; with --with-policy: of N (7)",
    )
    parser.add_argument(
        "--policy", metavar="FILE", help="a folder: the policy document with its prices"
    )
    parser.add_argument(
        "--with-policy",
        metavar="FILE",
        type=Path,
        help="what this policy would have cost, by recorded decisions",
    )
    parser.add_argument(
        "--from",
        dest="place",
        default=os.environ.get(DECISIONS, ""),
        metavar="PLACE",
        help=(
            f"where decisions are recorded: s3://BUCKET/PREFIX or a folder (default: ${DECISIONS})"
        ),
    )
    parser.add_argument(
        "--managed",
        action="store_true",
        help="what the pods would cost with the managed pools of --policy alone",
    )
    parser.add_argument(
        "--catalogue",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="with --managed: a file that --save of catalogue wrote; may be repeated",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="with --managed: a live cluster"
    )
    parser.add_argument(
        "--context", metavar="NAME", help="with --managed: a live cluster, by this context"
    )
    parser.add_argument(
        "--secret",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="with --managed: a file that replaces a secret of the policy; may be repeated",
    )
    add_table_argument(parser)


def _by(text: str) -> str:
    if text in _TABLES:
        return text
    raise argparse.ArgumentTypeError(not_one_of(text, tuple(_TABLES)))


def _days(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= _MOST_DAYS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 1 to {_MOST_DAYS}")


def run(args: argparse.Namespace) -> int:
    """Print the bill. Returns 0; raises BadInput, also where no machine has a price."""
    if args.managed:
        from chalicelib.cli import managed_cost

        return managed_cost.show(args)
    _refuse_inputs(args)
    if args.with_policy is not None:
        if not args.name:
            raise BadInput("--with-policy", "needs a cluster's name", "write it first")
        from chalicelib.cli.policy_cost import show

        return show(args)
    folder, names = Path(args.name), dict[str, str]()
    days: dict[str, float] = {}
    given_back: dict[str, float] = {}
    plan: Plan | None
    if args.name and folder.is_dir():
        if args.days:
            raise BadInput(
                "--days",
                f"needs the operations of a deployment, and {args.name} is a folder",
                "omit it",
            )
        bill, plan = _of_folder(args)
    else:
        if args.policy is not None:
            raise BadInput("--policy", f"belongs to a folder, and {args.name} is none", "omit it")
        store = open_store(args)
        args.name = args.name or only_cluster(store, "outscaler cost")
        stored_policy(store, args.name)
        bill, plan, names = _stored(store, args.name)
        bill, days, given_back = _with_savings(store, args.name, bill, args.days)
    view = cost_view(bill, plan)
    data = {"cluster": args.name, **as_json(view)}
    if args.days:
        amounts = {"byCurrency": days, "givenBackByCurrency": given_back}
        data["savedInDays"] = {"days": args.days, **amounts}
    emit(
        "table" if args.output == "wide" else args.output,
        data,
        lambda: _blocks(args, view, names, days, given_back),
    )
    return 0


def _refuse_inputs(args: argparse.Namespace) -> None:
    """Raise BadInput for an argument that belongs to --managed."""
    given = {
        "--catalogue": args.catalogue,
        "--kubeconfig": args.kubeconfig,
        "--context": args.context,
        "--secret": args.secret,
    }
    name = next((name for name, value in given.items() if value), "")
    if name:
        raise BadInput(name, "belongs to --managed", "add --managed, or take it out")


def _of_folder(args: argparse.Namespace) -> tuple[ClusterBill, Plan]:
    """Return the bill and the plan of a saved cluster. Raises BadInput."""
    from chalicelib.plan.cost_breakdown import cluster_bill
    from chalicelib.plan.state.cluster_state import build_cluster_state

    parser = argparse.ArgumentParser()
    plan_inputs.add_arguments(parser)
    words = ["--snapshot", args.name, *(("--policy", args.policy) if args.policy else ())]
    case = plan_inputs.read(parser.parse_args(words))
    bill = cluster_bill(build_cluster_state(case.snapshot, case.policy, case.memory, case.now))
    if bill is None:
        raise BadInput(
            args.name,
            "no machine has a price",
            f"give --policy FILE with spec.prices, or {_NO_PRICE}",
        )
    return bill, plan_inputs.decided(case).plan


def _stored(store: Store, cluster: str) -> tuple[ClusterBill, Plan | None, dict[str, str]]:
    """Return the stored bill, the last decision, and the names of groups. Raises
    BadInput where there is no bill."""
    overview = store.gauge_rings.overview(cluster)
    if overview.bill is None:
        problem = "no machine has a price" if overview.at else "no pass has made a bill yet"
        raise BadInput(
            cluster, problem, _NO_PRICE if overview.at else "repeat it after the next pass"
        )
    decision, _ = load_decision(store, cluster)
    names = {group.group: group.name for group in overview.groups if group.name}
    return overview.bill, decision.plan if decision is not None else None, names


def _with_savings(
    store: Store, cluster: str, bill: ClusterBill, days: int
) -> tuple[ClusterBill, dict[str, float], dict[str, float]]:
    """Return the bill with the savings of now, and what was saved and given back in so many days,
    by currency."""
    now = time.time()
    operations = store.operations.ended(cluster)
    under_way = savings.under_way(store.memory.look(cluster))
    notes, is_seen = _notes(store, cluster, now)
    entries = savings.entries(operations, now, under_way, notes)
    rates = savings.spot_rates(bill) if is_seen else {}
    sums = tuple(
        msgspec.structs.replace(item, rate=item.rate + rates.get(item.currency, 0))
        for item in savings.savings(entries, now)
    )
    saved, given_back = {}, {}
    since = now - days * savings.DAY
    for item in sums:
        own = [entry for entry in entries if entry.currency == item.currency]
        of_days = savings.amount(own, since, now)
        given_back_of_days = savings.amount(own, since, now, (savings.GIVEN_BACK,))
        saved[item.currency] = round(of_days / MILLION, 6)
        given_back[item.currency] = round(given_back_of_days / MILLION, 6)
    unpriced = savings.unpriced_removals(operations, now - 7 * savings.DAY)
    new_bill = msgspec.structs.replace(
        bill, savings=sums, savings_at=now, unpriced_removals=unpriced
    )
    return new_bill, saved, given_back


def _notes(store: Store, cluster: str, now: float) -> tuple[SavingsNotes, bool]:
    """Return what passes noted, and whether they are still made; otherwise there is a gap since the
    last one."""
    passed = store.scan_states.last(cluster)
    left = carry_over.read(passed.carry_over if passed is not None else b"")
    notes = savings.with_spot(left.notes, left.spot_open, left.ring_at)
    policy, _ = load(stored_policy(store, cluster).text, place=cluster)
    is_seen = not left.ring_at or now - left.ring_at <= longest_gap(policy.scan_interval)
    if not is_seen:  # nothing counts from the last pass on
        notes = savings.with_gap(notes, left.ring_at, now + savings.DAY)
    return notes, is_seen


# -- for people


def _blocks(
    args: argparse.Namespace,
    view: CostView,
    names: Mapping[str, str],
    days: Mapping[str, float],
    given_back: Mapping[str, float],
) -> Iterator[Block]:
    now = time.time()
    for bill in view.bills:
        unpriced = (
            f"; {counted(view.unpriced, 'machine')} without a price not included"
            if view.unpriced
            else ""
        )
        machines = counted(sum(row.machines for row in bill.groups), "machine")
        total = (
            f"{args.name}: {_money(bill.parts.paid, bill.currency)} per hour for "
            f"{machines}{unpriced}"
        )
        yield with_local_times(f"{total} ({format_time(view.at)})", now, sys.stdout)
        yield _parts(bill)
        yield _bound(bill)
        if bill.spot is not None:
            amounts = (
                f"{_money(amount, bill.currency)} {text}" for text, amount in bill.spot.words
            )
            yield f"Spot, per hour: {', '.join(amounts)}"
        for key in _TABLES if args.output == "wide" else (args.by,):
            yield _costs(bill, key, names)
        if bill.overcommitted:
            count = counted(bill.overcommitted, "node")
            yield f"The pods of {count} request more than there is; they count as what there is."
    yield from _saved(args, view, days, given_back)
    rows = tuple(
        (move_text(move, names), _money(move.saves, move.currency), f"{move.score:.2f}", move.state)
        for move in view.moves
    )
    yield Table(
        ("move", "saves per hour", "score", "state"),
        rows,
        title="Best moves",
        right=frozenset({1, 2}),
    )
    if view.end_of_plan is not None:
        yield f"End of the present plan: {view.end_of_plan.words}"
    yield view.note


def _saved(
    args: argparse.Namespace,
    view: CostView,
    days: Mapping[str, float],
    given_back: Mapping[str, float],
) -> Iterator[str]:
    """Yield what was saved, against what, and what is no saving; nothing where nothing was removed
    and no spot node runs."""
    for sums in view.savings:
        currency = sums.currency
        saved = _by_time(sums.saved, args.days, days.get(currency, 0.0))
        yield f"Saved: {_money(sums.rate, currency)} per hour now, {saved}"
        if sums.by_spot:
            yield f"Of it by spot nodes: {_by_time(sums.by_spot, 0, 0.0, currency)}"
        if sums.given_back:
            of_days = given_back.get(currency, 0.0)
            returned = _by_time(sums.given_back, args.days, of_days, currency)
            yield f"Given back: {returned}: {GIVEN_BACK}"
    if view.savings:
        yield view.saved_against
    if view.unpriced_words:
        yield view.unpriced_words


def _by_time(
    amounts: Iterable[tuple[str, float]], days: int, of_days: float, currency: str = ""
) -> str:
    """Return amounts with their times, and that of --days after today's, unless it is one of
    them."""
    today, *longer = amounts
    span = f"in {counted(days, 'day')}"
    own = [(span, of_days)] if days and span != WEEK else []
    texts = []
    for at, (time_word, amount) in enumerate((today, *own, *longer)):
        texts.append(f"{_money(amount, '' if at else currency)} {time_word}")
    return f"{', '.join(texts)} (UTC)"


def _parts(bill: BillView) -> Table:
    parts = {name: getattr(bill.parts, name) for name in PARTS}
    rows = tuple(
        (PARTS[name], _money(amount), _percent(amount, bill.parts.paid))
        for name, amount in parts.items()
    )
    return Table(("what for", "per hour", "share"), rows, right=frozenset({1, 2}))


def _bound(bill: BillView) -> str:
    if bill.bound is None or bill.efficiency is None:
        return "Lower bound: unknown"
    away = _money(bill.parts.paid - bill.bound, bill.currency)
    return (
        f"Lower bound: {_money(bill.bound, bill.currency)}, {bill.efficiency:.1%} of the "
        "price; "
        f"no choice of nodes for these pods saves more than {away}"
    )


def _costs(bill: BillView, key: str, names: Mapping[str, str]) -> Table:
    if key in ("group", "pool"):
        machines: tuple[MachinesView, ...] = getattr(bill, _TABLES[key])
        columns = (
            key,
            "machines",
            "per hour",
            "requested",
            "other",
            "wanted",
            "avoidable",
            "not usable",
        )
        rows = tuple(
            (
                names.get(row.name, row.name) or "(no group)",
                str(row.machines),
                *(
                    _money(amount)
                    for amount in (
                        row.parts.paid,
                        row.parts.workload,
                        row.parts.daemonsets + row.parts.overhead,
                        row.parts.wanted,
                        row.parts.avoidable,
                        row.parts.unusable,
                    )
                ),
            )
            for row in machines
        )
        right = frozenset(range(1, len(columns)))
        return Table(columns, rows, right=right, spare=(7, 4, 5))
    workloads = bill.namespaces if key == "namespace" else bill.owners
    total = bill.parts.paid
    return Table(
        (key, "per hour", "share", "idle"),
        tuple(
            (
                row.name or f"{row.names} {_OTHERS}",
                _money(row.workload),
                _percent(row.workload, total),
                _money(row.idle),
            )
            for row in workloads
        ),
        right=frozenset({1, 2, 3}),
        empty="no pod requests anything",
    )


def _money(amount: float, currency: str = "") -> str:
    """Return an amount with its currency; cents, or more digits of a small amount."""
    text = f"{amount:.2f}" if abs(amount) >= 1 or amount == 0 else f"{amount:.4f}"
    return f"{text} {currency}".strip()


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole > 0 else "-"
