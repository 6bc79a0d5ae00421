"""Savings: what follows from the ended operations (docs/bill.md "Savings")."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.journal.savings import (
    DAY,
    FAILED,
    GIVEN_BACK,
    HOUR,
    OVERLAP,
    REMOVAL,
    REPLACEMENT,
    SAVED,
    SPOT,
    amount,
    counted,
    entries,
    savings,
    unpriced_removals,
    with_gap,
    with_spot,
)
from chalicelib.model.cluster_bill import NO_NOTES, Savings
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from tests.operations import new_operation

NOW = 1_799_971_200.0 + 12 * HOUR  # noon of a day in UTC
MINUTE = 60.0


def removal(name: str, at: float, price: int = 200_000, **fields: Any) -> Operation:
    """A removal of one node that ended at this instant."""
    return _operation(
        name,
        OperationKind.DELETE_NODES,
        at,
        price,
        {"targets": (RemovalTarget(name, name),), **fields},
    )


def growth(name: str, at: float, nodes: int = 1, price: int = 200_000, **fields: Any) -> Operation:
    """A scale-up that was planned and ended at this instant, for pods
    unless it is a replacement's."""
    pods = () if "replacement" in fields else ("shop/web",)
    return _operation(
        name,
        OperationKind.SCALE_UP,
        at,
        price,
        {"pods": pods, "from_size": 1, "to_size": 1 + nodes, **fields},
    )


def _operation(
    name: str, kind: OperationKind, at: float, price: int, fields: dict[str, Any]
) -> Operation:
    return new_operation(
        **{
            "id": name,
            "cluster": "c",
            "provider": "test",
            "group": "m",
            "kind": kind,
            "plan": "p",
            "created_at": at,
            "updated_at": at,
            "state": OperationState.SUCCEEDED,
            "price": price,
            "currency": "EUR",
            **fields,
        }
    )


