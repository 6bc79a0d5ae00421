"""Accepted forms of a bootstrap token in a secret."""

from __future__ import annotations

import random

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret
from chalicelib.providers.cherryservers.tokens import Token, parse_token
from tests.cases import each_row
from tests.providers.cherryservers.config_documents import refused

RIGHT = Token("nf8atf", Secret("kwfs1t15pjmhk7n4"))


@each_row(
    "text",
    [
        "nf8atf.kwfs1t15pjmhk7n4",
        " nf8atf.kwfs1t15pjmhk7n4\n",
        '{"tokenId": "nf8atf", "tokenSecret": "kwfs1t15pjmhk7n4"}',
        (
            '{"token-id": "nf8atf", "token-secret": "kwfs1t15pjmhk7n4", "usage-bootstrap-signing": '
            '"true", "n": 1}'
        ),
        '{"BOOTSTRAP_TOKEN_ID": "nf8atf", "BOOTSTRAP_TOKEN_SECRET": "kwfs1t15pjmhk7n4\\n"}',
        "BOOTSTRAP_TOKEN_ID=nf8atf\nexport BOOTSTRAP_TOKEN_SECRET='kwfs1t15pjmhk7n4'\n",
    ],
)
def test_bootstrap_token_text_valid_forms(text: str) -> None:
    assert parse_token(text, "secret t") == RIGHT


@each_row(
    ("text", "problem"),
    [
        ("", "the token's id is missing"),
        ("nf8atf", "the token's secret is missing"),
        ("nf8atf.kwfs1t15pjmhk7n", "the token's secret is not 16 small letters and digits"),
        ("NF8ATF.kwfs1t15pjmhk7n4", "the token's id is not 6 small letters and digits"),
        ("nf8atf.kwfs1t15pjmhk7n\uff14", "the token's secret is not"),
        ('{"tokenId": "nf8atf"}', "the token's secret is missing"),
        ('{"tokenId": "nf8atf"', "is not complete JSON"),
        ('{"tokenId": ["nf8atf"]}', "is not complete JSON"),
        ('{"tokenId": "nf8atf", "token-id": "nf8at2"}', "given twice"),
        ("A=1", "the token's id is missing"),
    ],
)
def test_bootstrap_token_text_error_does_not_show_the_value(text: str, problem: str) -> None:
    message = refused(lambda: parse_token(text, "secret t"))
    assert message.startswith("secret t: ")
    assert problem in message.partition(";")[0]
    assert "f8at" not in message
    assert "kwfs" not in message


def test_bootstrap_token_text_arbitrary_input_is_only_refused() -> None:
    chance = random.Random(3)
    for _ in range(2000):
        text = "".join(chance.choice('{}":,.=\n\x00é[a1') for _ in range(chance.randrange(20)))
        with pytest.raises(BadInput):
            parse_token(text, "t")
