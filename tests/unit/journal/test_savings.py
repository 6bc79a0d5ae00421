"""Savings: what follows from the ended operations (docs/bill.md "Savings")."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.journal.savings import (
    DAY,
    FAILED,
    HOUR,
    OVERLAP,
    REMOVAL,
    REPLACEMENT,
    counted,
    entries,
    savings,
)
from chalicelib.model.cluster_bill import Savings
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
    "half of a removal is bought back": (
        [removal("a", NOW, 400_000), growth("b", NOW + HOUR)],
        {REMOVAL: 2 * 24 + 2},
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
    "a purchase for no pods buys nothing back": (
        [removal("a", NOW), growth("b", NOW + HOUR, pods=())],
        {REMOVAL: 48},
    ),
    "a purchase before the removal buys nothing back": (
        [growth("b", NOW - HOUR), removal("a", NOW)],
        {REMOVAL: 48},
    ),
    "a removal that failed saves nothing": ([removal("a", NOW, state=OperationState.FAILED)], {}),
    "a removal without a price saves nothing": ([removal("a", NOW, 0)], {}),
    "expiry, drift and repair save nothing": (
        [removal(reason, NOW, reason=reason) for reason in ("expired", "drifted", "repair")],
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
