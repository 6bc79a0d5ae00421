"""Accepted forms of a secret with an API key."""

from __future__ import annotations

import json

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret
from chalicelib.providers.exoscale.credentials import ExoscaleCredential, parse_secret
from tests.cases import each_row

API_KEY, API_SECRET = "EXO0123456789abcdefexample", "exampleSecret-0123456789abcdefghijklmnopqrs"
RIGHT = ExoscaleCredential(Secret(API_KEY), Secret(API_SECRET))


@each_row(
    "text",
    [
        json.dumps({"apiKey": API_KEY, "apiSecret": API_SECRET}),
        json.dumps({"api-key": API_KEY, "api-secret": API_SECRET, "api-zone": "de-fra-1"}),
        json.dumps(
            {
                "EXOSCALE_API_KEY": f" {API_KEY}\n",
                "EXOSCALE_API_SECRET": f"{API_SECRET}\n",
                "EXOSCALE_ZONE": "ch-gva-2",
                "EXOSCALE_API_ENVIRONMENT": None,
            }
        ),
        f"EXOSCALE_API_KEY={API_KEY}\nEXOSCALE_API_SECRET={API_SECRET}\n",
        (
            f'# example\r\nexport EXOSCALE_API_KEY="{API_KEY}"\r\n\r\nexport '
            f"EXOSCALE_API_SECRET='{API_SECRET}'\r\n"
        ),
        f"[global]\napi-key = {API_KEY}\napi-secret = {API_SECRET}\n",
        json.dumps({"apiKey": API_KEY, "api_key": API_KEY, "apiSecret": API_SECRET, "zone": ""}),
    ],
)
def test_exoscale_api_key_secret_valid_forms(text: str) -> None:
    assert parse_secret(text, "secret s") == RIGHT


def test_exoscale_api_key_secret_accepts_the_emulations_dummy() -> None:
    assert parse_secret('{"apiKey": "x", "apiSecret": "x"}', "secret s") == ExoscaleCredential(
        Secret("x"), Secret("x")
    )


@each_row(
    ("text", "problem"),
    [
        ("", "neither JSON nor lines"),
        ("hunter2", "neither JSON nor lines"),
        ("{", "is not complete JSON"),
        ("[]", "neither JSON nor lines"),
        ('{"apiKey": 1}', "a field that is not text"),
        ('{"apiKey": {"a": "b"}}', "a field that is not text"),
        ('{"apiKey": "EXOhunter2"}', "apiSecret is missing"),
        ('{"apiSecret": "hunter2"}', "apiKey is missing"),
        ('{"apiKey": " ", "apiSecret": "hunter2"}', "apiKey is missing"),
        ('{"apiKey": "EXO hunter2", "apiSecret": "s"}', "apiKey contains spaces"),
        ('{"apiKey": "EXOhunter2,expires=1", "apiSecret": "s"}', "apiKey contains spaces, commas"),
        ('{"apiKey": "EXO\\nhunter2", "apiSecret": "s"}', "apiKey contains spaces"),
        ('{"apiKey": "EXOh\\u00fcnter2", "apiSecret": "s"}', "apiKey contains spaces"),
        (
            '{"apiKey": "EXOhunter2", "api-key": "EXOhunter3", "apiSecret": "s"}',
            "apiKey is given twice with different values",
        ),
        ('{"token": "hunter2"}', "token is not known"),
        ('{"EXO-hunter2-hunter2": "x"}', "a field is not known"),
        ("EXOhunter2=\n", "a field is not known"),
        ('{"EXOhunter": "x"}', "a field is not known"),
        ("apiKey=a\nhunter2\n", "neither JSON nor lines"),
    ],
)
def test_exoscale_unusable_api_key_secret_is_reported_without_its_value(
    text: str, problem: str
) -> None:
    with pytest.raises(BadInput) as raised:
        parse_secret(text, "secret s")
    assert str(raised.value).startswith("secret s: ")
    assert problem in str(raised.value)
    assert "hunter" not in str(raised.value)
