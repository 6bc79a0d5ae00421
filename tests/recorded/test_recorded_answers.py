"""Commands answer about a recorded table, and messages are spelt, as they were recorded."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

from chalicelib.model.struct_form import DIGITS
from chalicelib.runtime import messages
from tests.recorded import answers

RECORDED = answers.recorded()
given_answers = functools.cache(answers.answers)
ROWS = "rows of apply"


def row_of(text: str) -> dict[str, Any]:
    """A stored row. The version in front of a compiled policy is left out, because it
    stands for all types and defaults of a policy; what a policy without new sections
    is encoded to must stay."""
    row: dict[str, Any] = json.loads(text)
    if "compiled" in row:
        row["compiled"] = {"B": base64.b64decode(row["compiled"]["B"])[DIGITS:]}
    return row


def test_commands_give_the_recorded_answers() -> None:
    given = given_answers()
    assert given.keys() == RECORDED.keys()
    for name, lines in RECORDED.items():
        assert name == ROWS or given[name] == lines, name


def test_apply_stores_what_was_recorded_and_perhaps_more() -> None:
    assert RECORDED[ROWS]
    rows = [
        (row_of(before), row_of(now))
        for before, now in zip(RECORDED[ROWS], given_answers()[ROWS], strict=True)
    ]
    assert sum("compiled" in before for before, _ in rows) == 2
    for before, now in rows:
        assert now | before == now


def test_recorded_answers_are_answers_and_no_refusals() -> None:
    assert {
        name: lines[0]
        for name, lines in RECORDED.items()
        if name not in ("messages", ROWS) and lines[0] != "exit 0"
    } == {}


def test_recorded_messages_are_read_as_what_was_sent() -> None:
    for text, sent in zip(RECORDED["messages"], answers.MESSAGES, strict=True):
        read = (
            messages.decode_act
            if isinstance(sent, messages.ActMessage)
            else messages.decode_reconcile
        )
        assert read(text) == sent
