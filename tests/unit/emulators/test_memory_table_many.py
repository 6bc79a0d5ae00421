"""Many rows of the table in memory mean what they mean in DynamoDB: queries, pages, batches, transactions.

Every case, but those at the end, also holds against Amazon's DynamoDB Local (see test_memory_table.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from infra.emulators.dynamodb.client import MemoryClient
from infra.emulators.dynamodb.tables import Tables
from tests.unit.emulators.table_under_test import KEY, Bed, Json, code, empty, new_bed, refused


@pytest.fixture(scope="module")
def bed() -> Bed:
    return new_bed()


@pytest.fixture(autouse=True)
def _fresh(bed: Bed) -> None:
    empty(bed)


def _query(bed: Bed, more: str = "", **given: Any) -> Json:
    values = {":c": {"S": "c"}, **given.pop("values", {})}
    return bed(
        "query",
        KeyConditionExpression=f"#c = :c{more}",
        ExpressionAttributeValues=values,
        ExpressionAttributeNames={"#c": "cluster"} | ({"#i": "item"} if "#i" in more else {}),
        ConsistentRead=True,
        **given,
    )


def _items(answer: Json) -> list[str]:
    return [row["item"]["S"] for row in answer["Items"]]


RANGES: tuple[tuple[str, Json, list[str]], ...] = (
    ("", {}, ["a", "b#1", "b#2", "b~", "é"]),
    (" AND #i = :x", {":x": {"S": "a"}}, ["a"]),
    (" AND #i < :x", {":x": {"S": "b#2"}}, ["a", "b#1"]),
    (" AND #i <= :x", {":x": {"S": "b#2"}}, ["a", "b#1", "b#2"]),
    (" AND #i > :x", {":x": {"S": "b#2"}}, ["b~", "é"]),
    (" AND #i >= :x", {":x": {"S": "b~"}}, ["b~", "é"]),
    (" AND begins_with(#i, :x)", {":x": {"S": "b#"}}, ["b#1", "b#2"]),
    (" AND (#i BETWEEN :x AND :y)", {":x": {"S": "a"}, ":y": {"S": "b#1"}}, ["a", "b#1"]),
)


@pytest.mark.parametrize(("more", "values", "expected"), RANGES)
def test_queries_in_both_directions(bed: Bed, more: str, values: Json, expected: list[str]) -> None:
    for item in ("b~", "é", "a", "b#2", "b#1"):
        bed.put(item)
    bed("put_item", Item=KEY | {"cluster": {"S": "other"}})
    assert _items(_query(bed, more, values=values)) == expected
    assert _items(_query(bed, more, values=values, ScanIndexForward=False)) == expected[::-1]


def test_pages_by_limit(bed: Bed) -> None:
    for item in "abc":
        bed.put(item)
    for forward, order in ((True, ["a", "b", "c"]), (False, ["c", "b", "a"])):
        first = _query(bed, Limit=2, ScanIndexForward=forward)
        assert (_items(first), first["LastEvaluatedKey"]["item"]["S"]) == (order[:2], order[1])
        second = _query(bed, Limit=2, ScanIndexForward=forward, ExclusiveStartKey=first["LastEvaluatedKey"])
        assert (_items(second), "LastEvaluatedKey" in second) == (order[2:], False)
    assert "LastEvaluatedKey" in _query(bed, Limit=3)  # it stopped there and did not look further
    bed("delete_item", Key=KEY | {"item": {"S": "a"}})
    assert _items(_query(bed, ExclusiveStartKey=KEY | {"item": {"S": "a"}})) == ["b", "c"]


@pytest.mark.parametrize("operation", ["query", "scan"])
def test_a_page_has_a_megabyte(bed: Bed, operation: str) -> None:
    for number in range(12):
        bed.put(f"{number:02}", s={"S": "x" * 100_000})
    seen: list[str] = []
    start: Json = {}
    sizes = []
    while True:
        page = _query(bed, **start) if operation == "query" else bed("scan", **start)
        seen += _items(page)
        sizes.append(len(page["Items"]))
        if "LastEvaluatedKey" not in page:
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert seen == [f"{number:02}" for number in range(12)]
    assert len(sizes) == 2


@pytest.mark.parametrize(
    "text",
    [
        "#c > :c",
        "#c = :c AND #c = :c AND #i = :c",
        "#c = :c OR #i = :c",
        "#c = :c AND #i <> :c",
        "#c = :c AND n = :c",
        "#c = :gone",
    ],
)
def test_a_key_condition_that_is_none(bed: Bed, text: str) -> None:
    given = {":c": {"S": "c"}}
    code, _ = refused(
        bed,
        "query",
        KeyConditionExpression=text,
        ExpressionAttributeValues=given,
        ExpressionAttributeNames={"#c": "cluster"} | ({"#i": "item"} if "#i" in text else {}),
    )
    assert code == "ValidationException"


def test_batches_of_up_to_a_hundred_different_keys(bed: Bed) -> None:
    keys = [KEY | {"item": {"S": f"{number}"}} for number in range(101)]
    for key in keys[:3]:
        bed("put_item", Item=key)

    def get(wanted: list[Json]) -> Json:
        answer: Json = bed.client.batch_get_item(RequestItems={bed.name: {"Keys": wanted, "ConsistentRead": True}})
        return answer

    answer = get(keys[:100])
    assert sorted(_items({"Items": answer["Responses"][bed.name]})) == ["0", "1", "2"]
    assert answer["UnprocessedKeys"] == {}
    for wrong in (keys, [keys[0], keys[0]]):
        with pytest.raises(ClientError) as caught:
            get(wrong)
        assert code(caught.value) == "ValidationException"


# --- transactions


def _cancelled(bed: Bed, *writes: tuple[str, Json]) -> list[Json]:
    with pytest.raises(ClientError) as caught:
        bed.transact(*writes)
    answer: Json = dict(caught.value.response)
    assert code(caught.value) == "TransactionCanceledException", answer
    return [
        {name: value for name, value in reason.items() if name != "Message"} for reason in answer["CancellationReasons"]
    ]


def _key(item: str) -> Json:
    return {"Key": KEY | {"item": {"S": item}}}


def test_all_or_nothing_with_a_reason_and_the_old_row_each(bed: Bed) -> None:
    bed.put("a", n={"N": "1"})
    wrong = {"ConditionExpression": "n = :v", "ExpressionAttributeValues": {":v": {"N": "2"}}}
    shown = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    up = {"UpdateExpression": "ADD n :v", "ExpressionAttributeValues": {":v": {"N": "1"}}}
    old = KEY | {"item": {"S": "a"}, "n": {"N": "1"}}
    reasons = _cancelled(
        bed,
        ("ConditionCheck", _key("a") | wrong | shown),
        ("Put", {"Item": KEY | {"item": {"S": "new"}}}),
        ("Delete", _key("gone") | wrong | shown),
        ("Update", _key("b") | up),
    )
    assert reasons == [
        {"Code": "ConditionalCheckFailed", "Item": old},
        {"Code": "None"},
        {"Code": "ConditionalCheckFailed"},
        {"Code": "None"},
    ]
    assert _items(_query(bed)) == ["a"]
    right = wrong | {"ExpressionAttributeValues": {":v": {"N": "1"}}}
    bed.transact(
        ("ConditionCheck", _key("a") | right),
        ("Put", {"Item": KEY | {"item": {"S": "new"}}}),
        ("Update", _key("b") | up),
        ("Delete", _key("gone")),
    )
    assert _items(_query(bed)) == ["a", "b", "new"]


def test_what_no_transaction_may_be(bed: Bed) -> None:
    many = [("Delete", _key(f"{number}")) for number in range(101)]
    twice = [("Delete", _key("a")), ("Put", {"Item": KEY | {"item": {"S": "a"}}})]
    large = [("Put", {"Item": KEY | {"item": {"S": f"{number}"}, "s": {"S": "x" * 390_000}}}) for number in range(11)]
    for writes in (many, twice, large):
        with pytest.raises(ClientError) as caught:
            bed.transact(*writes)
        assert code(caught.value) == "ValidationException"
    bed.transact(*many[:100])
    bed.transact(*large[:10])


# --- only in here


def test_a_write_that_cannot_be_cancels_with_a_validation_error() -> None:
    """As the API reference of TransactWriteItems has it; DynamoDB Local refuses the whole request instead."""
    bed = Bed(MemoryClient(Tables()))
    bed.put("a", s={"S": "text"})
    up = {"UpdateExpression": "ADD s :v", "ExpressionAttributeValues": {":v": {"N": "1"}}}
    assert _cancelled(bed, ("Update", _key("a") | up), ("Delete", _key("b"))) == [
        {"Code": "ValidationError"},
        {"Code": "None"},
    ]


def test_what_was_answered_or_given_does_not_reach_into_the_table() -> None:
    bed = Bed(MemoryClient(Tables()))
    given: Json = {"m": {"M": {"in": {"L": [{"N": "1"}]}}}}
    bed.put(**given)
    given["m"]["M"]["in"]["L"].append({"N": "2"})
    bed.row()["m"]["M"].clear()
    assert bed.row() == {"m": {"M": {"in": {"L": [{"N": "1"}]}}}}


def test_an_unknown_parameter_is_refused_and_not_passed_over() -> None:
    memory = MemoryClient(Tables())
    bed = Bed(memory)
    with pytest.raises(NotImplementedError, match="ProjectionExpression"):
        bed("get_item", Key=KEY, ProjectionExpression="n")
    with pytest.raises(AttributeError, match="export_table"):
        memory.export_table_to_point_in_time()
    with pytest.raises(ParamValidationError):
        Bed(MemoryClient(Tables(), checked=True))("get_item", Kee=KEY)


def test_rows_whose_time_is_up_go_when_they_are_told_to() -> None:
    tables = Tables()
    bed = Bed(MemoryClient(tables))
    bed.put("short", expires_at={"N": "100"})
    bed.put("long", expires_at={"N": "101"})
    bed.put("ever")
    assert (tables.expire(100.0), _items(bed("scan"))) == (1, ["ever", "long"])
