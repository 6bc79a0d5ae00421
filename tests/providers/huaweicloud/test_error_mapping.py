"""Mapping of the vendor's refusals to provider errors."""

from __future__ import annotations

import json

from chalicelib.providers.huaweicloud.error_mapping import (
    class_of,
    error_for,
    of_status,
    refusal_in,
)
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
)
from chalicelib.providers.kit.http import VendorResponse
from tests.cases import each_row

GET, POST = "GET cce.example.com/x", "POST cce.example.com/x"

ROWS: list[tuple[int, str, type[ProviderError]]] = [
    *[
        (400, f"CCE.014000{number}", QuotaExceeded)
        for number in ("08", "09", "10", "11", "12", "13", "14", "19", "20")
    ],
    (400, "CCE.01400021", OutOfStock),
    (400, "CCE.01400022", OutOfStock),
    (400, "CCE.01400001", InvalidRequest),
    (400, "CCE.01400016", InvalidRequest),
    (400, "CCE.01400018", InvalidRequest),
    (400, "CCE.01400099", InvalidRequest),
    (401, "CCE.01401001", Unauthorized),
    (401, "APIGW.0301", Unauthorized),
    (401, "APIGW.0303", Unauthorized),
    (403, "APIGW.0302", Unauthorized),
    (403, "CCE.01403001", Unauthorized),
    (404, "CCE.01404001", NotFound),
    (409, "CCE.01409002", Conflict),
    (429, "CCE.01429002", Conflict),
    (429, "CCE.02429001", Throttled),
    (429, "APIGW.0308", Throttled),
    (500, "CCE.01500001", Transient),
    (503, "", Transient),
    (429, "", Throttled),
    (404, "APIGW.0101", InvalidRequest),
    (418, "", Unknown),
    (400, "cce.01400009", QuotaExceeded),
]


def answer(status: int, body: object = b"", call: str = POST, **headers: str) -> VendorResponse:
    return VendorResponse(
        call, status, headers, body if isinstance(body, bytes) else json.dumps(body).encode()
    )


@each_row(("status", "code", "cls"), ROWS)
@each_row("form", ["cce", "gateway", "plain", "iam"])
def test_CCE_20_each_error_code_has_its_class_in_every_form(
    form: str, status: int, code: str, cls: type[ProviderError]
) -> None:
    body: dict[str, object] = {
        "cce": {"errorCode": code, "errorMessage": "why", "kind": "Status"},
        "gateway": {"error_code": code, "error_msg": "why", "request_id": "r-1"},
        "plain": {"code": code, "message": "why"},
        "iam": {"error": {"code": code, "message": "why", "title": "No"}},
    }
    error = error_for(answer(status, body[form], **{"x-request-id": "r-1"}))
    assert (type(error), error.code, error.request_id) == (cls, code or str(status), "r-1")
    assert error.message.startswith(f"{POST}: ")
    assert error.message.endswith(": why")


def test_CCE_20_locked_pool_pauses_no_other_caller_and_reads_are_retried() -> None:
    body = {"errorCode": "CCE.01429002", "errorMessage": "locked"}
    assert type(error_for(answer(429, body))) is Conflict
    assert type(error_for(answer(429, body, GET))) is Throttled


@each_row(
    "body",
    [
        b"",
        b"<html><body>502 Bad Gateway</body></html>",
        b"\xff\xfe",
        b"[1, 2]",
        b'"text"',
        b"null",
        b'{"errorCode": ',
        b'{"errorCode": {"a": 1}, "error_msg": [1], "message": null}',
        b"[" * 3000,
    ],
)
def test_CCE_20_error_body_without_content_is_classified_by_status(body: bytes) -> None:
    assert type(error_for(answer(502, body))) is Transient
    assert type(error_for(answer(400, body))) is InvalidRequest
    assert "HTTP 502" in error_for(answer(502, body)).message


def test_CCE_20_web_page_with_404_does_not_mean_not_found() -> None:
    assert type(error_for(answer(404, b"  <!doctype html><title>nginx</title>"))) is Transient
    assert (
        type(error_for(answer(404, {"errorCode": "CCE.01404001", "errorMessage": "no node"})))
        is NotFound
    )


def test_huawei_wrong_clock_is_reported_with_the_vendors_time() -> None:
    error = error_for(
        answer(
            401,
            {"error_code": "APIGW.0303", "error_msg": "time"},
            date="Fri, 02 Jan 2026 03:04:05 GMT",
        )
    )
    assert "15 minutes" in error.message
    assert "Fri, 02 Jan 2026 03:04:05 GMT" in error.message


@each_row(
    ("code", "word"),
    [
        ("APIGW.0301", "accessKey"),
        ("CCE.01403001", "policy.json"),
        ("CCE.01400014", "enlarge the cluster"),
        ("Ecs.0314", "key pair"),
        ("Ecs.0912", "KMS"),
        ("APIGW.0101", "region"),
    ],
)
def test_huawei_error_message_of_a_code_says_what_to_do(code: str, word: str) -> None:
    assert word in of_status(400, code, "x").message


def test_huawei_condition_reasons_have_classes() -> None:
    assert class_of(" CCE.01400010 ") is QuotaExceeded
    assert class_of("Ecs.0314") is Unknown
    assert class_of("") is Unknown


def test_huawei_error_messages_are_short_and_on_one_line() -> None:
    error = of_status(400, "X" * 200, "a\nb " * 400, call=POST)
    assert len(error.message) <= 300
    assert "\n" not in error.message
    assert len(error.code) <= 80


def test_huawei_numeric_error_code_is_read() -> None:
    assert refusal_in(b'{"error": {"code": 401, "message": "no"}}').code == "401"
    assert type(error_for(answer(401, {"error": {"code": 401, "message": "no"}}))) is Unauthorized


def test_huawei_signature_repeated_by_a_gateway_is_not_shown() -> None:
    said = (
        f"verify failed: SDK-HMAC-SHA256 Access=AK, SignedHeaders=host, Signature={'0a' * 32}; "
        "signature: 0B12345"
    )
    message = of_status(401, "APIGW.0301", said, call=POST).message
    assert "Signature=***" in message
    assert "0a0a" not in message
    assert "0B12" not in message
