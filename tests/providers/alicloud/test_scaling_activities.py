"""Decoding of ESS activities in every form."""

from __future__ import annotations

from chalicelib.providers.alicloud.decoding import CodeAndMessage, ScalingActivity
from chalicelib.providers.alicloud.node_groups import (
    created,
    failure,
    is_own,
    last_failure,
    metadata,
    of_operation,
)
from tests.cases import each_row

OURS = '{"outscaler/operation":"grow-1","cluster-autoscaler/alicloud/managed":"true"}'
UPSTREAMS = '{"cluster-autoscaler/alicloud/managed":"true"}'


def activity(
    status: str, code: str = "", *, own: str = OURS, made: int = 0, name: str = "asa-1"
) -> ScalingActivity:
    return ScalingActivity(
        name, "asg-1", status, activity_metadata=own, error_code=code, created_capacity=made
    )


@each_row(
    "text", ["", "null", "[]", "7", "{", '{"a":1}', '"true"', '{"outscaler":{"b":2}}', "\ud800"]
)
def test_activity_metadata_of_others_is_not_ours(text: str) -> None:
    found = activity("Failed", own=text)
    assert not is_own(found)
    assert of_operation([found], "grow-1") is None


def test_activity_of_an_operation_is_found_by_its_metadata() -> None:
    others = activity("Failed", own='{"outscaler/operation":"grow-2"}', name="asa-2")
    assert of_operation([others, activity("InProgress")], "grow-1") == activity("InProgress")
    assert metadata("grow-1")["outscaler/operation"] == "grow-1"
    assert is_own(activity("Failed", own=UPSTREAMS))


@each_row(
    ("code", "cls"),
    [
        ("OperationDenied.NoStock", "OutOfStock"),
        ("Zone.NotOnSale", "OutOfStock"),
        ("QuotaExceed.ElasticQuota", "QuotaExceeded"),
        ("InvalidVSwitchId.IpNotEnough", "QuotaExceeded"),
        ("InvalidAccountStatus.NotEnoughBalance", "Unknown"),
        ("Never.Heard", "Unknown"),
        ("ScalingActivityInProgress", "Conflict"),
    ],
)
def test_activity_failure_has_the_class_of_its_code(code: str, cls: str) -> None:
    found = failure(activity("Failed", code))
    assert (found.cls, found.code) == (cls, code)
    assert found.message


def test_activity_with_several_reasons_uses_the_most_specific() -> None:
    several = ScalingActivity(
        "asa-1",
        status_code="Failed",
        error_code="Odd",
        error_message="odd",
        error_messages=[
            CodeAndMessage("Odder", "odder"),
            CodeAndMessage("OperationDenied.NoStock", "none left"),
        ],
    )
    found = failure(several)
    assert (found.cls, found.code, found.message) == (
        "OutOfStock",
        "OperationDenied.NoStock",
        "none left",
    )


def test_activity_without_a_code_is_classified_by_its_status() -> None:
    found = failure(
        ScalingActivity("asa-1", status_code="Rejected", status_message="the cool-down time")
    )
    assert (found.cls, found.code, found.message) == ("Unknown", "Rejected", "the cool-down time")


def test_activity_created_instances_are_counted_by_number_or_by_name() -> None:
    assert created(activity("Successful", made=2)) == 2
    assert created(ScalingActivity(created_instances=["i-1", "i-2", "i-3"])) == 3


NO_STOCK = "OperationDenied.NoStock"


@each_row(
    ("history", "code"),
    [
        ([activity("Failed", NO_STOCK)], NO_STOCK),
        ([activity("Warning", NO_STOCK)], NO_STOCK),
        ([activity("Rejected", NO_STOCK)], NO_STOCK),
        ([activity("Failed", NO_STOCK, own=UPSTREAMS)], NO_STOCK),
        ([activity("InProgress"), activity("Failed", NO_STOCK)], ""),  # requested again
        ([activity("Successful"), activity("Failed", NO_STOCK)], ""),  # and received
        (
            [activity("Failed", own=""), activity("Failed", NO_STOCK)],
            NO_STOCK,
        ),  # ESS has retried by itself and failed as well
        # ESS has retried and received some
        ([activity("Successful", own="", made=1), activity("Failed", NO_STOCK)], ""),
        # a removal in between
        ([activity("Successful", own=""), activity("Failed", NO_STOCK)], NO_STOCK),
        ([activity("Failed", NO_STOCK, own="")], ""),  # never ours
        ([], ""),
    ],
)
def test_activity_last_own_one_explains_missing_machines(
    history: list[ScalingActivity], code: str
) -> None:
    found = last_failure(history)
    assert (found.code if found else "") == code
