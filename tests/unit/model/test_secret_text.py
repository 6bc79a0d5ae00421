"""A Secret shows itself to one caller and hides from all others."""

from __future__ import annotations

import json
import logging
import pickle

import msgspec
import pytest

from chalicelib.model.secret import Secret, is_sendable

HIDDEN = "the-hidden-word"


class Holder(msgspec.Struct, frozen=True):
    secret: Secret


def test_every_way_of_showing_it_shows_stars() -> None:
    secret = Secret(HIDDEN)
    logged = logging.makeLogRecord({"msg": "%s", "args": (secret,)}).getMessage()
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>9}", repr([secret]), repr(Holder(secret)), logged]
    assert all("***" in text and HIDDEN not in text for text in shown)


def test_reveal_gives_the_text() -> None:
    assert Secret(HIDDEN).reveal() == HIDDEN


@pytest.mark.parametrize("write", [msgspec.json.encode, json.dumps, pickle.dumps])
def test_it_is_written_nowhere(write: object) -> None:
    with pytest.raises(TypeError) as caught:
        write(Holder(Secret(HIDDEN)) if write is msgspec.json.encode else Secret(HIDDEN))  # type: ignore[operator]  # three writers of different types
    assert HIDDEN not in str(caught.value)


def test_equal_texts_are_equal_secrets() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert not Secret("")


def test_it_can_be_struck_out_of_a_text() -> None:
    assert Secret("ab").hidden_in("cabs") == "c***s"
    assert Secret("").hidden_in("cabs") == "cabs"


@pytest.mark.parametrize(("text", "sent"), [
    ("eyJhbGciOi.eyJpc3MiOi.c2lnbmF0dXJl_-", True), ("kubeconfig-u-abc:xyz", True), ("sha256~abc", True),
    ("CAIS+x/y==", True), ("k8s-aws-v1.aHR0cHM6", True), ("a" * 100, True), ("a" * 101, False), ("", False),
    ("two words", False), ("AWS_X=1\0AWS_Y=2", False), ('{"a"}', False), ("a\n", False), ("a,b", False),
    ("\u00e4", False), ("\ud800", False), ("-----BEGIN KEY-----", False),
])
def test_a_text_that_no_credential_consists_of_is_not_sent(text: str, sent: bool) -> None:
    assert is_sendable(text, 100) is sent
