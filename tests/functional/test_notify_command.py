"""Notifications in a policy, and `outscaler notify`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from chalicelib.cli.main import main
from chalicelib.cli.serialize_policy import dump
from chalicelib.model.errors import BadInput
from chalicelib.policy.load import load
from chalicelib.store import Store
from infra.emulators.aws import create_table
from tests.functional.test_notifications import CHAT, HOOK, NAME, NOW, TOPIC
from tests.unit.policy.policy_documents import GOOD, with_spec


def test_policy_reads_and_dumps_every_key_of_notifications() -> None:
    text = with_spec(
        f"notifications:\n  topic: {TOPIC}\n  chatTopic: {CHAT}\n  minSeverity: info\n  types: "
        "[paused, scaled.up]\n"
        f"  webhook: {{url: '{HOOK.url}', secret: {HOOK.secret}}}\n"
        '  quietHours: [{cron: "0 20 * * *", duration: 10h, timeZone: Europe/Zurich}]'
    )
    policy, warnings = load(text, place="policy.yaml")
    assert (warnings, policy.notifications and policy.notifications.destinations) == (
        (),
        ("topic", "chatTopic", "webhook"),
    )
    assert load(dump(policy), place="dump")[0].notifications == policy.notifications


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("topic: events", "is not the ARN of an SNS topic whose name begins with outscaler-"),
        ("topic: arn:aws:sns:eu-central-2:123456789012:other", "whose name begins with outscaler-"),
        (
            "webhook: {url: 'http://x.example', secret: outscaler/prod-geneva/notifications}",
            "is not an HTTPS address",
        ),
        (
            "webhook: {url: 'https://u:p@x.example', secret: outscaler/prod-geneva/notifications}",
            "is not an HTTPS address",
        ),
        ("webhook: {url: 'https://x.example'}", "secret: is missing"),
        ("types: [group.fialed]", "did you mean group.failed?"),
        ("minSeverity: high", "info, warning or critical"),
    ],
)
def test_mistake_in_notifications_is_named_with_its_remedy(lines: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(with_spec(f"notifications:\n  {lines}"), place="policy.yaml")
    assert says in str(caught.value)
    assert "notifications" in str(caught.value)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": "outscaler-dev-state",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        create_table(boto3.client("dynamodb"), "outscaler-dev-state")
        yield Store("outscaler-dev-state", clock=lambda: NOW)


def test_notify_test_shows_each_destination_and_fails_if_one_does(
    table: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    table.policies.put(
        NAME, with_spec(f"notifications: {{topic: {TOPIC}, chatTopic: {CHAT}}}"), "d", None
    )
    boto3.client("sns").create_topic(Name="outscaler-events")
    assert main(["notify", "test", NAME, "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["destinations"]
    assert (found["topic"], "NotFound" in found["chatTopic"]) == (None, True)
    boto3.client("sns").create_topic(Name="outscaler-chat")
    assert main(["notify", "test", NAME]) == 0
    assert main(["notify", "open", NAME]) == 0
    assert main(["notify", "dead", NAME]) == 0
    assert "no message is lost" in capsys.readouterr().out


def test_notify_test_without_destinations_says_what_to_write(
    table: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    table.policies.put(NAME, GOOD, "d", None)
    assert main(["notify", "test", NAME]) == 2
    assert "its policy has no destinations; write spec.notifications" in capsys.readouterr().err


def open_conditions(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str | None]]:
    capsys.readouterr()
    assert main(["notify", "open", NAME, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["conditions"]
    return [(row["type"], row["openedAt"]) for row in rows]


def test_notify_open_shows_what_applies_although_no_tick_has_run(
    table: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    table.policies.put(NAME, with_spec(f"notifications: {{topic: {TOPIC}}}"), "d", None)
    # applied at NOW, which is long ago by the clock of the command
    assert open_conditions(capsys) == [("cluster.late", None)]
    assert main(["notify", "open", NAME]) == 0
    assert "no tick has asked for one" in capsys.readouterr().out.replace("\n", " ")


def test_notify_open_says_where_no_destination_is_named(
    table: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    table.policies.put(NAME, GOOD, "d", None)
    assert open_conditions(capsys) == [("cluster.late", None)]
    assert main(["notify", "open", NAME]) == 0
    assert "no destination" in capsys.readouterr().out
