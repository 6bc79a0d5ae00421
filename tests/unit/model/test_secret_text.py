"""A Secret reveals its text only on explicit request."""

from __future__ import annotations

import html
import json
import logging
import pickle
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import msgspec
import pytest

from chalicelib.model.secret import Secret, is_sendable
from tests.cases import each_row

HIDDEN = "the-hidden-word"


class Holder(msgspec.Struct, frozen=True):
    secret: Secret


def test_secret_every_representation_shows_asterisks() -> None:
    secret = Secret(HIDDEN)
    logged = logging.makeLogRecord({"msg": "%s", "args": (secret,)}).getMessage()
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>9}",
        repr([secret]),
        repr(Holder(secret)),
        logged,
    ]
    assert all("***" in text and HIDDEN not in text for text in shown)


def test_secret_reveal_returns_the_text() -> None:
    assert Secret(HIDDEN).reveal() == HIDDEN


@each_row("write", [msgspec.json.encode, json.dumps, pickle.dumps])
def test_secret_cannot_be_serialized(write: object) -> None:
    with pytest.raises(TypeError) as caught:
        # three writers of different types
        write(Holder(Secret(HIDDEN)) if write is msgspec.json.encode else Secret(HIDDEN))  # type: ignore[operator]
    assert HIDDEN not in str(caught.value)


def test_secret_equality_is_equality_of_texts() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert not Secret("")


def test_secret_is_redacted_from_a_text() -> None:
    assert Secret("ab").hidden_in("cabs") == "c***s"
    assert Secret("").hidden_in("cabs") == "cabs"


ODD = 'aB/c+d=e&f:"g h\\i-0123456789'
SPELLINGS = {
    "raw": ODD,
    "percent": quote(ODD, safe=""),
    "percent, lower case": quote(ODD, safe="")
    .replace("%2F", "%2f")
    .replace("%2B", "%2b")
    .replace("%3D", "%3d")
    .replace("%3A", "%3a")
    .replace("%5C", "%5c"),
    "percent, path": quote(ODD),
    "percent, form": quote_plus(ODD),
    "percent, twice": quote(quote(ODD, safe=""), safe=""),
    "percent, every character": "".join(f"%{ord(each):02x}" for each in ODD),
    "percent, mixed": ODD.replace("B", "%42").replace("0", "%30"),
    "json": json.dumps(ODD)[1:-1],
    "json with slashes": json.dumps(ODD)[1:-1].replace("/", "\\/"),
    "json of Go": json.dumps(ODD)[1:-1].replace("&", "\\u0026"),
    "json, every character": "".join(f"\\u{ord(each):04x}" for each in ODD),
    "literal": repr(ODD)[1:-1],
    "html": html.escape(ODD),
    "html, numbers": "".join(f"&#{ord(each)};" for each in ODD),
    "hex": ODD.encode().hex(),
    "base64": b64encode(ODD.encode()).decode(),
    "base64 without padding": b64encode(ODD.encode()).decode().rstrip("="),
    "base64 for addresses": urlsafe_b64encode(ODD.encode()).decode(),
}


@each_row("how", SPELLINGS)
def test_secret_is_redacted_in_every_encoding_that_a_service_may_return(how: str) -> None:
    text = Secret(ODD).hidden_in(f"before {SPELLINGS[how]} after {SPELLINGS[how]}")
    assert "0123456789" not in text
    assert SPELLINGS[how][:12] not in text
    assert "***" in text


@each_row("before", ["", "u", "us", "user:", '{"token": "'])
@each_row("after", ["", "x", "xy", '"}'])
def test_secret_is_redacted_inside_longer_base64(before: str, after: str) -> None:
    whole = b64encode(f"{before}{ODD}{after}".encode()).decode()
    text = Secret(ODD).hidden_in(f"bad header {whole}")
    assert "***" in text
    assert len(text) < len("bad header ***") + len(before + after) * 2 + 8


def test_secret_redaction_leaves_other_text_unchanged() -> None:
    text = "node 100%25 of a+b: %zz \\u00 &amp; \\n c2VjcmV0"
    assert Secret(ODD).hidden_in(text) == text
    assert Secret("ab").hidden_in("YWI= and YW") == "YWI= and YW"


@each_row("text", ["\ud800 x", "\x00", "%", "%%%", "\\", "&#99999999999;", "\\ud800"])
def test_secret_redaction_handles_any_text_and_any_secret(text: str) -> None:
    assert "long-enough-text" not in Secret("long-enough-text").hidden_in(
        f"{text} long-enough-text"
    )
    assert "***" in Secret(text + "0123456789").hidden_in(f"a {text}0123456789 b")


@each_row(
    ("text", "sent"),
    [
        ("eyJhbGciOi.eyJpc3MiOi.c2lnbmF0dXJl_-", True),
        ("kubeconfig-u-abc:xyz", True),
        ("sha256~abc", True),
        ("CAIS+x/y==", True),
        ("k8s-aws-v1.aHR0cHM6", True),
        ("a" * 100, True),
        ("a" * 101, False),
        ("", False),
        ("two words", False),
        ("AWS_X=1\0AWS_Y=2", False),
        ('{"a"}', False),
        ("a\n", False),
        ("a,b", False),
        ("\u00e4", False),
        ("\ud800", False),
        ("-----BEGIN KEY-----", False),
    ],
)
def test_secret_with_characters_impossible_in_a_credential_is_not_sent(
    text: str, sent: bool
) -> None:
    assert is_sendable(text, 100) is sent
