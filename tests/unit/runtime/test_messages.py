"""Messages of the queues."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.runtime.messages import (
    PROVIDERS,
    ActMessage,
    ReconcileMessage,
    act_queue,
    cluster_name_ok,
    decode_act,
    decode_reconcile,
    encode,
)
from tests.cases import each_row


def test_queue_message_round_trips() -> None:
    scan = ReconcileMessage("shop", "webhook", 12.5)
    step = ActMessage("shop", "grow-1")
    assert decode_reconcile(encode(scan)) == scan
    assert decode_act(encode(step).decode()) == step


def test_queue_message_accepts_the_shortest_form_from_users() -> None:
    assert decode_reconcile('{"cluster": "shop"}') == ReconcileMessage("shop", "schedule", 0.0)


@each_row(
    "body",
    [
        "",
        "rubbish",
        "[]",
        "{}",
        '{"cluster": 7}',
        '{"cluster": ""}',
        '{"cluster": "!policies"}',
        '{"cluster": "a b"}',
        '{"cluster": "A"}',
        '{"cluster": "shop", "at": "now"}',
        b"\xff\xfe",
        "[" * 100_000,
    ],
)
def test_queue_message_refuses_invalid_text_in_one_line_with_an_example(body: str | bytes) -> None:
    with pytest.raises(BadInput) as refused:
        decode_reconcile(body)
    assert "\n" not in str(refused.value)
    assert 'send {"cluster": "name"}' in str(refused.value)


@each_row(
    "body",
    [
        '{"cluster": "shop"}',
        '{"cluster": "shop", "operation": ""}',
        '{"operation": "grow-1"}',
    ],
)
def test_step_message_names_cluster_and_operation(body: str) -> None:
    with pytest.raises(BadInput):
        decode_act(body)


def test_every_provider_and_nothing_else_has_a_queue() -> None:
    assert [act_queue(name) for name in PROVIDERS] == [f"act_{name}" for name in PROVIDERS]
    with pytest.raises(BadInput, match="use one of alicloud"):
        act_queue("acme")


@each_row(
    ("name", "ok"),
    [
        ("shop", True),
        ("shop-1.eu", True),
        ("s", True),
        ("", False),
        ("-shop", False),
        ("shop-", False),
        ("Shop", False),
        ("shop\n", False),
        ("a" * 253, True),
        ("a" * 254, False),
    ],
)
def test_valid_and_invalid_cluster_names(name: str, ok: bool) -> None:
    assert cluster_name_ok(name) is ok
