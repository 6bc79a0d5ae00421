"""Requests that no honest client sends: each gets its status and one line,
never an internal error.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from app import app
from tests.functional.app_client import BEARER, AppClient, sample

BODY = sample("core-v1-failed-scheduling").decode()
LONE = "\ud800"
TOKEN = {"Authorization": f"Bearer {BEARER}"}


def _answer(
    desk: AppClient,
    headers: dict[str, str] | None,
    body: str | None = BODY,
    *,
    name: str = "",
    encoded: bool = False,
) -> tuple[int, str]:
    """Passes the event on as API Gateway would, which the test client cannot; returns the
    status and the single line."""
    event: dict[str, Any] = {
        "requestContext": {
            "resourcePath": "/clusters/{name}/events",
            "httpMethod": "POST",
            "requestId": "r-1",
        },
        "pathParameters": {"name": name or desk.cluster()},
        "headers": headers,
        "stageVariables": None,
        "multiValueQueryStringParameters": None,
        "body": body,
        "isBase64Encoded": encoded,
    }
    got = app(event, None)
    said = json.loads(got["body"])
    assert list(said) == ["error"]
    assert "\n" not in said["error"]
    return got["statusCode"], said["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {LONE}"},
        {"Authorization": LONE},
        {"X-Outscaler-Signature": f"sha256={LONE}", "X-Outscaler-Timestamp": "1"},
        {"X-Outscaler-Signature": "sha256=00", "X-Outscaler-Timestamp": LONE},
        {"Authorization": "Bearer \u00e9\U0001f511\x00"},
        {"X-Outscaler-Signature": "sha256=00", "X-Outscaler-Timestamp": "9" * 6000},
        {},
        None,
    ],
)
def test_non_text_authentication_is_invalid(
    desk: AppClient, headers: dict[str, str] | None
) -> None:
    status, line = _answer(desk, headers)
    assert (status, line[:27]) == (401, "Authorization: not accepted")
    assert _answer(desk, headers, name="no-such-cluster")[0] == 404


@pytest.mark.parametrize("name", [LONE, f"a{LONE}b", "\x00", "\U0001f511"])
def test_non_text_cluster_name_is_unknown(desk: AppClient, name: str, log: io.StringIO) -> None:
    assert _answer(desk, TOKEN, name=name)[0] == 404
    log.getvalue().encode()


@pytest.mark.parametrize(
    ("body", "encoded"),
    [
        (BODY + LONE, False),
        ("AAAAA", True),
        ("\u00e9", True),
        (LONE, True),
        ("not base64 at all!", True),
    ],
)
def test_body_that_cannot_be_decoded_gets_status_400(
    desk: AppClient, body: str, encoded: bool
) -> None:
    status, line = _answer(desk, TOKEN, body, encoded=encoded)
    assert status == 400
    assert line.startswith("body")
    assert desk.outbox.sent == []


@pytest.mark.parametrize("body", ["", None])
def test_missing_body_gets_status_400(desk: AppClient, body: str | None) -> None:
    assert _answer(desk, TOKEN, body)[0] == 400


@pytest.mark.parametrize(
    ("length", "status"),
    [
        ("9" * 6000, 413),
        ("0" * 6000 + "262145", 413),
        ("1" * 11, 413),
        ("0" * 6000 + "9", 401),
        ("-" + "9" * 6000, 401),
        ("\u00b2\u00b2", 401),
        (LONE, 401),
        ("", 401),
        ("1e99", 401),
    ],
)
def test_any_content_length_header_gets_its_expected_status(
    desk: AppClient, length: str, status: int
) -> None:
    assert _answer(desk, {"Content-Length": length})[0] == status
