"""One row of the table in memory means what it means in DynamoDB.

Every case also holds against Amazon's DynamoDB Local:
    python -m infra.emulators.dynamodb_local -- python -m pytest tests/unit/emulators -k memory_table
"""

from __future__ import annotations

import re

import pytest
from botocore.exceptions import ClientError

from tests.unit.emulators.table_under_test import KEY, Bed, Json, code, empty, new_bed, refused

ROW: Json = {
    "n": {"N": "5"},
    "s": {"S": "abc"},
    "b": {"B": b"\x00\xff"},
    "t": {"BOOL": True},
    "z": {"NULL": True},
    "ss": {"SS": ["x", "y"]},
    "l": {"L": [{"N": "1"}, {"S": "two"}]},
    "m": {"M": {"in": {"N": "7"}, "deep": {"M": {"er": {"S": "!"}}}}},
}


@pytest.fixture(scope="module")
def bed() -> Bed:
    return new_bed()


@pytest.fixture(autouse=True)
def _fresh(bed: Bed) -> None:
    empty(bed)


V: Json = {
    ":five": {"N": "5.00"},
    ":six": {"N": "6"},
    ":ten": {"N": "10"},
    ":ab": {"S": "ab"},
    ":x": {"S": "x"},
    ":one": {"N": "1"},
    ":S": {"S": "S"},
    ":abc": {"S": "abc"},
    ":er": {"S": "!"},
}
CONDITIONS: tuple[tuple[str, bool], ...] = (
    ("n = :five", True),
    ("n <> :five", False),
    ("n < :six", True),
    ("n < :ten", True),
    ("n >= :six", False),
    ("n = :abc", False),
    ("n <> :abc", True),
    ("n < :abc", False),
    ("gone = :five", False),
    ("gone <> :five", True),
    ("gone < :five", False),
    ("attribute_exists(gone)", False),
    ("attribute_not_exists (gone)", True),
    ("attribute_exists(m.deep.er)", True),
    ("attribute_exists(m.gone.er)", False),
    ("attribute_exists(l[1])", True),
    ("attribute_exists(l[2])", False),
    ("l[0] = :one", True),
    ("m.deep.er = :er", True),
    ("attribute_type(s, :S)", True),
    ("attribute_type(n, :S)", False),
    ("begins_with(s, :ab)", True),
    ("begins_with(s, :x)", False),
    ("begins_with(n, :x)", False),
    ("contains(s, :ab)", True),
    ("contains(ss, :x)", True),
    ("contains(ss, :ab)", False),
    ("contains(l, :one)", True),
    ("size(s) < :five", True),
    ("size(ss) = :one", False),
    ("size(l) < :five", True),
    ("size(gone) < :five", False),
    ("n BETWEEN :one AND :five", True),
    ("n BETWEEN :six AND :ten", False),
    ("s IN (:x, :abc)", True),
    ("s IN (:x)", False),
    ("NOT n = :five", False),
    ("NOT gone = :five", True),
    ("n = :six AND n = :ten OR n = :five", True),
    ("n = :six AND (n = :ten OR n = :five)", False),
    ("NOT n = :six AND n = :six", False),
    ("NOT (n = :six AND n = :five)", True),
    ("(attribute_not_exists (gone) OR (gone < :five AND n = :six))", True),
    ("n > :one and s = :abc or n = :six", True),
)


