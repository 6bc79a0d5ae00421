"""Mapping of the vendor's error codes to error classes, whatever the HTTP status."""

from __future__ import annotations

import json
from pathlib import Path

from chalicelib.providers.alicloud.error_mapping import (
    TABLE,
    Sense,
    activity_class,
    error_for,
    is_busy,
    is_gone,
    is_no_change,
    retry_after,
    sense_of,
)
from chalicelib.providers.kit.errors import ProviderError, Unknown
from chalicelib.providers.kit.http import VendorResponse
from tests.cases import each_row

CLASSES = {
    "ScalingActivityInProgress": "Conflict",
    "IncorrectLoadBalancerStatus": "Conflict",
    "IncorrectDBInstanceStatus": "Conflict",
    "IncorrectScalingGroupStatus": "InvalidRequest",
    "IncorrectCapacity.NoChange": "Conflict",
    "IncorrectCapacity.MinSize": "InvalidRequest",
    "IncorrectCapacity.MaxSize": "InvalidRequest",
    "OperationDenied.NoStock": "OutOfStock",
    "Zone.NotOnSale": "OutOfStock",
    "ResourceNotAvailable.ECS": "OutOfStock",
    "InvalidResourceType.NotSupported": "OutOfStock",
    "InstanceType.Offline": "OutOfStock",
    "OperationDenied.ZoneNotAllowed": "OutOfStock",
    "OperationDenied.ZoneSystemCategoryNotMatch": "OutOfStock",
    "OperationDenied.CloudSSDNotSupported": "OutOfStock",
    "QuotaExceeded.ScalingInstance": "QuotaExceeded",
    "QuotaExceeded.AfterpayInstance": "QuotaExceeded",
    "QuotaExceeded.SecurityGroupInstance": "QuotaExceeded",
    "QuotaExceed.ElasticQuota": "QuotaExceeded",
    "QuotaExceed.DiskCapacity": "QuotaExceeded",
    "InvalidVSwitchId.IpNotEnough": "QuotaExceeded",
    "InvalidAccountStatus.NotEnoughBalance": "Unauthorized",
    "InsufficientBalance": "Unauthorized",
    "InvalidScalingGroupId.NotFound": "NotFound",
    "InvalidInstanceId.NotFound": "NotFound",
    "InvalidScalingConfigurationId.NotFound": "NotFound",
    "InvalidAccessKeyId.NotFound": "Unauthorized",
    "InvalidAccessKeyId.Inactive": "Unauthorized",
    "SignatureDoesNotMatch": "Unauthorized",
    "IncompleteSignature": "Unauthorized",
    "InvalidSecurityToken.Expired": "Unauthorized",
    "InvalidSecurityToken.MismatchWithAccessKey": "Unauthorized",
    "Forbidden": "Unauthorized",
    "Forbidden.RAM": "Unauthorized",
    "Forbidden.Unauthorized": "Unauthorized",
    "InvalidTimeStamp.Expired": "Unauthorized",
    "SignatureNonceUsed": "Unauthorized",
    "Throttling": "Throttled",
    "Throttling.User": "Throttled",
    "Throttling.Api": "Throttled",
    "InternalError": "Transient",
    "ServiceUnavailable": "Transient",
    "InvalidAction.NotFound": "InvalidRequest",
}


def answer(
    code: str, status: int = 400, headers: dict[str, str] | None = None, message: str = "Said."
) -> VendorResponse:
    body = {"RequestId": "r-1", "HostId": "ess.aliyuncs.com", "Code": code, "Message": message}
    return VendorResponse(
        "POST ess.aliyuncs.com/", status, headers or {}, json.dumps(body).encode()
    )


def error(code: str, status: int = 400) -> ProviderError:
    found = error_for(answer(code, status))
    assert found is not None
    return found


@each_row("status", [400, 403, 404, 500])
@each_row(("code", "cls"), CLASSES.items())
def test_alicloud_error_code_takes_precedence_over_the_status(
    code: str, cls: str, status: int
) -> None:
    found = error(code, status)
    assert (found.error_class, found.code, found.request_id) == (cls, code, "r-1")


