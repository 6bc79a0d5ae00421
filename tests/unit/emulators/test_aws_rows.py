"""The short way into moto's DynamoDB answers as moto's whole server does, value for value and refusal for refusal."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import Client

from infra.emulators.aws import LocalAws, create_table, drop_table
from infra.emulators.in_process_botocore import DirectWay

ROW = {
    "cluster": {"S": "shop"},
    "item": {"S": "one"},
    "count": {"N": "7"},
    "data": {"B": b"\x00\xff bytes"},
    "flags": {"M": {"on": {"BOOL": True}, "off": {"NULL": True}, "list": {"L": [{"S": ""}, {"N": "1.50"}]}}},
    "names": {"SS": ["a", "b"]},
}
KEY = {"cluster": {"S": "shop"}, "item": {"S": "one"}}


class _Body(BytesIO):
    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def _by_the_whole_server(client: Any) -> Any:
    """This client from now on goes through all of moto's server."""
    web = Client(DomainDispatcherApplication(create_backend_app))

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        given: Any = request.headers
        headers = {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in given.items()}
        made = web.open(str(request.url), method=request.method, headers=headers, data=request.body)
        fields: Any = made.headers
        raw: Any = _Body(made.get_data())
        return AWSResponse(str(request.url), made.status_code, fields, raw)

    client.meta.events.register("before-send", answer)
    return client


@pytest.fixture(scope="module")
def ways() -> dict[str, Any]:
    """name -> a client that goes that way."""
    aws = LocalAws()
    aws.endpoint = "http://127.0.0.1:9"  # nobody is asked there
    return {"short": DirectWay().take(aws.client("dynamodb")), "whole": _by_the_whole_server(aws.client("dynamodb"))}


@pytest.fixture
def tables(ways: dict[str, Any]) -> Iterator[dict[str, str]]:
    """A table for each way."""
    names = {way: f"rows-{uuid.uuid4().hex[:8]}" for way in ways}
    for way, name in names.items():
        create_table(ways[way], name)
    yield names
    for way, name in names.items():
        drop_table(ways[way], name)


def _seen(ways: dict[str, Any], tables: dict[str, str], method: str, **given: Any) -> list[Any]:
    """What both ways answer, without what no two answers share."""
    found: list[Any] = []
    for way in ("short", "whole"):
        try:
            made = getattr(ways[way], method)(**_named(given, tables[way]))
        except ClientError as refused:
            made = {key: value for key, value in refused.response.items() if key != "ResponseMetadata"}
            made["status"] = refused.response["ResponseMetadata"]["HTTPStatusCode"]
        made.pop("ResponseMetadata", None)
        found.append(_named(made, "TABLE", tables[way]))
    return found


def _named(value: Any, name: str, placeholder: str = "TABLE") -> Any:
    if isinstance(value, dict):
        return {name if key == placeholder else key: _named(each, name, placeholder) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, name, placeholder) for each in value]
    return name if value == placeholder else value


STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("put_item", {"TableName": "TABLE", "Item": ROW}),
    (
        "put_item",
        {
            "TableName": "TABLE",
            "Item": ROW,
            "ConditionExpression": "attribute_not_exists(#c)",
            "ExpressionAttributeNames": {"#c": "cluster"},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        },
    ),
    ("get_item", {"TableName": "TABLE", "Key": KEY, "ConsistentRead": True}),
    ("get_item", {"TableName": "TABLE", "Key": {**KEY, "item": {"S": "none"}}}),
    (
        "update_item",
        {
            "TableName": "TABLE",
            "Key": KEY,
            "UpdateExpression": "SET #n = #n + :one REMOVE flags",
            "ExpressionAttributeNames": {"#n": "count"},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
            "ReturnValues": "ALL_NEW",
        },
    ),
    ("update_item", {"TableName": "TABLE", "Key": KEY, "UpdateExpression": "SET nonsense"}),
    (
        "query",
        {
            "TableName": "TABLE",
            "KeyConditionExpression": "#c = :c",
            "ExpressionAttributeNames": {"#c": "cluster"},
            "ExpressionAttributeValues": {":c": {"S": "shop"}},
        },
    ),
    ("scan", {"TableName": "TABLE"}),
    ("batch_get_item", {"RequestItems": {"TABLE": {"Keys": [KEY]}}}),
    (
        "transact_write_items",
        {
            "TransactItems": [
                {
                    "ConditionCheck": {
                        "TableName": "TABLE",
                        "Key": KEY,
                        "ConditionExpression": "attribute_not_exists(item)",
                    }
                },
                {"Put": {"TableName": "TABLE", "Item": {**KEY, "item": {"S": "two"}}}},
            ]
        },
    ),
    ("delete_item", {"TableName": "TABLE", "Key": KEY, "ReturnValues": "ALL_OLD"}),
    ("get_item", {"TableName": "no-such-table", "Key": KEY}),
)


def test_both_ways_answer_the_same(ways: dict[str, Any], tables: dict[str, str]) -> None:
    for method, given in STEPS:
        short, whole = _seen(ways, tables, method, **given)
        assert short == whole, method


def test_binary_values_come_back_as_they_went(ways: dict[str, Any], tables: dict[str, str]) -> None:
    ways["short"].put_item(TableName=tables["short"], Item=ROW)

    assert ways["short"].get_item(TableName=tables["short"], Key=KEY)["Item"] == ROW
