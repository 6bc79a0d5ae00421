"""The table's contract at the store's own seam: the in-memory table, moto and DynamoDB
Local give the same answers.

DynamoDB Local's run is `make test-strict`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.operand import Path
from pynamodb.expressions.update import Action

from chalicelib.store.errors import StoreError, StoreUnavailable
from chalicelib.store.table_client import ConditionFailed, Raw, Table, TransactionCancelled
from chalicelib.store.tables import LeaseRow, OperationRow, RateLimitRow
from tests.unit.store.support import all_at_once, moto_is_lax, table_class

KEYS = {"cluster", "item"}
KB = 1024
SHORT_OF_400_KB = 400 * KB - 200


class Seam:
    """A table, and a partition of it that no other test knows."""

    def __init__(self, client: Any, name: str) -> None:
        self.table = self.opened(client, name)
        self.cluster = f"c-{uuid.uuid4().hex[:12]}"

    @staticmethod
    def opened(client: Any, name: str) -> Table:
        return table_class(client)(
            name,
            region="us-east-1",
            endpoint=None,
            sleep=lambda _: None,
            chance=lambda: 0.5,
            client=client,
        )

    def put(self, item: str = "i", **values: Any) -> None:
        self.table.write(self.table.put(LeaseRow(self.cluster, item, **values)))

    def row(self, item: str = "i") -> Raw:
        found = self.table.get_many([(self.cluster, item)]).get((self.cluster, item), {})
        return {name: value for name, value in found.items() if name not in KEYS}

    def update(self, *actions: Action, condition: Condition | None = None, item: str = "i") -> Raw:
        made = self.table.write(self.table.update(self.cluster, item, actions, condition))
        return {name: value for name, value in made.items() if name not in KEYS}

    def holds(self, condition: Condition) -> bool:
        try:
            self.table.transact([self.table.check(self.cluster, "i", condition)])
        except TransactionCancelled:
            return False
        return True

    def items(self, prefix: str = "", **how: Any) -> list[str]:
        return [raw["item"]["S"] for raw in self.table.query(self.cluster, prefix, **how)]


@pytest.fixture
def seam(connected: Any, table: str) -> Seam:
    return Seam(connected, table)


# --- reads


def test_table_get_of_a_missing_row_returns_none(seam: Seam) -> None:
    assert seam.table.get(LeaseRow, seam.cluster, "i") is None
    assert seam.table.get_many([(seam.cluster, "i")]) == {}


@pytest.mark.parametrize("consistent", [True, False])
def test_table_get_returns_the_row_that_was_put(seam: Seam, *, consistent: bool) -> None:
    seam.put(owner="me", until=12.5, left=b"\x00\xff", token=3)
    found = seam.table.get(LeaseRow, seam.cluster, "i", consistent=consistent)
    assert found is not None
    assert (found.owner, found.until, found.left, found.token) == ("me", 12.5, b"\x00\xff", 3)


@pytest.mark.parametrize("text", ["", "é", "🙂" * 10, "a b\n\x00"])
def test_any_text_is_kept(seam: Seam, text: str) -> None:
    seam.put(owner=text)
    assert seam.row()["owner"] == {"S": text}


def test_more_rows_than_one_request_takes_are_read(seam: Seam) -> None:
    for number in range(105):
        seam.put(f"n{number:03}")
    wanted = [(seam.cluster, f"n{number:03}") for number in range(110)]
    assert sorted(seam.table.get_many(wanted + wanted)) == wanted[:105]


def test_table_query_returns_the_rows_with_the_prefix_in_order(seam: Seam) -> None:
    for item in ("b#2", "a", "b#1", "c", "b", "b#10", "b#é", "B#"):
        seam.put(item)
    assert seam.items() == ["B#", "a", "b", "b#1", "b#10", "b#2", "b#é", "c"]
    assert seam.items("b#") == ["b#1", "b#10", "b#2", "b#é"]
    assert seam.items("b#", newest_first=True) == ["b#é", "b#2", "b#10", "b#1"]
    assert seam.items("b#", limit=2) == ["b#1", "b#10"]
    assert seam.items("b#", below="b#10", consistent=False) == ["b#1", "b#10"]
    assert seam.items("x") == []


@pytest.mark.parametrize("newest_first", [False, True])
def test_table_query_continues_after_each_megabyte(seam: Seam, *, newest_first: bool) -> None:
    names = [f"n{number}" for number in range(8)]
    for name in names:
        seam.put(name, left=bytes(300 * KB))
    assert seam.items("n", newest_first=newest_first) == (names[::-1] if newest_first else names)
    assert seam.items("n", limit=5) == names[:5]


def test_one_page_of_a_query_is_about_a_megabyte(seam: Seam, connected: Any) -> None:
    for number in range(8):
        seam.put(f"n{number}", left=bytes(300 * KB))
    pages: list[int] = []

    def note(parsed: Raw, **_: Any) -> None:
        pages.append(len(parsed["Items"]))

    connected.meta.events.register("after-call.dynamodb.Query", note)
    try:
        assert len(seam.items("n")) == 8
    finally:
        connected.meta.events.unregister("after-call.dynamodb.Query", note)
    assert pages[0] in (3, 4)


# --- conditions


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (LeaseRow.owner == "me", True),
        (LeaseRow.owner == "you", False),
        (LeaseRow.decision == "me", False),
        (LeaseRow.owner != "me", False),
        (LeaseRow.owner != "you", True),
        (LeaseRow.decision != "me", True),
        (LeaseRow.token == 3, True),
        (LeaseRow.until == 3, False),
        (LeaseRow.token < 10, True),
        (LeaseRow.token <= 3, True),
        (LeaseRow.token > 2.5, True),
        (LeaseRow.token >= 4, False),
        (LeaseRow.last_pass < 10, False),
        (LeaseRow.owner < "n", True),
        (LeaseRow.owner > "n", False),
        (LeaseRow.left == b"\x01", True),
        (LeaseRow.left == b"\x02", False),
        (LeaseRow.token.between(1, 3), True),
        (LeaseRow.token.between(4, 9), False),
        (OperationRow.step.is_in("me", "it"), False),
        (LeaseRow.owner.is_in("you", "me"), True),
        (LeaseRow.owner.exists(), True),
        (LeaseRow.decision.exists(), False),
        (LeaseRow.owner.does_not_exist(), False),
        (LeaseRow.decision.does_not_exist(), True),
        (Path("owner") == LeaseRow.token, False),
        (LeaseRow.token == LeaseRow.until, False),
        ((LeaseRow.owner == "me") & (LeaseRow.token == 3), True),
        ((LeaseRow.owner == "me") & (LeaseRow.token == 4), False),
        ((LeaseRow.owner == "x") | (LeaseRow.token == 3), True),
        ((LeaseRow.owner == "x") | (LeaseRow.token == 4), False),
        (~(LeaseRow.owner == "x"), True),
        (~(LeaseRow.owner.exists() & (LeaseRow.token == 3)), False),
        (
            (LeaseRow.owner.does_not_exist() | (LeaseRow.owner == "me")) & (LeaseRow.until < 12.75),
            True,
        ),
    ],
    ids=str,
)
def test_table_condition_holds_as_in_dynamodb(
    seam: Seam, condition: Condition, *, holds: bool
) -> None:
    seam.put(owner="me", token=3, until=12.5, left=b"\x01")
    assert seam.holds(condition) is holds


def test_missing_row_counts_as_a_row_without_attributes(seam: Seam) -> None:
    assert seam.holds(LeaseRow.owner.does_not_exist())
    assert seam.holds(LeaseRow.owner != "me")
    assert not seam.holds(LeaseRow.owner.exists())


@pytest.mark.parametrize(
    "write",
    [
        lambda seam: seam.table.put(LeaseRow(seam.cluster, "i"), LeaseRow.owner == "you"),
        lambda seam: seam.table.update(
            seam.cluster, "i", [LeaseRow.token.add(1)], LeaseRow.owner == "you"
        ),
        lambda seam: seam.table.delete(seam.cluster, "i", LeaseRow.owner == "you"),
    ],
    ids=["put", "update", "delete"],
)
@pytest.mark.parametrize("there", [True, False])
def test_table_refused_write_returns_the_row_and_changes_nothing(
    seam: Seam,
    write: Callable[[Seam], Any],
    *,
    there: bool,
) -> None:
    if there:
        seam.put(owner="me", token=1)
    before = seam.row()
    with pytest.raises(ConditionFailed) as caught:
        seam.table.write(write(seam))
    assert {name: value for name, value in caught.value.old.items() if name not in KEYS} == before
    assert seam.row() == before


# --- writes


def test_table_put_replaces_the_whole_row(seam: Seam) -> None:
    seam.put(owner="me", until=1.0)
    seam.put(token=2)
    assert seam.row() == {"token": {"N": "2"}}


def test_table_update_creates_a_row_and_returns_it(seam: Seam) -> None:
    made = seam.update(LeaseRow.owner.set("me"), LeaseRow.token.add(1))
    assert made == {"owner": {"S": "me"}, "token": {"N": "1"}} == seam.row()
    assert seam.update(LeaseRow.token.add(2), LeaseRow.owner.remove()) == {"token": {"N": "3"}}
    assert seam.update(LeaseRow.decision.remove()) == {"token": {"N": "3"}}


def test_table_update_actions_all_read_the_row_before_the_update(seam: Seam) -> None:
    seam.put(owner="old", token=1)
    assert seam.update(LeaseRow.owner.set("new"), LeaseRow.decision.set(LeaseRow.owner)) == {
        "owner": {"S": "new"},
        "decision": {"S": "old"},
        "token": {"N": "1"},
    }


@moto_is_lax
@pytest.mark.parametrize(
    ("amounts", "total"),
    [
        ((0.1, 0.2), 0.3),
        ((1_795_245_654.25, 0.125), 1_795_245_654.375),
        ((5.0, -5.0), 0.0),
        ((1e-7, 2e-7), 3e-7),
    ],
    ids=str,
)
def test_sums_are_exact_in_decimal_digits(
    seam: Seam, amounts: tuple[float, float], total: float
) -> None:
    for amount in amounts:
        made = seam.update(RateLimitRow.arrival.add(amount))
    assert float(made["arrival"]["N"]) == total


def test_table_deleted_row_is_gone_and_may_be_deleted_again(seam: Seam) -> None:
    seam.put()
    for _ in range(2):
        seam.table.write(seam.table.delete(seam.cluster, "i"))
        assert seam.items() == []


@moto_is_lax
def test_table_row_is_limited_to_400_kb(seam: Seam) -> None:
    seam.put(decision="x" * SHORT_OF_400_KB)
    with pytest.raises(StoreError, match=r"ValidationException.*size"):
        seam.put(decision="x" * 400 * KB)
    with pytest.raises(StoreError, match=r"ValidationException.*size"):
        seam.update(LeaseRow.owner.set("x" * 400))
    assert len(seam.row()["decision"]["S"]) == SHORT_OF_400_KB


@pytest.mark.parametrize("item", ["", "x" * 1025], ids=["empty", "long"])
def test_table_key_has_between_1_and_1024_bytes(seam: Seam, item: str) -> None:
    with pytest.raises(StoreError, match="ValidationException"):
        seam.put(item)


def test_what_dynamodb_finds_malformed_is_refused(seam: Seam) -> None:
    seam.put(owner="me")
    for actions in (
        [LeaseRow.token.add(1), LeaseRow.token.set(2)],
        [LeaseRow.item.set("other")],
        [Path("owner").add(1)],
        [LeaseRow.peak.set(LeaseRow.size)],
    ):
        with pytest.raises(StoreError, match="ValidationException"):
            seam.update(*actions)
    assert seam.row() == {"owner": {"S": "me"}, "token": {"N": "0"}}


def test_missing_table_is_a_service_error(connected: Any) -> None:
    lost = Seam(connected, f"none-{uuid.uuid4().hex}")
    for call in (lost.put, lost.row, lost.items, partial(lost.holds, LeaseRow.owner.exists())):
        with pytest.raises(StoreUnavailable, match="ResourceNotFoundException"):
            call()


# --- transactions


def test_table_transaction_writes_all_rows(seam: Seam) -> None:
    table, cluster = seam.table, seam.cluster
    seam.put("gone")
    seam.put("there", owner="me")
    table.transact(
        [
            table.put(LeaseRow(cluster, "new")),
            table.update(cluster, "up", [LeaseRow.token.add(1)]),
            table.delete(cluster, "gone"),
            table.check(cluster, "there", LeaseRow.owner == "me"),
        ]
    )
    assert seam.items() == ["new", "there", "up"]


def test_table_cancelled_transaction_writes_nothing_and_returns_the_rows(seam: Seam) -> None:
    table, cluster = seam.table, seam.cluster
    seam.put("b", owner="me")
    with pytest.raises(TransactionCancelled) as caught:
        table.transact(
            [
                table.put(LeaseRow(cluster, "a")),
                table.check(cluster, "b", LeaseRow.owner == "you"),
                table.delete(cluster, "c", LeaseRow.owner.exists()),
            ]
        )
    assert {at: old.get("owner") for at, old in caught.value.refused.items()} == {
        1: {"S": "me"},
        2: None,
    }
    assert seam.items() == ["b"]


def test_table_transaction_has_100_writes_at_most_and_each_row_once(seam: Seam) -> None:
    table, cluster = seam.table, seam.cluster
    writes = [table.put(LeaseRow(cluster, f"n{number:03}")) for number in range(101)]
    table.transact(writes[:100])
    for refused in (writes, [writes[0], writes[0]]):
        with pytest.raises(StoreError, match="ValidationException"):
            table.transact(refused)
    assert len(seam.items()) == 100


@moto_is_lax
def test_table_transaction_is_limited_to_4_mb(seam: Seam) -> None:
    writes = [
        seam.table.put(LeaseRow(seam.cluster, f"n{number:02}", left=bytes(390 * KB)))
        for number in range(12)
    ]
    seam.table.transact(writes[:10])
    with pytest.raises(StoreError, match="ValidationException"):
        seam.table.transact(writes)
    assert len(seam.items()) == 10


def test_rows_that_a_transaction_finds_do_not_count_in_its_4_mb(seam: Seam) -> None:
    items = [f"n{number:02}" for number in range(12)]
    for item in items:
        seam.put(item, left=bytes(390 * KB))
    seam.table.transact(
        [seam.table.update(seam.cluster, item, [LeaseRow.owner.set("me")]) for item in items]
    )
    assert seam.row(items[-1])["owner"] == {"S": "me"}
    seam.table.transact([seam.table.delete(seam.cluster, item) for item in items])
    assert seam.items() == []


@moto_is_lax
def test_values_that_a_transaction_sets_count_in_its_4_mb(seam: Seam) -> None:
    value = bytes(390 * KB)
    writes = [
        seam.table.update(seam.cluster, f"n{number:02}", [LeaseRow.left.set(value)])
        for number in range(12)
    ]
    with pytest.raises(StoreError, match="ValidationException"):
        seam.table.transact(writes)
    assert seam.items() == []


def test_local_aws_concurrent_transactions_lose_no_update(seam: Seam) -> None:
    table, cluster = seam.table, seam.cluster

    def count(worker: int) -> None:
        for turn in range(5):
            table.transact(
                [
                    table.update(cluster, "counter", [LeaseRow.token.add(1)]),
                    table.put(LeaseRow(cluster, f"row-{worker}-{turn}")),
                ]
            )

    assert all_at_once([partial(count, worker) for worker in range(4)]) == [None] * 4
    assert seam.row("counter") == {"token": {"N": "20"}}
    assert len(seam.items("row-")) == 20


def test_what_a_reader_does_to_a_row_is_not_seen_by_others(seam: Seam) -> None:
    seam.put(owner="me")
    ((_, raw),) = seam.table.get_many([(seam.cluster, "i")]).items()
    raw["owner"]["S"] = "other"
    raw.clear()
    assert seam.row()["owner"] == {"S": "me"}
