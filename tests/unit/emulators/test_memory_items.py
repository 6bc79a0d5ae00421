"""The in-memory table refuses what it does not implement, and sizes items as DynamoDB does."""

from __future__ import annotations

import pytest
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.operand import Path
from pynamodb.expressions.update import Action

from chalicelib.store.tables import LeaseRow
from infra.emulators.memory_table import Item, MemoryAccount, holds, item_size, kept, updated

ITEM: Item = {"owner": {"S": "me"}, "token": {"N": "3"}}


@pytest.mark.parametrize(
    "condition",
    [
        LeaseRow.owner.startswith("m"),
        LeaseRow.owner.contains("m"),
        Path("owner") == (Path("decision") | "me"),
    ],
    ids=str,
)
def test_table_condition_that_is_not_implemented_is_an_error(condition: Condition) -> None:
    with pytest.raises(NotImplementedError):
        holds(condition, ITEM)


@pytest.mark.parametrize(
    "action",
    [
        LeaseRow.token.set(LeaseRow.token + 1),
        Path("names").delete({"a"}),
    ],
    ids=["increment", "delete"],
)
def test_table_action_that_is_not_implemented_is_an_error(action: Action) -> None:
    with pytest.raises(NotImplementedError):
        updated(ITEM, [action])


def test_table_type_that_the_store_does_not_use_is_an_error() -> None:
    with pytest.raises(NotImplementedError):
        kept({"names": {"SS": ["a"]}})


def test_table_query_that_the_store_does_not_make_is_an_error() -> None:
    account = MemoryAccount()
    account.create("t")
    with pytest.raises(KeyError):
        account.query(
            TableName="t", KeyConditionExpression="cluster = :c", ExpressionAttributeValues={}
        )


@pytest.mark.parametrize(
    ("item", "size"),
    [
        ({}, 0),
        ({"ab": {"S": "xyz"}}, 5),
        ({"é": {"S": "🙂"}}, 6),
        ({"b": {"B": bytes(10)}}, 11),
        ({"n": {"N": "0"}}, 2),
        ({"n": {"N": "12"}}, 3),
        ({"n": {"N": "-12.5"}}, 5),
        ({"n": {"N": "1700"}}, 3),
    ],
    ids=str,
)
def test_table_item_has_the_size_that_dynamodb_charges(item: Item, size: int) -> None:
    assert item_size(item) == size


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1.50", "1.5"),
        ("1795245660.0", "1795245660"),
        ("-0", "0"),
        ("1e-7", "0.0000001"),
        ("1E3", "1000"),
    ],
)
def test_table_number_is_stored_in_plain_digits(text: str, stored: str) -> None:
    assert kept({"n": {"N": text}}).item == {"n": {"N": stored}}
