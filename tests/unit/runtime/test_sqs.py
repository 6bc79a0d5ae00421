"""Sending of queue messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.runtime.senders import NotSent, SqsSender, whole_delay
from infra.emulators.aws import LocalAws, Queue
from tests.cases import each_row


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with LocalAws() as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.env.items():
            patch.setenv(name, value)
        yield running


@each_row(
    ("seconds", "delay"),
    [
        (-3.0, 0),
        (0.0, 0),
        (0.0004, 0),
        (0.2, 1),
        (1.0, 1),
        (1.01, 2),
        (19.9999, 20),
        (899.5, 900),
        (5000.0, 900),
    ],
)
def test_sqs_delay_is_never_shorter_than_requested_nor_above_the_sqs_limit(
    seconds: float, delay: int
) -> None:
    assert whole_delay(seconds) == delay


def test_sqs_queues_are_found_in_the_environment_and_reached(aws: LocalAws) -> None:
    name = f"scans-{uuid.uuid4().hex[:8]}"
    url = aws.create_queues({name: Queue()})[name]
    environment = {
        "OUTSCALER_QUEUE_RECONCILE": url,
        "OUTSCALER_QUEUE_ACT_EXOSCALE": "",
        "PATH": "/",
    }
    sender = SqsSender.from_environment(environment)
    sender.send("reconcile", b'{"cluster":"shop"}', 0)
    sender.send("reconcile", b"{}", 20)
    sqs = aws.client("sqs")
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (
        counts["ApproximateNumberOfMessages"],
        counts["ApproximateNumberOfMessagesDelayed"],
    ) == ("1", "1")
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == '{"cluster":"shop"}'
    with pytest.raises(NotSent, match="OUTSCALER_QUEUE_ACT_EXOSCALE is not set"):
        sender.send("act_exoscale", b"{}", 0)


def test_sqs_message_carries_the_trace_of_its_sender_beside_the_body(aws: LocalAws) -> None:
    headers = ["Root=1-67a4d9d0-0123456789abcdef01234567;Parent=00f067aa0ba902b7;Sampled=1", ""]
    url = aws.create_queues({(name := f"scans-{uuid.uuid4().hex[:8]}"): Queue()})[name]
    sender = SqsSender({"reconcile": url}, trace=lambda: headers[0])
    for _ in range(2):
        sender.send("reconcile", b"{}", 0)
        found = aws.client("sqs").receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"][
            0
        ]
        assert found["Body"] == "{}"
        assert found["Attributes"].get("AWSTraceHeader", "") == headers.pop(0)


def test_sqs_missing_queue_raises_not_sent_with_its_code(aws: LocalAws) -> None:
    sender = SqsSender({"reconcile": f"{aws.endpoint}/123456789012/no-such-queue"})
    with pytest.raises(NotSent, match="queue reconcile: message not taken") as failed:
        sender.send("reconcile", b"{}", 0)
    assert "NonExistentQueue" in failed.value.code


def test_sqs_sender_is_missing_without_any_queue() -> None:
    with pytest.raises(BadInput, match="OUTSCALER_QUEUE_RECONCILE is not set"):
        SqsSender.from_environment({"OUTSCALER_QUEUE_RECONCILE": ""})
