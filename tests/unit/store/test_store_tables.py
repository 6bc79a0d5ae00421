"""The table matches store/tables.py, and DynamoDB's expiry only deletes rows
that are already ignored.
"""

from __future__ import annotations

import uuid

from chalicelib.store.tables import TTL_ATTRIBUTE, RowKey, definition, time_to_live
from infra.emulators.aws import create_table
from tests.unit.store.support import StoreFixture, over_the_wire


@over_the_wire
def test_table_in_use_has_the_declared_shape(bench: StoreFixture) -> None:
    real = bench.client.describe_table(TableName=bench.table)["Table"]
    stated = definition(bench.table)
    assert real["KeySchema"] == stated["KeySchema"]
    assert sorted(map(str, real["AttributeDefinitions"])) == sorted(
        map(str, stated["AttributeDefinitions"])
    )
    assert real["BillingModeSummary"]["BillingMode"] == stated["BillingMode"]


@over_the_wire
def test_table_expiry_attribute_is_enabled(bench: StoreFixture) -> None:
    name = f"outscaler-{uuid.uuid4().hex}"
    create_table(bench.client, name)
    real = bench.client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert (real["AttributeName"], real["TimeToLiveStatus"]) == (TTL_ATTRIBUTE, "ENABLED")
    assert time_to_live() == {"AttributeName": TTL_ATTRIBUTE, "Enabled": True}


def test_table_rows_have_the_declared_keys_and_expiry_attribute() -> None:
    names = {schema["AttributeName"] for schema in definition("t")["KeySchema"]} | {TTL_ATTRIBUTE}
    assert {attribute.attr_name for attribute in RowKey.get_attributes().values()} == names
