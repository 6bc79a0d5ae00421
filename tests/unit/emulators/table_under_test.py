"""One table in memory, or in Amazon's DynamoDB Local, where OUTSCALER_TEST_DYNAMODB names one, and short ways to it."""

from __future__ import annotations

import os
import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.emulators.aws import client, create_table
from infra.emulators.dynamodb.client import MemoryClient
from infra.emulators.dynamodb.tables import Tables
from infra.emulators.dynamodb_local import VARIABLE

Json = dict[str, Any]
KEY = {"cluster": {"S": "c"}, "item": {"S": "i"}}


class Bed:
    """One table and its client."""

    def __init__(self, dynamodb: Any) -> None:
        self.client, self.name = dynamodb, f"t-{uuid.uuid4().hex}"
        create_table(dynamodb, self.name)

    def __call__(self, operation: str, **arguments: Any) -> Json:
        answer: Json = getattr(self.client, operation)(TableName=self.name, **arguments)
        for told in ("ResponseMetadata", "ConsumedCapacity"):
            answer.pop(told, None)
        return answer

    def put(self, item: str = "i", **values: Any) -> None:
        self("put_item", Item={"cluster": {"S": "c"}, "item": {"S": item}, **values})

    def row(self, item: str = "i") -> Json:
        found: Json = self("get_item", Key=KEY | {"item": {"S": item}}, ConsistentRead=True).get("Item", {})
        return {name: value for name, value in found.items() if name not in KEY}

    def update(self, expression: str, values: Json | None = None, **more: Any) -> Json:
        given = {"ExpressionAttributeValues": values} if values else {}
        return self("update_item", Key=KEY, UpdateExpression=expression, **given, **more)

    def holds(self, condition: str, names: Json | None = None, values: Json | None = None) -> bool:
        given = {"ExpressionAttributeNames": names} if names else {}
        given |= {"ExpressionAttributeValues": values} if values else {}
        try:
            self("delete_item", Key=KEY, ConditionExpression=condition, **given)
        except ClientError as error:
            if code(error) != "ConditionalCheckFailedException":
                raise
            return False
        return True

    def transact(self, *writes: tuple[str, Json]) -> None:
        self.client.transact_write_items(
            TransactItems=[{kind: {"TableName": self.name} | arguments} for kind, arguments in writes]
        )


def code(error: ClientError) -> str:
    return error.response["Error"]["Code"]


def refused(bed: Bed, operation: str, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        bed(operation, **arguments)
    return code(caught.value), caught.value.response["Error"]["Message"]


def new_bed() -> Bed:
    """Where OUTSCALER_TEST_DYNAMODB says, else in memory, with every request judged by botocore's model too."""
    endpoint = os.environ.get(VARIABLE)
    return Bed(client("dynamodb", endpoint) if endpoint else MemoryClient(Tables(), checked=True))


def empty(bed: Bed) -> None:
    """No row is left."""
    for row in bed("scan")["Items"]:
        bed("delete_item", Key={name: row[name] for name in KEY})