@pytest.mark.parametrize(("text", "expected"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_conditions(bed: Bed, text: str, *, expected: bool) -> None:
    bed.put(**ROW)
    used = {name: V[name] for name in re.findall(r":\w+", text)}
    assert bed.holds(text, values=used) is expected


def test_equal_sets_lists_maps_and_bytes(bed: Bed) -> None:
    bed.put(**ROW)
    same = {"ss": {"SS": ["y", "x"]}, "l": ROW["l"], "m": ROW["m"], "b": ROW["b"], "t": ROW["t"], "z": ROW["z"]}
    text = " AND ".join(f"#{name} = :{name}" for name in same)
    assert bed.holds(text, {f"#{name}": name for name in same}, {f":{name}": value for name, value in same.items()})


WRONG: tuple[tuple[str, Json], ...] = (
    ("n = ", {}),
    ("n = :five n", {":five": V[":five"]}),
    ("n ! :five", {":five": V[":five"]}),
    ("", {}),
    ("n = :five", {}),
    ("n = :five", {":five": V[":five"], ":six": V[":six"]}),
    ("#gone = :five", {":five": {"N": "5"}}),
    ("((n = :five))", {":five": V[":five"]}),
    ("unknown(n)", {}),
    ("n = :five", {":five": {"N": "five"}}),
    ("t < :t", {":t": {"BOOL": True}}),
    ("begins_with(s, :n)", {":n": {"N": "1"}}),
)


@pytest.mark.parametrize(("text", "values"), WRONG)
def test_a_condition_that_is_none_is_a_validation_error(bed: Bed, text: str, values: Json) -> None:
    bed.put(**ROW)
    given = {"ExpressionAttributeValues": values} if values else {}
    assert refused(bed, "delete_item", Key=KEY, ConditionExpression=text, **given)[0] == "ValidationException"
    assert bed.row()


UPDATES: tuple[tuple[str, Json, Json], ...] = (
    ("SET n = n + :v", {":v": {"N": "0.5"}}, {"n": {"N": "5.5"}}),
    ("SET n = :v - n", {":v": {"N": "1"}}, {"n": {"N": "-4"}}),
    ("SET a = if_not_exists(a, :v), n = if_not_exists(n, :v)", {":v": {"N": "1"}}, {"a": {"N": "1"}}),
    ("SET l = list_append(l, :v)", {":v": {"L": [{"N": "3"}]}}, {"l": {"L": [*ROW["l"]["L"], {"N": "3"}]}}),
    ("SET l[0] = :v, l[9] = :v", {":v": {"N": "0"}}, {"l": {"L": [{"N": "0"}, {"S": "two"}, {"N": "0"}]}}),
    ("REMOVE l[0], m.deep", {}, {"l": {"L": [{"S": "two"}]}, "m": {"M": {"in": {"N": "7"}}}}),
    ("SET m.deep.er = :v", {":v": {"N": "3"}}, {"m": {"M": {"in": {"N": "7"}, "deep": {"M": {"er": {"N": "3"}}}}}}),
    ("ADD n :v, a :v", {":v": {"N": "3"}}, {"n": {"N": "8"}, "a": {"N": "3"}}),
    ("ADD ss :v", {":v": {"SS": ["z", "x"]}}, {"ss": {"SS": ["x", "y", "z"]}}),
    ("DELETE ss :v", {":v": {"SS": ["x", "q"]}}, {"ss": {"SS": ["y"]}}),
    ("DELETE ss :v", {":v": {"SS": ["x", "y"]}}, {"ss": None}),
    ("SET n = s, s = n", {}, {"n": {"S": "abc"}, "s": {"N": "5"}}),
    ("SET a = :v REMOVE n, gone ADD c :v", {":v": {"N": "2"}}, {"a": {"N": "2"}, "n": None, "c": {"N": "2"}}),
)


@pytest.mark.parametrize(("text", "values", "changed"), UPDATES, ids=[text for text, *_ in UPDATES])
def test_updates(bed: Bed, text: str, values: Json, changed: Json) -> None:
    bed.put(**ROW)
    answer = bed.update(text, values, ReturnValues="ALL_NEW")
    expected = {name: value for name, value in (ROW | changed).items() if value is not None}
    for row in (bed.row(), {name: value for name, value in answer["Attributes"].items() if name not in KEY}):
        for value in row.values():
            value.get("SS", []).sort()
        assert row == expected


BAD_UPDATES: tuple[tuple[str, Json], ...] = (
    ("SET n = gone", {}),
    ("SET n = s + :v", {":v": {"N": "1"}}),
    ("SET #i = :v", {":v": {"S": "x"}}),
    ("SET n = :v SET s = :v", {":v": {"S": "x"}}),
    ("SET n = :v, n = :v", {":v": {"S": "x"}}),
    ("SET m = :v, m.deep = :v", {":v": {"S": "x"}}),
    ("ADD s :v", {":v": {"S": "x"}}),
    ("ADD n :v", {":v": {"SS": ["x"]}}),
    ("SET gone.a = :v", {":v": {"S": "x"}}),
    ("REMOVE #i", {}),
    ("CHANGE n = :v", {":v": {"S": "x"}}),
    ("SET n = list_append(s, :v)", {":v": {"L": []}}),
    ("SET n = :v", {}),
    ("SET n = :v", {":v": {"N": "1"}, ":w": {"N": "1"}}),
    ("SET n = :v", {":v": {"SS": ["a", "a"]}}),
    ("SET n = :v", {":v": {"SS": []}}),
    ("SET n = :v", {":v": {"N": ""}}),
    ("SET n = :v", {":v": {"N": "1" * 39}}),
    ("SET n = :v", {":v": {"N": "1e126"}}),
    ("SET n = :v", {":v": {"N": "nan"}}),
)


@pytest.mark.parametrize(("text", "values"), BAD_UPDATES)
def test_an_update_that_cannot_be_changes_nothing(bed: Bed, text: str, values: Json) -> None:
    bed.put(**ROW)
    given = {"ExpressionAttributeValues": values} if values else {}
    given |= {"ExpressionAttributeNames": {"#i": "item"}} if "#i" in text else {}
    assert refused(bed, "update_item", Key=KEY, UpdateExpression=text, **given)[0] == "ValidationException"
    row = bed.row()
    row["ss"]["SS"].sort()
    assert row == ROW


@pytest.mark.parametrize(
    ("given", "back"),
    [
        ("1795245660.0", "1795245660"),
        ("1e3", "1000"),
        ("-0.50", "-0.5"),
        ("0.0", "0"),
        ("00012", "12"),
        ("1E-3", "0.001"),
        ("123456789012345678901234567890.12345678", "123456789012345678901234567890.12345678"),
        ("100", "100"),
    ],
)
def test_numbers_come_back_in_one_way_of_writing_them(bed: Bed, given: str, back: str) -> None:
    bed.put(n={"N": given})
    assert bed.row() == {"n": {"N": back}}


def test_an_update_makes_the_row_it_does_not_find_and_a_deletion_does_not_mind(bed: Bed) -> None:
    assert bed.update("REMOVE n", ReturnValues="ALL_OLD") == {}
    assert bed("get_item", Key=KEY)["Item"] == KEY
    assert bed("delete_item", Key=KEY, ReturnValues="ALL_OLD")["Attributes"] == KEY
    assert bed("delete_item", Key=KEY, ReturnValues="ALL_OLD") == {}
    assert bed("get_item", Key=KEY) == {}


def test_a_refusal_shows_the_row_in_the_way_only_where_it_was_asked_for_and_there_is_one(bed: Bed) -> None:
    condition: Json = {"Item": KEY, "ConditionExpression": "n = :v", "ExpressionAttributeValues": {":v": {"N": "1"}}}
    shown = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    for there in (False, True):
        if there:
            bed.put(n={"N": "2"})
        for wanted in ({}, shown):
            with pytest.raises(ClientError) as caught:
                bed("put_item", **condition, **wanted)
            answer: Json = dict(caught.value.response)
            assert (answer["Error"]["Code"], answer["Error"]["Message"]) == (
                "ConditionalCheckFailedException",
                "The conditional request failed",
            )
            assert answer.get("Item") == (KEY | {"n": {"N": "2"}} if there and wanted else None)


def test_keys_must_be_what_the_table_says(bed: Bed) -> None:
    for key in (
        {"cluster": {"S": "c"}},
        KEY | {"more": {"S": "x"}},
        KEY | {"item": {"N": "1"}},
        KEY | {"item": {"S": ""}},
    ):
        assert refused(bed, "get_item", Key=key)[0] == "ValidationException"
        assert refused(bed, "delete_item", Key=key)[0] == "ValidationException"
    for item in (
        {"cluster": {"S": "c"}},
        KEY | {"item": {"N": "1"}},
        KEY | {"cluster": {"S": ""}},
        KEY | {"item": {"S": "x" * 1025}},
    ):
        assert refused(bed, "put_item", Item=item)[0] == "ValidationException"


def test_a_row_has_at_most_400_kilobytes(bed: Bed) -> None:
    names = sum(len(name) for name in (*KEY, "cis"))  # names of the keys, their values "c" and "i", and the "s"
    bed.put(s={"S": "x" * (400 * 1024 - names)})
    assert refused(bed, "put_item", Item=KEY | {"s": {"S": "x" * (400 * 1024 - names + 1)}}) == (
        "ValidationException",
        "Item size has exceeded the maximum allowed size",
    )
    code, message = refused(
        bed, "update_item", Key=KEY, UpdateExpression="SET t = :v", ExpressionAttributeValues={":v": {"S": "xx"}}
    )
    assert (code, "Item size" in message) == ("ValidationException", True)
    assert "t" not in bed.row()


def test_a_table_that_is_not_there(bed: Bed) -> None:
    with pytest.raises(ClientError) as caught:
        bed.client.get_item(TableName="nowhere", Key=KEY)
    assert code(caught.value) == "ResourceNotFoundException"
