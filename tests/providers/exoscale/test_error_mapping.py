"""Mapping of refusals and failed operations to provider errors, with the
vendor's complete message.
"""

from __future__ import annotations

import json

from chalicelib.providers.exoscale.decoding import Work
from chalicelib.providers.exoscale.error_mapping import (
    REASONS,
    error_for,
    is_forbidden,
    message_in,
    work_error,
)
from chalicelib.providers.kit import errors
from chalicelib.providers.kit.http import VendorResponse
from tests.cases import each_row

GET, PUT = (
    "GET api-ch-gva-2.exoscale.com/v2/instance",
    "PUT api-ch-gva-2.exoscale.com/v2/instance-pool/p:scale",
)


def answer(status: int, body: object = b"", call: str = PUT, **headers: str) -> VendorResponse:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return VendorResponse(
        call, status, {name.replace("_", "-"): value for name, value in headers.items()}, raw
    )


@each_row(
    ("status", "cls"),
    [
        (400, "InvalidRequest"),
        (401, "Unauthorized"),
        (402, "QuotaExceeded"),
        (403, "Unauthorized"),
        (404, "NotFound"),
        (405, "InvalidRequest"),
        (409, "Conflict"),
        (412, "QuotaExceeded"),
        (418, "Unknown"),
        (422, "InvalidRequest"),
        (423, "Conflict"),
        (429, "Throttled"),
        (500, "Transient"),
        (502, "Transient"),
        (503, "Transient"),
        (504, "Transient"),
        (302, "Unknown"),
    ],
)
def test_exoscale_every_error_status_keeps_its_meaning_and_message(status: int, cls: str) -> None:
    error = error_for(answer(status, {"message": "Said so."}))
    assert (error.error_class, error.code) == (cls, str(status))
    assert error.message == f"{PUT}: HTTP {status}: Said so."


@each_row(
    ("body", "said"),
    [
        ({"message": "Pool is locked."}, "Pool is locked."),
        ({"error": "Pool is locked."}, "Pool is locked."),
        ({"message": "A.", "error": "B."}, "A.; B."),
        ({"error": {"message": "Deeper."}}, "Deeper."),
        (
            {
                "type": "about:blank",
                "title": "Bad",
                "detail": "size is wrong",
                "errors": ["a", {"message": "b"}, 3],
            },
            "Bad; size is wrong; a; b",
        ),
        ({"title": "Bad", "detail": "Bad"}, "Bad"),
        (b"  plain text, as it comes\n", "plain text, as it comes"),
        (b"<html><body>Bad gateway</body></html>", ""),
        (b"", ""),
        (b"\xff\xfe", ""),
        (b"null", ""),
        (b"[]", ""),
        (b"42", ""),
        (b"{}", ""),
        ({"message": None}, ""),
        ({"message": 7, "detail": [["x"]]}, "x"),
        ({"errors": [f"e{number}" for number in range(50)]}, "e0; e1; e2; e3; e4"),
        (b"[" * 100_000 + b"]" * 100_000, ""),
        (b'{"errors":' * 400 + b'"deep"' + b"}" * 400, ""),
    ],
)
def test_exoscale_error_text_is_found_in_all_forms_of_bodies(body: object, said: str) -> None:
    refused = answer(400, body)
    assert message_in(refused) == said
    error = error_for(refused)
    assert error.message == f"{PUT}: HTTP 400" + (f": {said}" if said else "")


@each_row(
    "said",
    [
        "Quota exceeded for resource instance",
        "The quota of instances is exhausted",
        "instance limit has been reached",
        "You have exceeded the limit of 20 instances",
        "Insufficient credits",
        "not enough funds on your account",
        "Reached your organization's quota (20)",
    ],
)
@each_row("status", [400, 403, 409, 422])
def test_exoscale_refusal_that_mentions_limits_is_a_quota_error(status: int, said: str) -> None:
    error = error_for(answer(status, {"message": said}))
    assert isinstance(error, errors.QuotaExceeded)
    assert error.code == str(status)
    assert said in error.message


