"""Schedules in the functions: whether a cluster is scanned depends on its
policy at the current instant.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from chalicelib.functions import read_api, webhook
from chalicelib.passes import scan_scheduler
from chalicelib.runtime import active_policy
from chalicelib.runtime.mode_guard import permitted
from chalicelib.store.policies import StoredPolicy
from tests.functional.app_client import AppClient, Premises, sample


@pytest.fixture
def desk(premises: Premises) -> AppClient:
    """An app client over tables of the test's own, because a tick scans every cluster there is."""
    return Premises(premises.aws, premises.clock).desk()


def _soon(desk: AppClient, mode: str, minutes: int = 30) -> dict[str, Any]:
    """spec with a schedule that opens in three minutes, on the minute, every day; the clock
    is set to a full minute."""
    desk.clock.advance(60 - desk.clock() % 60)
    opens = datetime.fromtimestamp(desk.clock() + 180, UTC)
    return {
        "schedules": [
            {
                "name": "pause",
                "cron": f"{opens.minute} {opens.hour} * * *",
                "duration": f"{minutes}m",
                "mode": mode,
            }
        ]
    }


def _queued(desk: AppClient) -> tuple[str, ...]:
    """Messages queued by a tick; they are received at once."""
    report = scan_scheduler.run(desk.runtime)
    for name in report.queued:
        lease = desk.store.leases.acquire(name, f"pass-{desk.clock()}", 60)
        desk.store.leases.release(lease, passed_at=desk.clock())
    assert report.failed == ()
    return report.queued


def test_cluster_switched_off_by_a_schedule_resumes_when_it_closes(desk: AppClient) -> None:
    name = desk.cluster(spec=_soon(desk, "off", minutes=4))
    seen = []
    for _ in range(10):  # one tick per minute
        seen.append(bool(_queued(desk)))
        desk.clock.advance(60)
    assert seen == [True] * 3 + [False] * 4 + [True] * 3
    assert name


def test_cluster_that_is_off_is_scanned_while_a_schedule_switches_it_on(desk: AppClient) -> None:
    desk.cluster(mode="off", spec=_soon(desk, "active", minutes=2))
    desk.clock.advance(120)
    seen = []
    for _ in range(4):
        seen.append(bool(_queued(desk)))
        desk.clock.advance(60)
    assert seen == [False, True, True, False]


def test_every_function_uses_the_mode_of_the_current_instant(desk: AppClient) -> None:
    name = desk.cluster(spec=_soon(desk, "off"))
    found = []
    for step in (179, 1, 1799, 1):
        desk.clock.advance(step)
        policy = desk.runtime.policy(name)
        assert policy is not None
        body = read_api.cluster(name, desk.runtime).body
        found.append(
            (permitted(policy).word, body["mode"], body["policy"]["mode"], body["health"] == "off")
        )
    assert found == [
        ("active",) * 3 + (False,),
        ("off",) * 3 + (True,),
        ("off",) * 3 + (True,),
        ("active",) * 3 + (False,),
    ]


def test_webhook_requests_no_reconcile_while_a_schedule_switches_the_cluster_off(
    desk: AppClient,
) -> None:
    name = desk.cluster(spec=_soon(desk, "off"))
    desk.clock.advance(170)
    woken, body = [], sample("core-v1-failed-scheduling")
    # the credentials read by the first call are still cached at the second
    for step in (0, 15, 1800):
        desk.clock.advance(step)
        woken.append(
            webhook.handle(name, desk.signed(name, body), body, desk.runtime).body["woken"]
        )
    assert woken == [True, False, True]


def test_policy_text_is_parsed_once_and_evaluated_at_every_instant(desk: AppClient) -> None:
    name = desk.cluster(spec=_soon(desk, "shadow"))
    stored = desk.store.policies.current(name)
    assert isinstance(stored, StoredPolicy)
    now = desk.clock()
    words = [
        permitted(active_policy.in_force(stored, now + after)).word
        for after in (0, 180, 1980, 180, 0)
    ]
    assert words == ["active", "shadow", "active", "shadow", "active"]
    assert active_policy.read(stored.text, name, stored.version) is active_policy.read(
        stored.text, name, stored.version
    )