@each_row(
    ("status", "cls"),
    [
        (400, "InvalidRequest"),
        (401, "Unauthorized"),
        (403, "Unauthorized"),
        (404, "NotFound"),
        (409, "Conflict"),
        (429, "Throttled"),
        (500, "Transient"),
        (503, "Transient"),
        (200, "Unknown"),
    ],
)
def test_alicloud_unknown_error_code_is_classified_by_status(status: int, cls: str) -> None:
    assert error("Never.Heard", status).error_class == cls


def test_alicloud_unknown_error_code_with_a_retry_time_is_throttling() -> None:
    found = error_for(answer("Never.Heard", headers={"x-acs-retry-after": "1500"}))
    assert found is not None
    assert (found.error_class, found.retry_after) == ("Throttled", 1.5)


@each_row(
    "body", [b"", b"<html>", b"[]", b'{"Message": "no code"}', b'{"Code": {}}', b'{"Code": "x']
)
def test_alicloud_foreign_error_body_is_not_quoted(body: bytes) -> None:
    assert error_for(VendorResponse("POST x/", 502, {}, body)) is None


@each_row(
    ("text", "seconds"),
    [
        ("2500", 2.5),
        ("0", 0.0),
        ("", 0.0),
        ("-5", 0.0),
        ("1e3", 0.0),
        ("٣", 0.0),
        ("9" * 400, 3600.0),
    ],
)
def test_alicloud_retry_time_is_in_milliseconds_and_validated(text: str, seconds: float) -> None:
    assert retry_after(answer("Throttling.User", headers={"x-acs-retry-after": text})) == seconds


def test_alicloud_running_activity_error_is_distinguished_from_a_failure() -> None:
    assert is_busy(error("ScalingActivityInProgress"))
    assert not is_busy(error("IncorrectCapacity.NoChange"))
    assert is_no_change(error("IncorrectCapacity.NoChange"))
    assert sense_of("IncorrectScalingGroupStatus") is Sense.OFF


def test_alicloud_only_an_error_code_means_not_found() -> None:
    """A 404 without a known code may be a wrong address, and then nothing is gone."""
    assert is_gone(error("InvalidInstanceId.NotFound", 403))
    assert not is_gone(error("Never.Heard", 404))
    assert not is_gone(error("InvalidAction.NotFound", 404))


@each_row(
    ("code", "cls"),
    [
        ("OperationDenied.NoStock", "OutOfStock"),
        ("QuotaExceed.ElasticQuota", "QuotaExceeded"),
        ("QuotaExceeded.Anything", "QuotaExceeded"),
        ("InsufficientBalance", "Unknown"),
        ("Throttling", "Unknown"),
        ("", "Unknown"),
        ("Never.Heard", "Unknown"),
    ],
)
def test_alicloud_activity_error_codes_have_a_class(code: str, cls: str) -> None:
    assert activity_class(code) == cls


def test_alicloud_signed_content_is_not_repeated_in_errors() -> None:
    reported = error_for(
        answer(
            "SignatureDoesNotMatch",
            message="server string to sign is: POST&%2F&SecurityToken%3DCAIS",
        )
    )
    assert reported is not None
    assert reported.message == "SignatureDoesNotMatch"
    assert isinstance(error("X", 200), Unknown)


PAGE = (Path(__file__).resolve().parents[3] / "docs/providers/alicloud.md").read_text("utf-8")


def test_docs_alicloud_error_mapping_lists_every_code() -> None:
    """Except codes with the class of their status, and those of templates."""
    reported = [
        row.pattern.rstrip("*").rstrip(".") for row in TABLE if row.sense is not Sense.REFUSED
    ]
    assert [
        code
        for code in reported
        if f"`{code}" not in PAGE
        and "LaunchTemplate" not in code
        and code != "UnknownError"
        and code != "MissingSecurityToken"
    ] == []
