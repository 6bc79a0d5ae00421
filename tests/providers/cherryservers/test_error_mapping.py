"""Mapping of the vendor's error texts to error classes, and the parsing of the API token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.providers.cherryservers.decoding import error_for
from chalicelib.providers.cherryservers.tokens import parse_api_token
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

ORDER, READ, GIVE_BACK = (
    "POST api.example/v1/projects/1/servers",
    "GET api.example/v1/plans/x",
    "DELETE api.example/v1",
)


def error(status: int, body: Any, call: str = ORDER) -> ProviderError:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_for(VendorResponse(call, status, {}, text))


@each_row(
    ("status", "text", "cls"),
    [
        (400, "Plan e5_1620v4 is out of stock", OutOfStock),
        (400, "Bad region", OutOfStock),
        (404, "No such plan", OutOfStock),
        (400, "Not enough STOCK", OutOfStock),
        (400, "Explanation missing", InvalidRequest),
        (400, "hostname is taken", InvalidRequest),
        (404, "Project not found", NotFound),
        (402, "Payment required", QuotaExceeded),
        (400, "You do not have enough credit", QuotaExceeded),
        (400, "Server limit reached for this plan", QuotaExceeded),
        (404, "Quota of the project", QuotaExceeded),
        (409, "credits exhausted", QuotaExceeded),
        (409, "Busy", Conflict),
        (401, "Bad plan", Unauthorized),
        (403, "No credit", Unauthorized),
        (429, "rate limit of the plan", Throttled),
        (500, "stock service", Transient),
        (503, "", Transient),
        (418, "teapot", Unknown),
    ],
)
def test_cherry_order_refusal_is_classified_by_status_and_text(
    status: int, text: str, cls: type[ProviderError]
) -> None:
    found = error(status, {"code": status, "message": text})
    assert type(found) is cls
    assert found.code == str(status)


@each_row("call", [READ, GIVE_BACK])
@each_row(("status", "cls"), [(404, NotFound), (400, InvalidRequest), (402, QuotaExceeded)])
def test_cherry_error_texts_classify_only_orders(
    call: str, status: int, cls: type[ProviderError]
) -> None:
    assert (
        type(
            error(
                status, {"message": "no such plan in this region, credit limit, out of stock"}, call
            )
        )
        is cls
    )


@each_row(
    "body",
    [
        {"code": 400, "message": "Bad hostname"},
        {"errors": ["Bad hostname"]},
        {"error": "Bad hostname"},
        {"message": "", "errors": [], "error": "Bad hostname"},
        {"message": None, "error": "Bad hostname"},
        {"message": {"a": 1}, "errors": ["Bad hostname"]},
        {"code": "E400", "message": "Bad hostname"},
    ],
    ids=str,
)
def test_cherry_error_keeps_the_vendors_message_in_every_form(body: object) -> None:
    assert str(error(400, body)) == f"{ORDER}: 400 Bad hostname"


def test_cherry_several_errors_are_reported_together() -> None:
    assert str(error(400, {"errors": ["one", 2, "three"]})) == f"{ORDER}: 400 one; three"


@each_row(
    ("body", "described"),
    [
        (b"", ""),
        (b"<html>Bad</html>", " (16 bytes of an unknown type)"),
        (b"root:x:0:0", " (10 bytes of an unknown type)"),
        (b'{"wibble": 1}', " (13 bytes of an unknown type)"),
        (b"\xff\xfe{", " (3 bytes of an unknown type)"),
    ],
    ids=str,
)
def test_cherry_foreign_error_body_is_described_and_not_repeated(
    body: bytes, described: str
) -> None:
    assert str(error(502, body)) == f"{ORDER}: 502{described}"


@each_row("echoed", ["IyEvYmluL2Jhc2gK" * 8, "IyEvYmluL2Jhc2gK\\/" * 8, "nf8atf.kwfs1t15pjmhk7n4"])
def test_cherry_order_error_does_not_repeat_the_request(echoed: str) -> None:
    text = str(error(400, {"message": f"user_data {echoed} is bad"}))
    assert echoed[:12] not in text
    assert "user_data" in text
    assert "is bad" in text
    assert echoed[:12] not in str(error(400, f"user_data {echoed} is bad".encode()))


@each_row(
    "text",
    [
        "EXAMPLE-token",
        "  EXAMPLE-token\n",
        '{"authToken": "EXAMPLE-token"}',
        '{"authtoken": "EXAMPLE-token\\n"}',
        '{"CHERRY_AUTH_TOKEN": "EXAMPLE-token"}',
        '{"auth-token": "EXAMPLE-token", "note": null}',
        '{"CHERRY_API_KEY": "EXAMPLE-token", "authtoken": "EXAMPLE-token"}',
    ],
)
def test_cherry_api_token_is_read_in_every_form(text: str) -> None:
    assert parse_api_token(text, "secret a").reveal() == "EXAMPLE-token"


@each_row(
    "text",
    [
        "",
        "  \n",
        "{}",
        '{"authToken": ""}',
        '{"authToken": 5}',
        '{"authToken": "hidden"',
        '["hidden"]',
        '"hidden"',
        "Bearer hidden",
        "hidden\nhidden",
        "hid\u00e4den",
        "hidden\x00",
        '{"password": "hidden"}',
        "hidden" * 1000,
        '{"authToken": "hidden", "authtoken": "hidden2"}',
    ],
)
def test_cherry_unusable_api_token_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(BadInput) as reported:
        parse_api_token(text, "secret a")
    assert str(reported.value).startswith("secret a: ")
    assert "hid" not in str(reported.value)
