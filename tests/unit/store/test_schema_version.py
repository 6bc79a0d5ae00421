"""The schema row, which states the format of all other rows, and the
behaviour of older releases.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.policy.load import load
from chalicelib.runtime.messages import cluster_name_ok
from chalicelib.store.errors import NewerSchema, StoreError, StoreUnavailable
from chalicelib.store.schema_version import CHECKED_FOR, SCHEMA, Schemas
from chalicelib.store.tables import SCHEMA_ITEM, SCHEMA_PARTITION, TTL_ATTRIBUTE, SchemaRow
from infra.emulators.aws_faults import AwsFaults
from infra.emulators.aws_services import QuickServices
from infra.emulators.controllers.clock import ManualClock

KEY = {"cluster": {"S": SCHEMA_PARTITION}, "item": {"S": SCHEMA_ITEM}}


class SchemaLocation:
    """A table, a clock, and releases that use them."""

    def __init__(self) -> None:
        self.services, self.clock, self.faults = (
            QuickServices(),
            ManualClock(1_795_245_660.0),
            AwsFaults(),
        )
        self.store = self.services.dynamodb.store(
            self.services.table,
            clock=self.clock,
            sleep=self.clock.advance,
            chance=lambda: 0.5,
            wrap=self.faults.wrap,
        )

    def release(self, schema: int, name: str = "") -> Schemas:
        """Returns a process of a release that knows this schema."""
        return Schemas(self.store.table, self.clock, name or f"0.{schema}.0", schema)

    def row(self) -> dict[str, Any]:
        found = self.services.dynamodb.get_item(TableName=self.services.table, Key=KEY).get(
            "Item", {}
        )
        return dict(found)

    def write(self, **attributes: Any) -> None:
        self.services.dynamodb.put_item(TableName=self.services.table, Item=KEY | attributes)


@pytest.fixture
def place() -> SchemaLocation:
    return SchemaLocation()


def test_schema_table_without_the_row_has_the_first_schema(place: SchemaLocation) -> None:
    place.release(1).check()
    place.release(7).check()
    assert place.row() == {}, "a check writes nothing"


def test_schema_first_pass_writes_the_schema_and_its_release(place: SchemaLocation) -> None:
    place.release(1, "0.1.0").raise_to_own()
    assert place.row()["schema"] == {"N": "1"}
    assert place.row()["release"] == {"S": "0.1.0"}
    assert TTL_ATTRIBUTE not in place.row()
    place.release(1, "0.1.1").raise_to_own()
    assert place.row()["release"] == {"S": "0.1.0"}, "who wrote it first"


def test_schema_older_release_refuses_in_one_line_naming_the_newer_one(
    place: SchemaLocation,
) -> None:
    place.release(2, "0.4.0").raise_to_own()
    for work in (place.release(1).check, place.release(1).raise_to_own):
        with pytest.raises(NewerSchema) as refused:
            work()
        assert str(refused.value) == (
            "the table was written by a newer release (schema 2, release 0.4.0); this code "
            "knows schema 1; deploy that release again"
        )
    assert place.row()["schema"] == {"N": "2"}


def test_schema_is_raised_by_a_newer_release_and_never_lowered(place: SchemaLocation) -> None:
    place.release(1).raise_to_own()
    place.release(3).raise_to_own()
    assert place.row()["schema"] == {"N": "3"}
    with pytest.raises(NewerSchema):
        place.release(2).raise_to_own()
    assert (place.row()["schema"], place.row()["release"]) == ({"N": "3"}, {"S": "0.3.0"})


def test_schema_warm_process_of_an_older_release_stops_within_a_minute(
    place: SchemaLocation,
) -> None:
    warm = place.release(1)
    warm.raise_to_own()
    place.release(2).raise_to_own()
    place.clock.advance(CHECKED_FOR)
    with pytest.raises(NewerSchema):
        warm.check()


def test_schema_is_read_once_a_minute_per_process(place: SchemaLocation) -> None:
    warm = place.release(1)
    warm.raise_to_own()
    place.write(schema={"N": "2"}, release={"S": "0.2.0"})
    place.clock.advance(CHECKED_FOR - 1)
    warm.check()
    place.clock.advance(1)
    with pytest.raises(NewerSchema):
        warm.check()


def test_schema_refusal_ends_once_the_row_is_valid(place: SchemaLocation) -> None:
    place.write(schema={"N": "2"})
    warm = place.release(1)
    with pytest.raises(NewerSchema, match="release unknown"):
        warm.check()
    place.write(schema={"N": "1"})
    place.clock.advance(CHECKED_FOR)
    warm.check()


def test_schema_concurrent_releases_leave_the_newer_one(place: SchemaLocation) -> None:
    old, new = place.release(1), place.release(2)
    old.check()
    new.check()  # both have read that the row is absent
    new.raise_to_own()
    with pytest.raises(NewerSchema):
        old.raise_to_own()
    assert place.row()["schema"] == {"N": "2"}
    place.clock.advance(CHECKED_FOR)
    new.raise_to_own()


def test_schema_concurrent_processes_of_one_release_both_succeed(place: SchemaLocation) -> None:
    one, other = place.release(2, "0.2.0"), place.release(2, "0.2.1")
    one.check()
    other.check()
    one.raise_to_own()
    other.raise_to_own()
    assert place.row()["release"] == {"S": "0.2.0"}


def test_schema_last_value_applies_while_the_table_does_not_answer(place: SchemaLocation) -> None:
    warm, cold = place.release(1), place.release(1)
    warm.check()
    place.clock.advance(CHECKED_FOR)
    place.services.drop()
    warm.check()
    with pytest.raises(StoreUnavailable):
        cold.check()


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"schema": {"S": "2"}},
        {"schema": {"N": "2.5"}},
        {"schema": {"NULL": True}},
        {"schema": {"N": "1"}, "release": {"N": "1"}},
    ],
)
def test_schema_unreadable_row_is_refused(
    place: SchemaLocation, attributes: dict[str, Any]
) -> None:
    place.write(**attributes)
    with pytest.raises(StoreError):
        place.release(1).check()


def test_schema_row_is_shown_shortened_on_one_line(place: SchemaLocation) -> None:
    place.write(schema={"N": "9"}, release={"S": "evil\n\x1b[31m" + "x" * 5000})
    with pytest.raises(NewerSchema) as refused:
        place.release(1).check()
    assert len(str(refused.value)) < 300
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_schema_row_key_cannot_be_a_cluster_name() -> None:
    assert not cluster_name_ok(SCHEMA_PARTITION)
    with pytest.raises(BadInput):
        load(
            f"apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {{name: "
            f"'{SCHEMA_PARTITION}'}}\n"
            "spec: {kubernetes: {kubeconfigSecret: outscaler/x/kubeconfig}}\n",
            place="policy",
        )


def test_schema_version_of_the_current_release_is_the_first() -> None:
    """A change that an older release would misread raises it; docs/architecture.md "Table
    schema" lists those changes."""
    assert SCHEMA == 1
    assert SchemaRow.expires_at.attr_name == TTL_ATTRIBUTE
