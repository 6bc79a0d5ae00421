"""An answer that is not 2xx becomes the right error class and keeps the
server's message and reason.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cluster import errors
from chalicelib.model.secret import Secret
from tests.cases import each_row
from tests.reference_data import SHARED, needs_shared
from tests.unit.cluster.support import b64, status

JWT = ".".join(
    b64(json.dumps(part).encode()).rstrip("=")
    for part in ({"alg": "none"}, {"iss": "kube"}, "signed")
)
CLASSES: dict[int, type[errors.ClusterError]] = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Expired,
    415: errors.Invalid,
    422: errors.Invalid,
    429: errors.TooManyRequests,
    500: errors.Unavailable,
    503: errors.Unavailable,
    408: errors.Unavailable,
    301: errors.Unavailable,
}


@each_row(("code", "cls"), CLASSES.items())
def test_kube_error_class_of_every_status(code: int, cls: type[errors.ClusterError]) -> None:
    error = errors.from_answer(code, b"", {})
    assert type(error) is cls
    assert error.status == code


def recorded_refusals() -> list[Any]:
    if not SHARED.is_dir():
        return []
    exchanges = json.loads((SHARED / "data" / "kube-api-exchanges.json").read_text())["exchanges"]
    return [
        pytest.param(e["response"], id=e["name"])
        for e in exchanges
        if e["response"].get("status", 200) >= 400
    ]


@needs_shared
@pytest.mark.parametrize("answer", recorded_refusals())
def test_kube_error_keeps_the_message_of_a_real_server(answer: dict[str, Any]) -> None:
    body = answer["body"]
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = errors.from_answer(answer["status"], raw, answer["headers"])
    assert type(error) is CLASSES[answer["status"]]
    if isinstance(body, str):
        assert (
            error.message == f"HTTP {answer['status']}, which is not a Status of the Kubernetes API"
        )
        return
    assert error.reason == body.get("reason", "")
    assert error.message[:299] == body["message"][:299]
    details = body.get("details", {})
    assert (error.details.name, error.details.kind) == (
        details.get("name", ""),
        details.get("kind", ""),
    )
    assert [c.message for c in error.details.causes] == [
        c["message"] for c in details.get("causes", ())
    ]


def test_kube_error_truncates_a_long_message() -> None:
    error = errors.from_answer(422, json.dumps(status(422, message="x" * 5000)).encode(), {})
    assert len(error.message) == 300
    assert error.message.endswith("x…")


@each_row(
    "text",
    [
        "bad header Authorization: Bearer abc.def-ghi",
        'got "bearer abc.def-ghi"',
        "token s3cret-value is unknown",
        f"header {JWT} is old",
    ],
)
def test_kube_error_redacts_tokens(text: str) -> None:
    error = errors.from_answer(
        400, json.dumps(status(400, message=text)).encode(), {}, (Secret("s3cret-value"),)
    )
    assert "***" in error.message
    assert not any(part in error.message for part in ("abc.def", "s3cret", JWT))


@each_row(
    ("body", "kind"),
    [
        (b"<html><body>Bad gateway</body></html>", "text/html"),
        (b"root:x:0:0:root:/root:/bin/bash", "text/plain; charset=utf-8"),
        (b'{"AccessKeyId": "A", "Token": "T"}', "application/json"),
        (
            b'{"kind": "Secret", "message": "hidden-word", "reason": "hidden-word"}',
            "application/json",
        ),
        (b'"hidden-word"', "application/json"),
        (b"\xff\xfe", "text/plain"),
    ],
)
def test_kube_error_never_shows_a_body_that_is_not_a_status(body: bytes, kind: str) -> None:
    error = errors.from_answer(502, body, {"Content-Type": kind})
    assert error.message == "HTTP 502, which is not a Status of the Kubernetes API"
    assert (error.reason, error.details) == ("", errors.Details())


def test_kube_error_status_text_is_bounded_and_without_control_characters() -> None:
    said = status(
        403, "Forbidden\x1b[2J", "no\x1b[31m\u202egod\x00\nx", causes=[{"message": "a\x07b"}] * 50
    )
    error = errors.from_answer(403, json.dumps(said).encode(), {})
    assert error.message == "no [31m god x"
    assert error.reason == ""
    assert len(error.details.causes) == 10
    assert error.details.causes[0].message == "a b"


@each_row(
    ("header", "field", "seconds"),
    [
        ("7", None, 7.0),
        ("", 3, 3.0),
        ("2", 9, 9.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None, 0.0),
        ("-1", None, 0.0),
    ],
)
def test_kube_error_retry_after_is_in_the_header_or_the_details(
    header: str, field: int | None, seconds: float
) -> None:
    details: dict[str, Any] = {} if field is None else {"retryAfterSeconds": field}
    body = json.dumps(status(429, **details)).encode()
    assert errors.from_answer(429, body, {"Retry-After": header}).retry_after == seconds