@each_row(
    ("status", "said", "call", "cls"),
    [
        (403, "Operation get-quota is not allowed by the role's policy", GET, "Unauthorized"),
        (403, "Operation scale-instance-pool is not allowed", PUT, "Unauthorized"),
        (403, "quota exceeded", GET, "Unauthorized"),
        (400, "rate limit exceeded", PUT, "InvalidRequest"),
        (429, "limit exceeded", PUT, "Throttled"),
        (404, "quota exceeded", PUT, "NotFound"),
        (401, "quota exceeded", PUT, "Unauthorized"),
        (500, "quota exceeded", PUT, "Transient"),
        (400, "size must be at least 0", PUT, "InvalidRequest"),
        (402, "pay first", GET, "Unauthorized"),
        (412, "changed", GET, "Conflict"),
    ],
)
def test_exoscale_text_that_resembles_a_limit_is_not_a_quota_error(
    status: int, said: str, call: str, cls: str
) -> None:
    error = error_for(answer(status, {"message": said}, call))
    assert error.error_class == cls


def test_exoscale_error_page_of_a_gateway_does_not_mean_not_found() -> None:
    assert error_for(answer(404, b" <html>Not Found</html>", GET)).error_class == "Transient"
    assert error_for(answer(404, b"Not Found", GET)).error_class == "NotFound"


def test_exoscale_request_id_is_kept_for_the_vendors_support() -> None:
    error = error_for(answer(400, {"message": "x"}, x_request_id="r-1"))
    assert error.request_id == "r-1"


def test_exoscale_only_403_means_forbidden() -> None:
    assert [
        status
        for status in (400, 401, 402, 403, 404, 500)
        if is_forbidden(error_for(answer(status, call=GET)))
    ] == [403]
    assert not is_forbidden(errors.Transient("x", code="403"))
    assert not is_forbidden(work_error(Work("w", "failure", "forbidden")))


# -- failed operations


def test_exoscale_every_documented_failure_reason_has_a_class() -> None:
    """The reasons are those of the vendor's OpenAPI document."""
    assert REASONS.keys() == {
        "busy",
        "conflict",
        "fault",
        "forbidden",
        "incorrect",
        "interrupted",
        "not-found",
        "partial",
        "unavailable",
        "unknown",
        "unsupported",
    }


@each_row(
    ("reason", "cls"),
    [
        ("busy", "Conflict"),
        ("conflict", "Conflict"),
        ("fault", "Unknown"),
        ("forbidden", "Unauthorized"),
        ("incorrect", "InvalidRequest"),
        ("interrupted", "Unknown"),
        ("not-found", "NotFound"),
        ("partial", "OutOfStock"),
        ("unavailable", "OutOfStock"),
        ("unknown", "Unknown"),
        ("unsupported", "InvalidRequest"),
        ("invented-tomorrow", "Unknown"),
    ],
)
def test_exoscale_failed_operation_keeps_reason_and_message(reason: str, cls: str) -> None:
    error = work_error(Work("e2047130", "failure", reason, "No\n capacity  left."))
    assert (error.error_class, error.code) == (cls, reason)
    assert error.message == f"operation e2047130 ended as failure ({reason}): No capacity left."


@each_row(
    ("reason", "cls"),
    [
        ("unavailable", "QuotaExceeded"),
        ("partial", "QuotaExceeded"),
        ("fault", "QuotaExceeded"),
        ("", "QuotaExceeded"),
        ("busy", "Conflict"),
        ("not-found", "NotFound"),
    ],
)
def test_exoscale_operation_failed_over_the_quota_says_so(reason: str, cls: str) -> None:
    assert work_error(Work("w", "failure", reason, "Instance quota exceeded")).error_class == cls


def test_exoscale_timeout_and_silent_operation_are_unknown_and_not_retried_at_once() -> None:
    """The operation has ended; an immediate retry would fail again and delay the other groups."""
    for work, code in (
        (Work("w", "timeout"), "timeout"),
        (Work("w", "failure"), "failure"),
        (Work(), "unknown"),
        (Work("w", "exploded"), "exploded"),
    ):
        error = work_error(work)
        assert (error.error_class, error.code) == ("Unknown", code)


def test_exoscale_long_message_is_truncated() -> None:
    assert len(work_error(Work("w", "failure", "fault", "x" * 10_000)).message) <= 300