def money(
    operations: list[Operation], hours: float = 48, under_way: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What is saved by NOW + 2 days, by kind, in hours of 0.1."""
    until = NOW + hours * HOUR
    sums: dict[str, float] = {}
    for entry in entries(operations, until, under_way):
        sums[entry.kind] = sums.get(entry.kind, 0.0) + entry.saved(0.0, until) / 100_000
    return {kind: pytest.approx(amount) for kind, amount in sums.items() if amount}


MOVE: dict[str, Any] = {"replacement": "r-1"}
TWO = tuple(RemovalTarget(name, name) for name in ("n-1", "n-2"))
LEDGER: dict[str, tuple[list[Operation], dict[str, float]]] = {
    "a removal counts for a day": ([removal("a", NOW)], {REMOVAL: 48}),
    "a removal by consolidation counts like it": (
        [removal("a", NOW, reason="consolidation")],
        {REMOVAL: 48},
    ),
    "a removal that is bought back after 4 minutes saved 4 minutes": (
        [removal("a", NOW), growth("b", NOW + 4 * MINUTE)],
        {REMOVAL: 2 * 4 / 60},
    ),
    "the newest removal is bought back first": (
        [removal("a", NOW - 6 * HOUR), removal("b", NOW), growth("c", NOW + HOUR)],
        {REMOVAL: 48 + 2},
    ),
    "a cheaper node that is bought again ends the saving of a dear one": (
        [removal("a", NOW, 400_000), growth("b", NOW + HOUR)],
        {REMOVAL: 4},
    ),
    "one of two nodes is bought again": (
        [removal("a", NOW, targets=TWO), growth("b", NOW + HOUR)],
        {REMOVAL: 2 * 24 + 2},
    ),
    "what is bought again in another currency ends the saving": (
        [removal("a", NOW), growth("b", NOW + HOUR, price=1, currency="CNY")],
        {REMOVAL: 2},
    ),
    "what is bought again at an unknown price ends the saving": (
        [removal("a", NOW), growth("b", NOW + HOUR, price=0)],
        {REMOVAL: 2},
    ),
    "a removal whose pods were bought a node before it ended saved nothing": (
        [removal("a", NOW, created_at=NOW - 60), growth("b", NOW - 30)],
        {},
    ),
    "two removals are bought back by one larger node": (
        [removal("a", NOW), removal("b", NOW), growth("c", NOW + HOUR, price=400_000)],
        {REMOVAL: 4},
    ),
    "a purchase in another pool buys nothing back": (
        [removal("a", NOW), growth("b", NOW + HOUR, group="other")],
        {REMOVAL: 48},
    ),
    "a purchase in another group of the pool buys back": (
        [removal("a", NOW, pool="p"), growth("b", NOW + HOUR, group="other", pool="p")],
        {REMOVAL: 2},
    ),
    "a purchase for no pods, as for a schedule, buys back too": (
        [removal("a", NOW, schedule="night"), growth("b", NOW + 11 * HOUR, pods=())],
        {REMOVAL: 22},
    ),
    "a purchase before the removal buys nothing back": (
        [growth("b", NOW - HOUR), removal("a", NOW, reason="consolidation")],
        {REMOVAL: 48},
    ),
    "a node that was bought for a burst is given back and not saved": (
        [growth("b", NOW - HOUR), removal("a", NOW)],
        {GIVEN_BACK: 48},
    ),
    "a node that was bought a day ago is saved": (
        [growth("b", NOW - 24 * HOUR), removal("a", NOW)],
        {REMOVAL: 48},
    ),
    "as many nodes are given back as were bought": (
        [growth("b", NOW - HOUR), removal("a", NOW, targets=TWO)],
        {GIVEN_BACK: 48, REMOVAL: 48},
    ),
    "what another pool bought is not given back by this one": (
        [growth("b", NOW - HOUR, group="other"), removal("a", NOW)],
        {REMOVAL: 48},
    ),
    "a burst of another currency or unknown price is given back too": (
        [growth("b", NOW - HOUR, price=0), removal("a", NOW, currency="CHF")],
        {GIVEN_BACK: 48},
    ),
    "a node that comes and goes within minutes is never saved": (
        [
            removal("a", NOW),
            *(growth(f"up-{at}", NOW + (10 * at + 4) * MINUTE) for at in range(6)),
            *(removal(f"down-{at}", NOW + (10 * at + 10) * MINUTE) for at in range(6)),
        ],
        {REMOVAL: 2 * 4 / 60, GIVEN_BACK: 5 * 2 * 4 / 60 + 48},
    ),
    "what the next burst buys ends what was given back": (
        [
            growth("b", NOW - HOUR),
            removal("a", NOW),
            growth("c", NOW + 2 * HOUR),
        ],
        {GIVEN_BACK: 4},
    ),
    "a node that a schedule lets go is saved although it was bought today": (
        [
            growth("morning", NOW - 8 * HOUR, pods=()),
            removal("night", NOW, schedule="day", scheduled_at=NOW - 600),
        ],
        {REMOVAL: 48},
    ),
    "a burst after a schedule has closed is given back": (
        [
            growth("burst", NOW - HOUR),
            removal("a", NOW, schedule="day", scheduled_at=NOW - 2 * HOUR),
        ],
        {GIVEN_BACK: 48},
    ),
    "a successor of a node that went for another reason ends no saving": (
        [
            removal("a", NOW, reason="consolidation"),
            removal("b", NOW + HOUR, reason="interrupted"),
            growth("c", NOW + HOUR + 60),
        ],
        {REMOVAL: 48},
    ),
    "a removal that failed saves nothing": ([removal("a", NOW, state=OperationState.FAILED)], {}),
    "a removal without a price saves nothing": ([removal("a", NOW, 0)], {}),
    "expiry, drift, repair and interruptions save nothing": (
        [
            removal(reason, NOW, reason=reason)
            for reason in ("expired", "drifted", "repair", "interrupted")
        ],
        {},
    ),
    "a purchase after a replacement ends what its nodes without a successor save": (
        [
            growth("new", NOW, price=100_000, **MOVE),
            removal("a", NOW, reason="consolidation", targets=TWO, **MOVE),
            growth("more", NOW + HOUR),
        ],
        {REPLACEMENT: 24 * 1 + 2},
    ),
    "a purchase after a replacement by as many nodes ends nothing": (
        [
            growth("new", NOW, price=100_000, **MOVE),
            removal("a", NOW, reason="consolidation", **MOVE),
            growth("more", NOW + HOUR),
        ],
        {REPLACEMENT: 24},
    ),
    "a replacement in another currency counts nothing": (
        [
            growth("new", NOW, price=100_000, currency="CNY", **MOVE),
            removal("a", NOW + HOUR, reason="consolidation", **MOVE),
        ],
        {},
    ),
    "a replacement by a node of unknown price counts nothing": (
        [
            growth("new", NOW, price=0, **MOVE),
            removal("a", NOW + HOUR, reason="consolidation", **MOVE),
        ],
        {},
    ),
    "a replacement saves from the end of the last old node, less the overlap": (
        [
            growth("new", NOW, price=100_000, **MOVE),
            removal("a", NOW + HOUR, reason="consolidation", **MOVE),
            removal("b", NOW + 2 * HOUR, reason="consolidation", **MOVE),
        ],
        {OVERLAP: -2, REPLACEMENT: 24 * (2 + 2 - 1)},
    ),
    "a replacement for another reason saves nothing": (
        [
            growth("new", NOW, price=100_000, **MOVE),
            removal("a", NOW + HOUR, reason="drifted", **MOVE),
        ],
        {},
    ),
    "a replacement does not buy a removal back": (
        [
            removal("a", NOW),
            growth("new", NOW + HOUR, price=100_000, **MOVE),
            removal("b", NOW + 2 * HOUR, **MOVE),
        ],
        {REMOVAL: 48, OVERLAP: -1, REPLACEMENT: 24},
    ),
    "a failed replacement costs its nodes until they are removed, which saves nothing": (
        [growth("new", NOW, price=100_000, **MOVE), removal("x", NOW + 3 * HOUR, 100_000)],
        {FAILED: -3},
    ),
    "a failed replacement costs its nodes for a day at most": (
        [growth("new", NOW, price=100_000, **MOVE)],
        {FAILED: -24},
    ),
    "a removal of a replacement whose purchase is not known saves nothing": (
        [removal("a", NOW, **MOVE)],
        {},
    ),
}


@pytest.mark.parametrize("name", LEDGER)
def test_ledger(name: str) -> None:
    operations, expected = LEDGER[name]
    assert money(operations) == expected
    assert money([*operations, *reversed(operations)]) == expected, (
        "an operation that is read twice counts once"
    )


def test_replacement_that_is_not_over_costs_its_new_nodes_until_now() -> None:
    started = [growth("new", NOW, price=100_000, **MOVE), removal("a", NOW + HOUR, **MOVE)]
    assert money(started, hours=5, under_way=("r-1",)) == {OVERLAP: -5}


def test_saving_of_a_replacement_is_of_the_pool_of_its_old_nodes() -> None:
    moved = [growth("new", NOW, price=100_000, **MOVE), removal("a", NOW + HOUR, **MOVE)]
    pools = {entry.kind: entry.pool for entry in entries(moved, NOW + DAY)}
    assert pools[REPLACEMENT] == (moved[1].spec.pool or moved[1].spec.group)


def test_savings_are_summed_by_day_week_and_month() -> None:
    """A removal a day for 40 days, at noon: half a day of each counts before midnight."""
    all_entries = entries([removal(f"n{day}", NOW - day * DAY) for day in range(1, 41)], NOW)
    (sums,) = savings(all_entries, NOW)
    hour, (_, month_day) = 200_000, (0, 15)  # NOW is the 15th
    assert (sums.currency, sums.rate) == ("EUR", 0)
    assert (sums.today, sums.week, sums.month) == (
        12 * hour,
        7 * 24 * hour,
        ((month_day - 1) * 24 + 12) * hour,
    )


def test_currencies_of_savings_stay_apart() -> None:
    all_entries = entries([removal("a", NOW - HOUR), removal("b", NOW - HOUR, currency="CHF")], NOW)
    assert [(sums.currency, sums.today) for sums in savings(all_entries, NOW)] == [
        ("CHF", 200_000),
        ("EUR", 200_000),
    ]


def test_counter_of_savings_never_falls() -> None:
    """An overlap costs 0.1 for an hour, then 0.1 is saved per hour: the counter waits until
    the cost is made up for."""
    operations = [growth("new", NOW, price=100_000, **MOVE), removal("a", NOW + HOUR, **MOVE)]
    state: tuple[Savings, ...] = ()
    grown, total = [], 0.0
    for hour in range(1, 5):
        at = NOW + hour * HOUR
        state, more = counted(state, entries(operations, at), at - HOUR, at)
        grown.append(round(more["EUR"], 6))
        total += more["EUR"]
    assert grown == [0.0, 0.0, 0.1, 0.1]
    assert state[0].total == state[0].counted == round(total * 1e6)


def test_total_of_savings_outlives_the_operations() -> None:
    before = (Savings("EUR", 1, 2, 3, 4, total=500, counted=500),)
    assert counted(before, (), NOW - HOUR, NOW) == ((Savings("EUR", total=500, counted=500),), {})


def test_burst_every_day_saves_nothing_in_a_week() -> None:
    operations = []
    for day in range(7):
        at = NOW - day * DAY - 2 * HOUR
        operations += [growth(f"up-{day}", at, nodes=5), *bursts_end(day, at + HOUR)]
    (sums,) = savings(entries(operations, NOW), NOW)
    assert (sums.rate, sums.today, sums.week, sums.month) == (0, 0, 0, 0)
    # From one burst to the next 23 hours, on the last day one.
    assert sums.given_back_week == 5 * 200_000 * (6 * 23 + 1)
    assert sums.given_back_today == 5 * 200_000 * (10 + 1)


def bursts_end(day: int, at: float) -> list[Operation]:
    return [removal(f"down-{day}-{node}", at) for node in range(5)]


def test_given_back_is_part_of_no_total() -> None:
    operations = [growth("up", NOW - 2 * HOUR), removal("down", NOW - HOUR)]
    sums, more = counted((), entries(operations, NOW), NOW - DAY, NOW)
    assert (sums[0].total, sums[0].given_back_today, more) == (0, 200_000, {"EUR": 0.0})


def test_nothing_is_saved_while_no_passes_are_made() -> None:
    gap = with_gap(NO_NOTES, NOW + 2 * HOUR, NOW + 30 * HOUR)
    all_entries = entries([removal("a", NOW)], NOW + 48 * HOUR, notes=gap)
    assert amount(all_entries, NOW, NOW + 48 * HOUR) == 2 * 200_000
    short = with_gap(NO_NOTES, NOW + 2 * HOUR, NOW + 3 * HOUR)
    all_entries = entries([removal("a", NOW)], NOW + 48 * HOUR, notes=short)
    assert amount(all_entries, NOW, NOW + 48 * HOUR) == 23 * 200_000


def test_cost_of_an_overlap_counts_while_no_passes_are_made() -> None:
    started = [growth("new", NOW, price=100_000, **MOVE)]
    gap = with_gap(NO_NOTES, NOW, NOW + 5 * HOUR)
    all_entries = entries(started, NOW + 5 * HOUR, ("r-1",), gap)
    assert amount(all_entries, NOW, NOW + 5 * HOUR) == -500_000


def test_spot_nodes_save_what_passes_noted_on_each_day() -> None:
    notes = NO_NOTES
    for day in (40, 8, 1, 0):
        notes = with_spot(notes, {"EUR": 24_000_000 * (day + 1), "USD": 12_000}, NOW - day * DAY)
    (euro, dollar) = savings(entries((), NOW, notes=notes), NOW)
    assert (euro.today, euro.week) == (24_000_000, 72_000_000)
    assert euro.month == 24_000_000 * (1 + 2 + 9)
    assert (euro.spot_today, euro.spot_week, euro.spot_month) == (euro.today, euro.week, euro.month)
    assert (dollar.currency, dollar.today, dollar.rate) == ("USD", 12_000, 0)


def test_notes_have_a_bounded_size() -> None:
    notes = NO_NOTES
    for hour in range(100 * 24):
        at = NOW + hour * HOUR
        amounts = dict.fromkeys(("EUR", "USD", "CHF", "CNY", "GBP", "JPY"), 1000000000.0)
        notes = with_spot(with_gap(notes, at - 1000, at), amounts, at)
    assert len(notes.spot) == 150
    assert len(notes.gaps) == 50
    assert notes.spot[-1].amount == 12e9


def test_removals_without_a_price_to_compare_are_counted_and_save_nothing() -> None:
    operations = [
        removal("old", NOW - 10 * DAY, 0),
        removal("a", NOW - HOUR, 0),
        removal("b", NOW - HOUR, 0, reason="expired"),
        growth("new", NOW - HOUR, price=100_000, currency="CNY", **MOVE),
        removal("c", NOW - HOUR, reason="consolidation", **MOVE),
        removal("d", NOW - 2 * HOUR),
    ]
    assert unpriced_removals(operations, NOW - 7 * DAY) == 2
    assert amount(entries(operations, NOW), NOW - DAY, NOW) == 400_000


def test_counter_counts_spot_by_what_was_noted() -> None:
    notes = with_spot(NO_NOTES, {"EUR": 3_000_000}, NOW)
    sums, more = counted((), entries((), NOW, notes=notes), NOW - HOUR, NOW, {"EUR": 500_000})
    assert (sums[0].total, more) == (500_000, {"EUR": 0.5})
    assert SPOT in SAVED
