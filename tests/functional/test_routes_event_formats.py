"""Every body in tests/events is parsed as its exporter intended."""

from __future__ import annotations

import pytest

from tests.functional.app_client import AppClient, sample


@pytest.mark.parametrize(
    ("name", "accepted", "matched"),
    [
        ("core-v1-failed-scheduling", 1, 1),
        ("events-k8s-io-failed-scheduling", 1, 1),
        ("exporter-plain-event", 1, 1),  # a marshalled Go object: no kind, no apiVersion
        ("exporter-array", 2, 1),
        ("core-v1-event-list", 3, 2),
        ("events-k8s-io-event-list", 1, 1),
        ("audit-event-list", 8, 4),
        ("eventbridge-spot-interruption", 1, 1),
    ],
)
def test_sample_event_body_is_parsed(
    desk: AppClient, name: str, accepted: int, matched: int
) -> None:
    answer = desk.post(desk.cluster(), sample(name))
    assert (answer.status_code, answer.json_body) == (
        202,
        {"accepted": accepted, "matched": matched, "woken": True},
    )
